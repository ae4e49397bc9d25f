"""The agent's file in a cluster's root: nothing is run there that somebody else could have put."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dray.errors import DrayError, StorageError
from dray.node.formats import bootstrap
from dray.programs import shipping
from dray.transport.channel import Here
from dray.transport.link import AgentLink
from dray.transport.ssh import Ssh

SOMEBODY = 54321
Answers = Callable[[], bool]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture(params=["over a session", "for a job here"])
def use(request: pytest.FixtureRequest, root: Path) -> Answers:
    """Both ways in which the file is put there and run."""

    def ask() -> bool:
        agent = AgentLink(Here(), str(root), sys.executable, "slurm")
        return agent.ask("ids") == {"ids": []}

    def install() -> bool:
        return shipping.install(root).read_bytes().startswith(b"PK")

    return ask if request.param == "over a session" else install


def app(root: Path) -> Path:
    (file,) = (root / "node").glob("*.pyz")
    return file


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def with_another_line(content: bytes) -> bytes:
    return content.replace(b"dray_node.__main__", b"dray_evil.__main__", 1)


@pytest.mark.parametrize("damage", [half, with_another_line, lambda _: b""])
def test_a_damaged_one_is_replaced(
    use: Answers, root: Path, damage: Callable[[bytes], bytes]
) -> None:
    assert use()
    whole = app(root).read_bytes()
    app(root).write_bytes(damage(whole))
    assert app(root).read_bytes() != whole
    assert use()
    assert app(root).read_bytes() == whole


def test_its_name_is_the_hash_of_its_bytes(use: Answers, root: Path) -> None:
    assert use()
    output = subprocess.run(["sha256sum", app(root)], capture_output=True, text=True, check=True)
    assert app(root).name == f"dray-node-{output.stdout[:32]}.pyz"


def test_every_process_builds_the_same(tmp_path: Path) -> None:
    """Whatever else it has imported, and wherever its cache is."""
    found = set()
    for number, first in enumerate(["", "import asyncio, xml.sax, dray.cli.group; "]):
        script = f"{first}from dray.programs import shipping; print(shipping.name())"
        env = {**os.environ, "DRAY_HOME": str(tmp_path / str(number)), "PYTHONHASHSEED": "random"}
        words = [sys.executable, "-c", script]
        found.add(subprocess.run(words, env=env, capture_output=True, check=True).stdout)
    assert len(found) == 1


def test_a_damaged_build_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    env = {**os.environ, "DRAY_HOME": str(tmp_path)}
    code = "from dray.programs import shipping; shipping.remember(); print(shipping.name())"
    words = [sys.executable, "-c", code]
    first = subprocess.run(words, env=env, capture_output=True, check=True).stdout
    (kept,) = (tmp_path / "cache/node").iterdir()
    kept.write_bytes(kept.read_bytes()[:-1])
    assert subprocess.run(words, env=env, capture_output=True, check=True).stdout == first


@pytest.mark.parametrize("place", [".", "node", "file"])
def test_what_others_can_write_is_closed(use: Answers, root: Path, place: str) -> None:
    assert use()
    path = app(root) if place == "file" else root / place
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o022)
    assert use()
    assert not path.stat().st_mode & 0o022


def test_made_private_under_any_umask(use: Answers, root: Path) -> None:
    before = os.umask(0)
    try:
        assert use()
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (root, root / "node", app(root))]
    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("place", ["node", "file"])
def test_a_link_in_its_place_is_refused(use: Answers, root: Path, place: str) -> None:
    assert use()
    path = app(root) if place == "file" else root / place
    path.rename(root / "elsewhere")
    path.symlink_to(root / "elsewhere")
    with pytest.raises(StorageError, match=f"{path} is not a .*: remove it"):
        use()


def test_the_root_may_be_a_link(use: Answers, root: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir(mode=0o755)
    root.symlink_to(tmp_path / "scratch")
    assert use()
    assert app(tmp_path / "scratch").exists()


def test_a_root_of_somebody_elses_is_refused(root: Path, tmp_path: Path) -> None:
    if os.getuid() == 0:
        shipping.install(root)
        os.chown(root, SOMEBODY, SOMEBODY)
        owner = f"user {SOMEBODY}"
    else:
        root, owner = Path("/usr/share"), "root"
    agent = AgentLink(Here(), str(root), sys.executable, "slurm")
    with pytest.raises(StorageError, match=f"{root} belongs to {owner}.*set another root"):
        agent.ask("ids")
    with pytest.raises(StorageError, match=f"{root} belongs to {owner}"):
        shipping.install(root)


@pytest.mark.parametrize("place", ["node", "file"])
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_somebody_else_has_put_there_is_refused(use: Answers, root: Path, place: str) -> None:
    assert use()
    path = app(root) if place == "file" else root / place
    os.chown(path, SOMEBODY, SOMEBODY)
    with pytest.raises(StorageError, match=f"{path} belongs to user {SOMEBODY}"):
        use()


def test_the_owner_is_compared(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for those who cannot give a file away: it is the process that is another's."""
    path = shipping.install(root)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    for act in (
        lambda: bootstrap.check_folder(str(root)),
        lambda: bootstrap.is_whole(str(path)),
    ):
        with pytest.raises(bootstrap.Unsafe, match="belongs to"):
            act()


def test_an_upload_that_is_cut_leaves_nothing(root: Path) -> None:
    content = shipping.app().content
    words = [sys.executable, bootstrap.__file__, str(root), shipping.name(), str(len(content))]
    for sent in (b"", content[:-1]):
        ended = subprocess.run([*words, "agent"], input=sent, capture_output=True)
        assert ended.returncode == 1
        assert list((root / "node").iterdir()) == []


def test_it_passes_any_login_shell() -> None:
    text = shipping.sources()["dray_node/formats/bootstrap.py"].decode("ascii")
    assert not set(text) & {"\\", "!"}
    agent = AgentLink(Ssh("hpc"), "$HOME/.dray", "python3", "slurm")
    (remote,) = agent._argv()[-1:]
    assert "\n" not in remote
    assert len(remote) < 8000  # BSD's csh takes no longer words


def test_the_host_is_never_an_option() -> None:
    words = AgentLink(Ssh("-oProxyCommand=evil"), "/r", "python3", "slurm")._argv(may_ask=False)
    assert words[words.index("-oProxyCommand=evil") - 1] == "--"


def test_a_full_disk_is_told(root: Path, tmp_path: Path) -> None:
    """No more than a few bytes can be written: as on a disk that is full, or a quota."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nulimit -f 8\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    with pytest.raises(DrayError, match=r"File too large.*dray-node-"):
        AgentLink(Here(), str(root), str(program), "slurm").ask("ids")
    assert list((root / "node").iterdir()) == []
