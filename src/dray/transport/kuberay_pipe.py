"""Runs a program on the head of a RayCluster of Kubernetes, as ``ray_pipe`` does: Ray's HTTP API is
reached through the API server's service proxy, by a ``kubectl proxy`` on a socket of our own.

kuberay_pipe NAMESPACE CONTEXT KUBECONFIG NAME TOKEN PYTHON WORDS...
    TOKEN says where the token is; where it is empty, the cluster's Secret has it
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from dray import tracing
from dray.transport import kuberay_api
from dray.transport.kube_api import Api, namespace_of
from dray.transport.kubectl import Kubectl
from dray.transport.ray_api import find_token
from dray.transport.ray_pipe import main, run
from dray.transport.sockets import socket_folder

STARTING = 20.0  # seconds for kubectl to listen
# Its input ends with us, and with the process that hangs up after us; then nothing is left.
KEEPING = '"$@" & read -r line; kill $!; wait; rm -rf "$0"'


def start_proxy(kubectl: Kubectl) -> Path:
    """Start a kubectl that passes requests on, for as long as this process and its children live;
    return where it listens, or will."""
    folder = tempfile.mkdtemp(prefix="ray-", dir=socket_folder())
    place = Path(folder, "api")
    words = kubectl.argv("proxy", f"--unix-socket={place}")
    tracing.trace_program(words)
    null = subprocess.DEVNULL
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", KEEPING, folder, *words],
        stdin=subprocess.PIPE,
        stdout=null,
        stderr=null,
        start_new_session=True,  # Ctrl-C is for us: something is left to say to Ray
    )
    until = time.monotonic() + STARTING
    while not place.exists() and keeper.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    _KEPT.append(keeper)
    return place


_KEPT: list[subprocess.Popen[bytes]] = []  # so that its input stays open


def by_kubernetes(
    namespace: str, context: str, config: str, name: str, source: str, python: str, *words: str
) -> int:
    kubectl = Kubectl(namespace, context, config)
    proxy = start_proxy(kubectl)
    api = Api(kubectl, proxy)
    head = kuberay_api.find_head(api, namespace_of(kubectl), name)
    token = find_token(source) if source else kuberay_api.read_token(api, head)
    return run(lambda: kuberay_api.ProxiedRayApi(proxy, head, token), python, words)


if __name__ == "__main__":
    main(by_kubernetes)
