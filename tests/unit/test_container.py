"""What containers are started with, and what is told of them that do not start."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from dray.node.containers import caches, container, known, local_copy, runtimes
from dray.node.containers.apptainer import Apptainer
from dray.node.containers.enroot import Enroot
from dray.node.containers.runtime import Bind, Runtime, Start, in_order, unusable_path
from dray.node.processes.process import CannotContain

GOLDEN = Path(__file__).parent / "golden"
FOLDER = "/scratch/dray-work-ant-7f3k-1.box-node1/0"
BINDS = [
    Bind(f"{FOLDER}/tmp", "/tmp"),
    Bind(f"{FOLDER}/run", "/dray/run"),
    Bind("/scratch/dray-work-ant-7f3k-1", "/workspace/isaaclab"),
    Bind("/root/jobs/ant-7f3k/outputs", "/root/jobs/ant-7f3k/outputs"),
    Bind("/cluster/data", "/data", read_only=True),
    Bind("/cluster/more", "/data/more"),
]
HOME = (f"{FOLDER}/home", "/dray/home")
PLAIN = {"containall": False, "writable": "no"}


def said(runtime: Runtime, *, gpus: str = "", **wanted: Any) -> list[str]:
    image = f"/images/base.{runtime.format}"
    return runtime.argv(Start({**PLAIN, **wanted}, image, BINDS, FOLDER, HOME, gpus))


APPTAINER = Apptainer("apptainer", "/usr/bin/apptainer")
WITH_SETUID = Apptainer("apptainer", "/usr/bin/apptainer", setuid=True)
SINGULARITY = Apptainer("singularity", "/usr/bin/singularity")
ENROOT = Enroot("enroot", "/usr/bin/enroot")


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("apptainer", said(APPTAINER, gpus="nvidia")),
        ("apptainer-overlay", said(WITH_SETUID, writable="overlay")),
        ("singularity", said(SINGULARITY, gpus="amd", containall=True, writable="tmpfs")),
        ("enroot", said(ENROOT, gpus="nvidia", writable="overlay")),
        ("enroot-read-only", said(ENROOT)),
    ],
)
def test_the_call_is_golden(name: str, argv: list[str]) -> None:
    assert "\n".join(argv) + "\n" == (GOLDEN / f"container-{name}.txt").read_text()


def test_the_shell_becomes_exactly_the_command(tmp_path: Path) -> None:
    every = bytes(range(1, 256))
    env = {
        b"EVERY": every, b"UID": b"7", b"EMPTY": b"", b"IFS": b"x", b"PATH": b"/usr/bin:/bin",
        b"PYTHONPATH": b"/ours", b"LD_LIBRARY_PATH": b"/theirs",
    }  # fmt: skip
    text = container.script([b"env", b"-0"], env, bytes(tmp_path))
    text = text.replace(container.RUN.encode(), bytes(tmp_path))
    for shell in ("dash", "bash"):
        ended = subprocess.run(
            [shell, "-s"],
            input=text,
            env={"PYTHONPATH": "/image's", "OWN": "1"},
            capture_output=True,
            check=True,
        )
        seen = dict(one.split(b"=", 1) for one in ended.stdout.split(b"\0") if one)
        expected = {**env, b"PYTHONPATH": b"/ours:/image's", b"OWN": b"1"}
        assert {name: seen[name] for name in expected} == expected, shell
        assert re.fullmatch(r"started \d+\n", (tmp_path / "said").read_text())


@pytest.mark.parametrize(
    ("argv", "folder", "said"),
    [
        ([b"no-such"], b"/", "no command"),
        ([b"./no-such"], b"/", "no command"),
        ([b"/etc/passwd"], b"/", "no command"),
        ([b"true"], b"/no/such", "no folder"),
    ],
)
def test_the_shell_says_what_is_missing(
    argv: list[bytes], folder: bytes, said: str, tmp_path: Path
) -> None:
    text = container.script(argv, {}, folder).replace(container.RUN.encode(), bytes(tmp_path))
    ended = subprocess.run(["dash", "-s"], input=text, check=False)
    assert ended.returncode == 127
    assert (tmp_path / "said").read_text().strip() == said


# -- binds and variables ------------------------------------------------------------------------


def test_binds_are_read_on_the_node() -> None:
    outside = {"HOME": "/home/me", "SCRATCH": "/scratch"}

    def read(text: str) -> tuple[str, str, bool]:
        bind = container.parse_bind(text, outside, "/dray/home")
        return bind.source, bind.target, bind.read_only

    assert read("/data") == ("/data", "/data", False)
    assert read("~/data:~/data:ro") == ("/home/me/data", "/dray/home/data", True)
    assert read("${SCRATCH}/a:/b:rw") == ("/scratch/a", "/b", False)
    with pytest.raises(KeyError, match="NO_SUCH"):
        read("$NO_SUCH/a")


def test_of_two_binds_for_a_place_the_users_counts_and_folders_come_first() -> None:
    binds = [Bind("/a", "/data/deep/x"), Bind("/ours", "/tmp"), Bind("/b", "/data/")]
    binds += [Bind("/theirs", "/tmp/")]
    found = [(bind.source, bind.target) for bind in in_order(binds)]
    assert found == [("/theirs", "/tmp/"), ("/b", "/data/"), ("/a", "/data/deep/x")]


def test_only_chosen_variables_of_the_node_are_passed() -> None:
    outside = {
        "SLURM_PROCID": "1", "SLURM_TMPDIR": "/x", "PATH": "/x", "https_proxy": "p",
        "LD_LIBRARY_PATH": "/x", "UCX_TLS": "all", "BASH_FUNC_x%%": "()", "NCCL_DEBUG": "INFO",
    }  # fmt: skip
    assert container.passed(outside, ["UCX_*", "BASH*"]) == {
        "SLURM_PROCID": "1", "https_proxy": "p", "UCX_TLS": "all", "NCCL_DEBUG": "INFO",
    }  # fmt: skip


def test_a_path_that_a_runtime_would_take_apart_is_found() -> None:
    assert unusable_path(APPTAINER, [Bind("/a b", "/a b")]) == ""
    assert unusable_path(APPTAINER, [Bind("/ok", "/ok"), Bind("/a,b", "/x")]) == "/a,b"
    assert unusable_path(ENROOT, [Bind("/a b", "/x")]) == "/a b"


# -- what cannot be started ---------------------------------------------------------------------


NO_FUSE = """step 1
\x1b[31mFATAL:  \x1b[0m container creation failed: image driver mount failure: image driver \
squashfuse_ll instance exited with error: fuse: failed to open /dev/fuse: Permission denied
"""
NO_NAMESPACES = """\x1b[91mERROR  : Failed to create user namespace: maximum number exceeded
INFO   : A system administrator may need to enable user namespaces, install
"""


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (NO_FUSE, "open /dev/fuse, or have"),
        (NO_NAMESPACES, ": Failed to create user namespace: maximum number exceeded; user names"),
        ("FATAL:   stat /bin/sh: no such file or directory", "the image has no /bin/sh"),
        ("FATAL:   the image's architecture (arm64) could not run", "build it for these"),
        ("ERROR:   write: no space left on device\nmore", "a disk is full"),
        ("[ERROR] No such file or directory: /x", "container: No such file or directory: /x"),
    ],
)
def test_why_a_container_did_not_start(log: str, told: str) -> None:
    reason = container.why_not_started("apptainer", "", ["x"], "/work", log)
    assert reason.startswith("apptainer could not start the container: ")
    assert told in reason


def test_a_runtime_that_said_nothing() -> None:
    reason = container.why_not_started("enroot", "", ["x"], "/work", "\n")
    assert reason == "enroot could not start the container"


def program(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("there", "wanted", "image", "found"),
    [
        ("apptainer singularity enroot", "auto", "/x.sif", "apptainer"),
        ("singularity enroot", "auto", "/x.sif", "singularity"),
        ("apptainer enroot", "auto", "/x.sqsh", "enroot"),
        ("apptainer", "auto", "/x.sqsh", "apptainer"),
        ("singularity", "auto", "/a/sandbox", "singularity"),
        ("apptainer singularity", "singularity", "/x.sif", "singularity"),
        ("enroot", "auto", "/x.sif", "there is no apptainer or singularity on node1"),
        ("apptainer", "enroot", "/x.sqsh", "there is no enroot on node1"),
    ],
)
def test_the_runtime_is_chosen_by_what_is_there(
    there: str, wanted: str, image: str, found: str, tmp_path: Path
) -> None:
    for name in there.split():
        program(tmp_path / "bin", name)
    outside = {"PATH": str(tmp_path / "bin")}
    if " " in found:
        with pytest.raises(CannotContain, match=found):
            runtimes.find(wanted, image, outside, "node1")
    else:
        assert runtimes.find(wanted, image, outside, "node1").name == found


def test_images_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "x.sif").touch()
    runtimes.check_image(str(tmp_path / "x.sif"), APPTAINER, "node1")
    with pytest.raises(CannotContain, match=r"runs \.sqsh files"):
        runtimes.check_image(str(tmp_path / "x.sif"), ENROOT, "node1")
    with pytest.raises(CannotContain, match=r"gone.sif is not there, seen from node1: push it"):
        runtimes.check_image(str(tmp_path / "gone.sif"), APPTAINER, "node1")


def test_the_file_of_an_image_that_dray_keeps(tmp_path: Path) -> None:
    def name(wanted: str) -> str:
        return Path(runtimes.file_of("sha256:ab", wanted, str(tmp_path))).name

    assert (name("auto"), name("enroot")) == ("ab.sif", "ab.sqsh")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/ab.sqsh").touch()
    assert (name("auto"), name("enroot")) == ("ab.sqsh", "ab.sqsh")


def test_a_container_whose_processes_are_counted_anew() -> None:
    assert APPTAINER.has_own_pids({"containall": True})
    assert not APPTAINER.has_own_pids({"containall": False})
    assert not ENROOT.has_own_pids({"containall": False})
    assert ENROOT.refusal({"containall": True}) == "Enroot has no containall: leave it out"


@pytest.mark.parametrize("runtime", known.RUNTIMES)
def test_a_runtime_declares_all_that_is_asked_of_it(runtime: type[Runtime]) -> None:
    assert runtime.names
    assert runtime.title
    assert f".{runtime.format}" in runtime.endings
    assert runtime.separators
    assert runtime.advice
    assert runtime.converts_layers or runtime.engine_reference("podman", "x")
    assert known.of_format(runtime.format) is runtime
    assert all(known.named(name) is runtime for name in runtime.names)
    call, variables = runtime.conversion("/no/such", "docker://a/b", "/t/image", "/s")
    assert call[0] == "/no/such"
    assert set(variables.values()) == {"/s"}


def test_no_other_file_asks_which_runtime_it_is() -> None:
    source = Path(runtimes.__file__).parents[2]
    own = {source / "node/containers" / f"{name}.py" for name in ("apptainer", "enroot")}
    asks = re.compile(
        r"""(==|!=|\bin\b|is_\w*)\s*\(?["'](apptainer|singularity|enroot)["']|ENROOT\b"""
    )
    asking = [path for path in source.rglob("*.py") if asks.search(path.read_text())]
    assert set(asking) <= own


# -- caches and the node's copy -----------------------------------------------------------------


def test_only_what_changed_comes_back_and_nothing_goes(tmp_path: Path) -> None:
    shared, one, two = (str(tmp_path / name) for name in ("caches/kit", "one", "two"))
    Path(shared, "deep").mkdir(parents=True)
    for name in ("deep/same", "changed", "removed"):
        Path(shared, name).write_text("old")
    before = caches.fetch(shared, one)
    other = caches.fetch(shared, two)
    Path(one, "changed").write_text("of one")
    Path(one, "removed").unlink()
    Path(one, "link").symlink_to("changed")
    Path(two, "deep/new").write_text("of two")
    assert caches.merge(one, shared, before) == 2
    assert caches.merge(two, shared, other) == 1  # it has the old 'changed', and does not say so
    assert Path(shared, "changed").read_text() == "of one"
    assert Path(shared, "deep/new").read_text() == "of two"
    assert Path(shared, "removed").exists()
    assert Path(shared, "link").is_symlink()


def test_of_a_killed_attempt_only_what_was_at_rest_comes_back(tmp_path: Path) -> None:
    shared, own = str(tmp_path / "caches/kit"), str(tmp_path / "own")
    before = caches.fetch(shared, own)
    Path(own, "done").write_text("a shader")
    Path(own, "half").write_text("a sha")
    long_ago = time.time() - 2 * caches.SETTLED
    os.utime(Path(own, "done"), (long_ago, long_ago))
    assert caches.merge(own, shared, before, was_killed=True) == 1
    assert os.listdir(shared) == ["done"]


MOUNTS = [("/", "ext4"), ("/scratch", "ext4"), ("/home", "nfs4"), ("/memory", "tmpfs")]


def test_the_file_system_of_a_path() -> None:
    assert local_copy.file_system("/home/me/x", MOUNTS) == "nfs4"
    assert local_copy.file_system("/homeless", MOUNTS) == "ext4"


def test_an_image_is_copied_from_the_network_to_a_disk_with_room(tmp_path: Path) -> None:
    image = tmp_path / "net/x.sif"
    image.parent.mkdir()
    image.write_text("image")
    (tmp_path / "disk").mkdir()
    mounts = [("/", "ext4"), (str(image.parent), "lustre")]

    def worth(wanted: str, scratch: str = "disk") -> bool:
        return local_copy.is_worth_it(str(image), str(tmp_path / scratch), wanted, mounts)

    assert (worth("auto"), worth("auto", "net"), worth("no")) == (True, False, False)
    mounts = [("/", "ext4")]
    assert (worth("auto"), worth("yes")) == (False, True)


def test_one_copy_for_all_and_it_goes_with_the_last(tmp_path: Path) -> None:
    image = tmp_path / "x.sif"
    image.write_text("image")
    first, second = (local_copy.LocalCopy(str(image), str(tmp_path)) for _ in range(2))
    path = Path(first.take())
    assert path.read_text() == "image"
    stamp = path.stat().st_ino
    assert Path(second.take()).stat().st_ino == stamp
    first.release()
    assert path.exists()
    second.release()
    assert [one.name for one in tmp_path.iterdir()] == ["x.sif"]


def test_a_copy_that_a_killed_job_left_is_swept(tmp_path: Path) -> None:
    image, scratch = tmp_path / "x.sif", tmp_path / "scratch"
    image.write_text("image")
    scratch.mkdir()
    copy = local_copy.LocalCopy(str(image), str(scratch))
    copy.take()
    local_copy.sweep(str(scratch))
    assert Path(copy.path).exists()
    assert copy.held is not None
    os.close(copy.held)  # as a kill does
    local_copy.sweep(str(scratch))
    assert list(scratch.iterdir()) == []
