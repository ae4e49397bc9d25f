"""Images go to a real registry with the user's own podman, and come from there by the name that
dray prints: with a certificate of the site's own authority, and with a login."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Dray
from tests.rigs.containers import Podman
from tests.rigs.kubernetes.pki import Pki
from tests.rigs.registry import PASSWORD, USER, Registry

pytestmark = pytest.mark.containers

PUSH = ("image", "push", "dray-train:1", "--on", "pods", "--to")
CLUSTER = '[clusters.pods]\nkind = "kubernetes"\nvolumes = ["pvc:home:/home/me"]\n'


@pytest.fixture
def laptop(dray: Dray, podman: Podman, train_image: str, tmp_path: Path) -> Dray:
    """Somebody whose podman has an image, and who uses a cluster that pulls them."""
    del train_image
    dray.configure(CLUSTER)
    dray.use(podman.bin)
    logins = tmp_path / "auth.json"
    logins.write_text("{}")
    dray.env["REGISTRY_AUTH_FILE"] = str(logins)
    return dray


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Registry]]:
    started: list[Registry] = []

    def one(**settings: object) -> Registry:
        registry = Registry(tmp_path / "registry", **settings)  # type: ignore[arg-type]
        registry.start()
        started.append(registry)
        return registry

    yield one
    for registry in started:
        registry.stop()


def as_user(dray: Dray, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Call podman as the user of this laptop would."""
    return subprocess.run(
        ["podman", *words], env=dray.env, input=stdin, capture_output=True, text=True, check=False
    )


def trust(dray: Dray, registry: Registry) -> None:
    """Take its authority as a user tells podman to."""
    assert registry.pki is not None
    folder = Path(dray.env["HOME"], ".config/containers/certs.d", registry.name)
    folder.mkdir(parents=True)
    (folder / "ca.crt").write_bytes(registry.pki.ca.read_bytes())


def runs_from(dray: Dray, podman: Podman, registry: Registry, name: str) -> None:
    """The printed name is that of what the registry has: a machine without it gets it there."""
    repository, _, digest = name.partition("@")
    assert repository == f"{registry.name}/me/train"
    assert registry.has("me/train", digest)
    podman("rmi", "--force", f"{repository}:4")
    pulled = as_user(dray, "pull", name)
    assert pulled.returncode == 0, pulled.stderr
    said = podman("run", "--rm", name, "python3", "/opt/train/train.py", "mine")
    assert said == "training 0 mine\n"
    podman("rmi", "--force", name)


def test_a_registry_with_a_certificate_of_the_site(
    laptop: Dray, podman: Podman, start: Callable[..., Registry], tmp_path: Path
) -> None:
    registry = start(pki=Pki(tmp_path / "pki"))
    to = f"{registry.name}/me/train:4"
    refused = laptop(*PUSH, to, check=False)
    assert refused.returncode != 0
    assert "certificate signed by unknown authority" in refused.stderr
    assert "Traceback" not in refused.stderr
    trust(laptop, registry)
    pushed = laptop(*PUSH, to)
    assert f'image = "{pushed.stdout.strip()}"' in pushed.stderr
    runs_from(laptop, podman, registry, pushed.stdout.strip())


def test_a_registry_with_a_login(
    laptop: Dray, podman: Podman, start: Callable[..., Registry], tmp_path: Path
) -> None:
    registry = start(pki=Pki(tmp_path / "pki"), is_private=True)
    trust(laptop, registry)
    to = f"{registry.name}/me/train:4"
    refused = laptop(*PUSH, to, check=False)
    assert refused.returncode != 0
    assert "authentication required" in refused.stderr
    assert "'podman login' logs in to a registry" in refused.stderr
    words = ("login", "--username", USER, "--password-stdin", registry.name)
    assert as_user(laptop, *words, stdin="wrong").returncode != 0
    assert as_user(laptop, *words, stdin=PASSWORD).returncode == 0
    pushed = laptop("--verbose", *PUSH, to)
    runs_from(laptop, podman, registry, pushed.stdout.strip())
    for text in (pushed.stdout, pushed.stderr):
        assert PASSWORD not in text


def test_a_registry_without_encryption(
    laptop: Dray, podman: Podman, start: Callable[..., Registry]
) -> None:
    """Only where the user's own podman is told so by name."""
    registry = start()
    to = f"{registry.name}/me/train:4"
    refused = laptop(*PUSH, to, check=False)
    assert refused.returncode != 0
    assert "HTTP" in refused.stderr
    settings = podman.folder / "registries.conf"
    settings.write_text(f'[[registry]]\nlocation = "{registry.name}"\ninsecure = true\n')
    try:
        runs_from(laptop, podman, registry, laptop(*PUSH, to).stdout.strip())
    finally:
        settings.write_text("")
