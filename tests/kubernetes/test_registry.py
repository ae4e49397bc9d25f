"""An image that `dray image push` has put into a private registry is what the nodes run."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Dray, Pods, wait_for
from tests.kubernetes.training import Admin
from tests.rigs.containers import Podman
from tests.rigs.kubernetes.control import ADDRESS
from tests.rigs.registry import PASSWORD, USER, Registry

pytestmark = pytest.mark.kubernetes

PORT = 5000


@pytest.fixture
def registry(pods: Pods) -> str:
    """The name of a registry in the control plane's network, as this machine and the nodes know it:
    with a certificate of the cluster's authority, and a login."""
    control = pods.cluster.control
    made = Registry(
        pods.cluster.folder / "registry", is_private=True, pki=control.pki, name=f"{ADDRESS}:{PORT}"
    )
    control.machine.start("registry", *made.words)
    name = f"127.0.0.1:{control.lead_to('registry-forward', PORT)}"
    told = pods.cluster.folder / "registries" / name
    told.mkdir(parents=True)
    (told / "hosts.toml").write_text(
        f'server = "https://{made.name}"\n[host."https://{made.name}"]\nca = "{control.pki.ca}"\n'
    )
    return name


@pytest.fixture
def laptop(dray: Dray, podman: Podman, registry: str, pods: Pods, tmp_path: Path) -> Dray:
    """Somebody whose podman knows the authority, and has logged in."""
    dray.use(podman.bin)
    trusted = Path(dray.env["HOME"], ".config/containers/certs.d", registry)
    trusted.mkdir(parents=True)
    (trusted / "ca.crt").write_bytes(pods.cluster.control.pki.ca.read_bytes())
    logins = tmp_path / "auth.json"
    logins.write_text("{}")
    dray.env["REGISTRY_AUTH_FILE"] = str(logins)
    words = ["podman", "login", "--username", USER, "--password-stdin", registry]

    def logs_in() -> bool:  # it may just be starting
        return subprocess.run(words, env=dray.env, input=PASSWORD.encode()).returncode == 0

    wait_for(logs_in, 60)
    return dray


def add_pull_secret(pods: Pods, registry: str) -> str:
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "regcred", "namespace": pods.namespace.name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": json.dumps({"auths": {registry: {"auth": login}}})},
    }
    pods.cluster.kubectl("create", "--filename=-", stdin=json.dumps(secret))
    return "regcred"


def test_a_pushed_image_is_pulled_and_run(
    laptop: Dray, pods: Pods, train_image: str, registry: str
) -> None:
    pods.offer(laptop, patch="{}")
    to = f"{registry}/me/train:4"
    name = laptop("image", "push", train_image, "--on", "k8s", "--to", to).stdout.strip()
    assert "@sha256:" in name
    command = ("--image", name, "--", "python3", "/opt/train/train.py", "mine")
    refused = laptop.run("--on", "k8s", *command)
    wait_for(lambda: "its image cannot be pulled" in laptop.show(refused)["reason"], 60)
    laptop("stop", refused)
    pods.offer(laptop, patch="{}", pull_secrets=[add_pull_secret(pods, registry)])
    job = laptop.run("--on", "k8s", *command)
    ended = laptop.wait(job)
    assert ended["state"] == "done", ended["reason"]
    assert laptop.log(job) == "training 0 mine\n"
    (pod,) = Admin(pods).listed("pods", job)
    assert pod["spec"]["containers"][0]["image"] == name
