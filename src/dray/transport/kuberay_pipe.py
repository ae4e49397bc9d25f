"""Runs a program on the head of a RayCluster of Kubernetes, as ``ray_pipe`` does: Ray's HTTP API is
reached through the API server's service proxy, by a ``kubectl proxy`` of this process's own.

kuberay_pipe NAMESPACE CONTEXT KUBECONFIG NAME TOKEN PYTHON WORDS...
    TOKEN says where the token is; where it is empty, the cluster's Secret has it
"""

from __future__ import annotations

from dray.transport import kuberay_api
from dray.transport.kube_api import Api
from dray.transport.kube_proxy import Proxy
from dray.transport.kubectl import Kubectl
from dray.transport.ray_pipe import main, run


def by_kubernetes(
    namespace: str, context: str, config: str, name: str, source: str, python: str, *words: str
) -> int:
    # Who hangs up after us is a child of this process, and needs the proxy as well.
    proxy = Proxy(kubectl := Kubectl(namespace, context, config))
    proxy.wait()
    connect = kuberay_api.connector(Api(kubectl, proxy.place), name, source)
    return run(connect, python, words)


if __name__ == "__main__":
    main(by_kubernetes)
