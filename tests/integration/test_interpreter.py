"""A Python that is carried to where there is none: copied here, and run in an empty root."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.node.formats import interpreters
from dray.node.interpreter import survey
from dray.node.interpreter import tree as trees
from dray.node.interpreter.elf import Elf, NotElf
from dray.programs import shipping
from tests.conftest import Dray
from tests.integration.test_faults import oldest_python
from tests.rigs.host import with_mounts

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, and changes its root")

DEBIANS = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
ENV = "/usr/bin/env"
# The second has /usr/bin/ld.so beside it, which is not that of a copy.
PYTHONS = {"of a venv": sys.executable, "of Debian": DEBIANS, "the oldest": oldest_python()}
CARRY = """
import sys
app, root = sys.argv[1:]
sys.path.insert(0, app)
from dray_node.interpreter import tree
print(tree.carry(root))
"""
SOMEBODY = 54321


def carrying(python: str, root: Path) -> list[str]:
    return [python, "-I", "-S", "-c", CARRY, str(shipping.install(root)), str(root)]


def carry(python: str, root: Path, mounts: list[str] | None = None) -> Path:
    words = carrying(python, root)
    words = with_mounts(mounts, words) if mounts else words
    return Path(subprocess.check_output(words, text=True).strip())


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file, with what changes when it is written again."""
    found = {str(path): path.stat() for path in folder.rglob("*")}
    return {path: (status.st_ino, status.st_mtime_ns) for path, status in found.items()}


class Pod:
    """A root with nothing in it but a volume, and what every container has."""

    def __init__(self, folder: Path, volume: Path) -> None:
        self.root = folder
        for name in ("dev", "proc", "volume"):
            (folder / name).mkdir(parents=True)
        self.mounts = [
            f"--rbind /dev {folder}/dev",
            f"-t proc proc {folder}/proc",
            f"--bind {volume} {folder}/volume",
        ]

    def add_program(self, path: str) -> None:
        """Put a program there, and the libraries that it asks for."""
        libraries = subprocess.check_output(["ldd", path], text=True)
        for file in (path, *re.findall(r"/\S+", libraries)):
            target = self.root / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run the words as the first process there."""
        inside = with_mounts(self.mounts, ["chroot", str(self.root), *words])
        return subprocess.run(
            ["unshare", "--pid", "--fork", "--kill-child", *inside],
            env={"PATH": os.environ["PATH"] + ":/usr/sbin", **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


class Volume:
    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self.tree = carry(python, root)
        self.words = interpreters.words(f"/volume/python/{self.tree.name}")
        self.app = f"/volume/node/{shipping.name()}"


@pytest.fixture(scope="module", params=PYTHONS)
def volume(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Volume]:
    """A root that everybody may read, with a copy of one of this machine's Pythons."""
    made = Volume(tmp_path_factory.mktemp("volume"), PYTHONS[request.param])
    yield made
    shutil.rmtree(made.tree)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A root of its own; pytest would keep the copies for a while."""
    yield tmp_path / "root"
    shutil.rmtree(tmp_path / "root")


@pytest.fixture
def pod(tmp_path: Path, volume: Volume) -> Pod:
    return Pod(tmp_path / "pod", volume.root)


PROBE = """
import ctypes, hashlib, json, os, socket, ssl, subprocess, sys, threading, zlib
sys.path.insert(0, sys.argv[1])
from dray_node.formats import interpreters, web
from dray_node.processes import process

def answer_of_child():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b"forked")
        os._exit(0)
    os.wait()
    return os.read(reader, 100).decode()

def answer_of_thread():
    said = []
    thread = threading.Thread(target=said.append, args=("threaded",))
    thread.start()
    thread.join()
    return said[0]

def answer_over_network():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    client = socket.create_connection(server.getsockname())
    server.accept()[0].sendall(b"networked")
    return client.recv(100).decode()

def answer_of_another():
    words = interpreters.python_words() + ["-I", "-S", "-c", "import ctypes; print('another')"]
    return subprocess.check_output(words).decode().strip()

process.adopt_orphans()
subreaper = ctypes.c_int()
ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)
with open("/proc/self/maps") as file:
    mapped = {line.split(None, 5)[5].strip() for line in file if "/" in line}
print(json.dumps({
    "pid": os.getpid(),
    "root": sorted(os.listdir("/")),
    "answers": [answer_of_child(), answer_of_thread(), answer_over_network(), answer_of_another()],
    "subreaper": subreaper.value,
    "digest": hashlib.sha256(zlib.decompress(zlib.compress(b"x" * 1000))).hexdigest(),
    "authorities": len(web.trust().get_ca_certs()),
    "words": interpreters.python_words(),
    "mapped": sorted(mapped),
    "environ": dict(os.environ),
}))
"""


@needs_root
def test_a_copy_runs_where_there_is_nothing_else(pod: Pod, volume: Volume) -> None:
    """Not even a C library; and what an image says about libraries and Pythons does not reach it,
    but reaches what it starts."""
    (pod.root / "odd").mkdir()
    for name in ("libc.so.6", "libm.so.6", "libz.so.1"):
        (pod.root / "odd" / name).write_text("of another image")
    said = {"LD_LIBRARY_PATH": "/odd", "PYTHONHOME": "/odd", "PYTHONPATH": "/odd"}
    ended = pod.run(*volume.words, "-I", "-S", "-c", PROBE, volume.app, **said)
    assert (ended.stderr, ended.returncode) == ("", 0)
    told = json.loads(ended.stdout)
    assert told["pid"] == 1
    assert told["root"] == ["dev", "odd", "proc", "volume"]
    assert told["answers"] == ["forked", "threaded", "networked", "another"]
    assert told["subreaper"] == 1
    assert told["digest"] == hashlib.sha256(b"x" * 1000).hexdigest()
    assert told["authorities"] > 0
    assert told["words"] == volume.words
    assert all(path.startswith("/volume/python/") for path in told["mapped"])
    assert said.items() <= told["environ"].items()
    assert told["environ"].keys() - said.keys() <= {
        "PATH",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "LC_CTYPE",
    }


@needs_root
def test_the_node_side_is_started_by_it(pod: Pod, volume: Volume) -> None:
    """In the C locale, Python 3.6 has to start itself again."""
    ended = pod.run(*volume.words, "-I", "-S", volume.app, "nonsense", LC_ALL="C")
    assert (ended.returncode, ended.stderr.split()[:2]) == (2, ["usage:", "dray-node"])


KEEP = """
import json, os, subprocess, sys, time
app, folder = sys.argv[1:]
sys.path.insert(0, app)
from dray_node.formats import files, interpreters
from dray_node.jobs.jobdir import JobDir
from dray_node.schedulers.queue import Queue

job_dir = JobDir(folder)
alive = files.open_lock(job_dir.alive)
assert files.try_lock(alive)
ticket = Queue(job_dir.root).take_ticket(job_dir.id, job_dir.description()["resources"])
words = interpreters.python_words() + ["-I", "-S", app, "keep", folder, str(alive), str(ticket)]
subprocess.check_call(words, pass_fds=(alive, ticket))
os.close(alive), os.close(ticket)
for _ in range(600):
    if files.exists(job_dir.end):
        break
    time.sleep(0.1)
print(json.dumps(files.read_record(job_dir.end)))
"""


@needs_root
def test_a_job_runs_in_an_image_without_python(dray: Dray, tmp_path: Path, volume: Volume) -> None:
    """A whole job: its command is the one program of the image, with libraries of its own. It
    inherits nothing of the copy's."""
    job = dray.run("--", ENV)
    assert dray.wait(job)["state"] == "done"  # here; and now once more, as if it had not begun
    folder = dray.job_dir(job)
    (folder / "end.json").unlink()
    shutil.rmtree(folder / "attempts")
    pod = Pod(tmp_path / "pod", dray.jobs.parent)
    (dray.jobs.parent / "python").mkdir()
    pod.mounts.append(f"--bind {volume.root}/python {pod.root}/volume/python")
    pod.add_program(ENV)
    ended = pod.run(*volume.words, "-I", "-S", "-c", KEEP, volume.app, f"/volume/jobs/{job}")
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert json.loads(ended.stdout)["state"] == "done"
    env = dict(line.split("=", 1) for line in dray.log(job).splitlines())
    assert env["DRAY_JOB_ID"] == job
    assert not [name for name in env if name.startswith("LD_")]
    assert [name for name in env if name.startswith("PYTHON")] == ["PYTHONPATH"]
    assert "/volume/python/" not in "".join(env.values())


# -- making ---------------------------------------------------------------------------------------


def test_everybody_may_read_it_and_nobody_else_may_write(volume: Volume) -> None:
    for path in (volume.tree.parent, volume.tree, *volume.tree.rglob("*")):
        assert not path.is_symlink()
        is_run = path.is_dir() or path.name.endswith(".so") or ".so." in path.name
        mode = 0o755 if is_run or path.name == "python3" else 0o644
        assert (path, stat.S_IMODE(path.stat().st_mode)) == (path, mode)


@needs_root
def test_another_user_runs_it(pod: Pod, volume: Volume) -> None:
    volume.root.chmod(0o755)
    program = "import os, ssl, ctypes; print(os.getuid())"
    become = f"os.setgid({SOMEBODY}); os.setuid({SOMEBODY}); os.execv(sys.argv[1], sys.argv[1:])"
    words = [*volume.words, "-I", "-S", "-c"]
    ended = pod.run(*words, "import os, sys; " + become, *words, program)
    assert (ended.stdout, ended.stderr) == (f"{SOMEBODY}\n", "")


def test_it_is_made_once(root: Path) -> None:
    tree = carry(DEBIANS, root)
    before = snapshot(tree)
    assert carry(DEBIANS, root) == tree
    assert snapshot(tree) == before
    assert [one.name for one in tree.parent.iterdir()] == [tree.name]


def test_a_copy_is_not_copied(root: Path, tmp_path: Path) -> None:
    """An agent may run in a job's own image, with the copy that is there."""
    tree = carry(DEBIANS, root)
    app = str(shipping.install(root))
    words = [*interpreters.words(str(tree)), "-I", "-S", "-c", CARRY, app]
    assert subprocess.check_output([*words, root], text=True) == f"{tree}\n"
    ended = subprocess.run([*words, tmp_path / "other"], stderr=subprocess.PIPE, text=True)
    assert "is a copy itself: start the agent with the Python of its image" in ended.stderr


def test_several_agents_make_the_same_one_at_once(root: Path) -> None:
    words = carrying(DEBIANS, root)
    makers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = {maker.communicate(timeout=100)[0] for maker in makers}
    (tree,) = (root / "python").iterdir()
    assert said == {f"{tree}\n"}


def test_a_killed_maker_leaves_nothing_that_is_used(root: Path) -> None:
    """Killed when all is written, and nothing has been tried yet."""
    kill = "import os; tree.check = lambda *_: os.kill(os.getpid(), 9)\nprint("
    words = [word.replace("print(", kill) for word in carrying(DEBIANS, root)]
    assert subprocess.call(words) == -signal.SIGKILL
    place = root / "python"
    (half,) = place.iterdir()
    assert (half / "bin/python3").exists()
    tree = carry(DEBIANS, root)
    assert tree != half
    assert half.exists()  # somebody may be at work there
    os.utime(half, (0, 0))
    assert carry(DEBIANS, root) == tree
    assert list(place.iterdir()) == [tree]


def test_old_copies_that_no_job_needs_are_removed(root: Path) -> None:
    tree = carry(DEBIANS, root)
    now = time.time()
    assert trees.remove_unused(str(root), [], now - 3600) == []
    assert trees.remove_unused(str(root), [str(tree)], now + 3600) == []
    os.utime(tree, (0, 0))
    assert carry(DEBIANS, root) == tree  # which tells that it is in use
    assert trees.remove_unused(str(root), [], now - 3600) == []
    assert trees.remove_unused(str(root), [], now + 3600) == [str(tree)]
    assert list(tree.parent.iterdir()) == []


def library_of(tree: Path, name: str) -> str:
    """Return the file that a library of the tree was copied from."""
    record: dict[str, Any] = json.loads((tree / "made-from.json").read_text())
    (found,) = [path for path in record["files"] if os.path.basename(path).startswith(name)]
    return found


@needs_root
def test_another_library_makes_another_tree(root: Path, tmp_path: Path) -> None:
    tree = carry(DEBIANS, root)
    library = library_of(tree, "libz.so")
    for name, content in (("same", b""), ("newer", b"of a newer package")):
        (tmp_path / name).write_bytes(Path(library).read_bytes() + content)
    assert carry(DEBIANS, root, [f"--bind {tmp_path}/same {library}"]) == tree
    other = carry(DEBIANS, root, [f"--bind {tmp_path}/newer {library}"])
    assert other != tree
    assert (other / "lib/libz.so.1").read_bytes().endswith(b"of a newer package")
    assert carry(DEBIANS, root) == tree


@needs_root
def test_a_volume_without_programs_is_told(root: Path) -> None:
    shipping.install(root)
    words = carrying(DEBIANS, root)
    mount = f"-t tmpfs -o noexec,mode=700 none {root}/python"
    (root / "python").mkdir()
    look = 'status=0; "$@" || status=$?; ls -A "$0"; exit $status'
    words = ["sh", "-c", look, str(root / "python"), *words]
    ended = subprocess.run(with_mounts([mount], words), capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.returncode) == ("", 1)
    assert "does not run (is its volume mounted with noexec?)" in ended.stderr


@needs_root
def test_what_somebody_else_has_made_is_not_used(root: Path) -> None:
    tree = carry(DEBIANS, root)
    os.chown(tree, SOMEBODY, SOMEBODY)
    ended = subprocess.run(carrying(DEBIANS, root), stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert f"{tree} belongs to user {SOMEBODY}, so nothing below it is run" in ended.stderr


# -- parts ----------------------------------------------------------------------------------------


ASK_WORDS = """
import sys
sys.path.insert(0, sys.argv[1])
from dray.node.formats import interpreters
print(interpreters.python_words(), interpreters.certificates())
"""


@pytest.mark.parametrize("python", PYTHONS.values())
def test_a_python_of_the_machine_starts_itself_as_ever(python: str) -> None:
    source = str(Path(interpreters.__file__).parents[3])
    said = subprocess.check_output([python, "-I", "-S", "-c", ASK_WORDS, source], text=True)
    assert said == f"['{python}'] None\n"


def test_all_that_the_node_side_imports_is_compiled() -> None:
    """And can be imported in the copy, or else it is not used. What speaks to Ray runs in the
    Python of Ray's cluster, and what asks Optuna in the command's: never in a copy."""
    imported = set()
    for path in Path(interpreters.__file__).parents[1].rglob("*.py"):
        if path.parent.name == "ray" or path.name.startswith(("ray", "optuna_child")):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add(str(node.module))
    assert imported - {"dray_node.__main__"} <= set(survey.MODULES)


MAKE_LIBRARIES = """
echo 'int number(void) { return 1; }' | cc -shared -x c - -o image/libnumber.so
echo 'int number(void) { return 2; }' | cc -shared -x c - -o copy/libnumber.so
echo 'int number(void); int main(void) { return number(); }' | \
    cc -x c - -Lcopy -lnumber -Wl,--disable-new-dtags,-rpath,$PWD/image -o program
"""


def test_no_folder_of_an_image_comes_before_the_copys_own(tmp_path: Path) -> None:
    """An old-style search path in a program is looked at before all others."""
    if shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    for name in ("image", "copy"):
        (tmp_path / name).mkdir()
    subprocess.run(["sh", "-eu", "-c", MAKE_LIBRARIES], cwd=tmp_path, check=True)
    program = tmp_path / "program"
    env = {"LD_LIBRARY_PATH": str(tmp_path / "copy")}
    assert subprocess.call([program], env=env) == 1
    program.write_bytes(Elf(program.read_bytes()).without_search_paths())
    assert subprocess.call([program], env=env) == 2


@pytest.mark.parametrize("length", [0, 3, 4, 16, 63, 64, 100, 1000])
def test_what_is_no_whole_program_is_refused(length: int) -> None:
    content = Path(DEBIANS).read_bytes()
    with pytest.raises(NotElf):
        Elf(content[:length])
    with pytest.raises(NotElf):
        Elf(b"#!/bin/sh\n" + content)
