"""dray ssh: the real OpenSSH, scp, sftp and rsync, into real jobs."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pexpect
import pytest

from dray.node.sessions import frames
from tests.conftest import Dray, Hpc, Pods, wait_for
from tests.rigs.containers import Apptainer
from tests.rigs.processes import free_ports
from tests.rigs.ssh import Sshd
from tests.sessions.conftest import WAITING, Enter, Inside
from tests.sessions.test_distrust import BECOME, HELLO
from tests.sessions.test_exec import TELL

pytestmark = pytest.mark.sessions
KINDS = ["local", "hpc", "box"]
Ended = subprocess.CompletedProcess[bytes]


class Far:
    """A job, for the user's own ssh, scp, sftp and rsync."""

    def __init__(self, inside: Inside, suffix: str = ".dray") -> None:
        self.inside = inside
        self.host = inside.job + suffix
        self.env = inside.dray.env
        self.config = Path(self.env["HOME"], ".ssh/config")
        inside.dray("ssh", "--config")
        self.keys = Path(self.env["DRAY_HOME"], "ssh/jobs", self.host)

    def program(self, name: str, *words: str, given: bytes = b"") -> Ended:
        """OpenSSH finds ~ by the password file, not by HOME: a test's config is named instead."""
        return subprocess.run(
            [name, "-F", str(self.config), *words],
            cwd="/",  # nowhere near the project
            env=self.env,
            input=given,
            capture_output=True,
            timeout=100,
            check=False,
        )

    def ssh(self, *words: str, given: bytes = b"", flags: tuple[str, ...] = ()) -> Ended:
        return self.program("/usr/bin/ssh", *flags, self.host, *words, given=given)

    def output(self, *words: str) -> str:
        ended = self.ssh(*words)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.decode()

    @contextmanager
    def staying(self) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A session that stays open, and its private folder on the node."""
        pipe = subprocess.PIPE
        words = ["/usr/bin/ssh", "-F", str(self.config), self.host, "echo in; cat"]
        with subprocess.Popen(words, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"in\n"
            (place,) = self.folder().glob("beside-*")
            yield process, place

    def folder(self) -> Path:
        """Where the job's private folder is on its node."""
        door = self.inside.dray.jobs / self.inside.job / "attempts/001/door.json"
        return Path(json.loads(door.read_text())["socket"]).parent


@pytest.fixture
def cluster(request: pytest.FixtureRequest, dray: Dray) -> str:
    if request.param != "local":
        hpc: Hpc = request.getfixturevalue("hpc")
        (hpc.offer if request.param == "hpc" else hpc.offer_box)(dray)
    return str(request.param)


everywhere = pytest.mark.parametrize("cluster", KINDS, indirect=True)


@pytest.fixture
def behind_a_bastion(dray: Dray, hpc: Hpc, rig_folder: Path) -> Iterator[Hpc]:
    """The cluster, whose login node is reached through a jump host, and forwards nothing."""
    jump = Sshd(rig_folder / "jump", {}, forwards=True)
    jump.start()
    try:
        hpc.offer(dray)
        ours, theirs = jump.folder / "ssh_config", hpc.sshd.folder / "ssh_config"
        ours.write_text(
            ours.read_text().replace("Host hpc", "Host jump").replace("Alias hpc", "Alias jump")
            + f"Host hpc\n  ProxyJump jump\n{theirs.read_text().partition(chr(10))[2]}"
        )
        known = jump.folder / "known_hosts"
        known.write_text(known.read_text().replace("hpc ", "jump ", 1))
        dray.use(jump.bin)
        sockets = rig_folder / "j"
        sockets.mkdir(mode=0o700)
        dray.env["XDG_RUNTIME_DIR"] = str(sockets)
        yield hpc
        for one in sockets.glob("dray-*/*"):
            words = ["/usr/bin/ssh", "-o", f"ControlPath={one}", "-O", "exit", "hpc"]
            subprocess.run(words, capture_output=True, check=False)
        shutil.rmtree(sockets)
    finally:
        jump.stop()


# -- what it is for --------------------------------------------------------------------------------


@everywhere
def test_a_session_sees_what_the_command_sees(cluster: str, running: Enter) -> None:
    inside = running(
        cluster, "--env", 'MINE=it\'s "two" $words', "--secret", "TOKEN", TOKEN="line\nbreak"
    )
    far = Far(inside)
    told = json.loads(far.output(f"python3 -c {shlex.quote(TELL)} 'a  b'"))
    words, env, folder = told
    assert words == ["a  b"]
    assert (env["MINE"], env["TOKEN"]) == ('it\'s "two" $words', "line\nbreak")
    assert (env["DRAY_JOB_ID"], env["DRAY_ATTEMPT"]) == (inside.job, "1")
    assert folder == env["DRAY_CODE"]
    assert not {"dray_folder", "SSH_ORIGINAL_COMMAND", "BASH_ENV"} & set(env)
    if cluster == "hpc":
        assert env["SLURM_JOB_ID"]
    given = os.urandom(2_000_000)
    ended = far.ssh("cat; exit 7", given=given)
    assert (ended.returncode, ended.stdout) == (7, given)
    ours = inside.dray("ssh", inside.job, "--", "echo $DRAY_JOB_ID; exit 5", check=False)
    assert (ours.returncode, ours.stdout.strip()) == (5, inside.job)


def test_a_compute_node_behind_a_bastion(
    behind_a_bastion: Hpc, running: Enter, tmp_path: Path
) -> None:
    """With TCP forwarding off on the login node: files both ways, and ports."""
    far = Far(running("hpc"))
    assert b"hpc" in far.program("/usr/bin/ssh", "-G", "hpc").stdout
    for number in range(20):
        (tmp_path / "tree" / str(number)).mkdir(parents=True)
        (tmp_path / "tree" / str(number) / "a b").write_bytes(os.urandom(50_000))
    words = ["rsync", "-a", "-e", f"/usr/bin/ssh -F {far.config}", f"{tmp_path}/tree"]
    copied = subprocess.run(
        [*words, f"{far.host}:"], env=far.env, capture_output=True, timeout=100, check=False
    )
    assert copied.returncode == 0, copied.stderr
    assert far.output("ls tree | wc -l").strip() == "20"  # in the job's work tree
    back = far.program("/usr/bin/scp", "-r", f"{far.host}:tree/7", str(tmp_path / "back"))
    assert back.returncode == 0, back.stderr
    sent = (tmp_path / "tree/7/a b").read_bytes()
    assert (tmp_path / "back/a b").read_bytes() == sent
    batch = f'get "tree/8/a b" {tmp_path}/by-sftp\nput {tmp_path}/by-sftp sent\n'.encode()
    ended = far.program("/usr/bin/sftp", "-b", "-", far.host, given=batch)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "by-sftp").read_bytes() == (tmp_path / "tree/8/a b").read_bytes()
    assert "sent" in far.output("ls").split()
    serves(far)


def serves(far: Far) -> None:
    """A port of the node, through ssh -L."""
    here, there = free_ports(2)
    server = "import socket; s = socket.create_server(('127.0.0.1', %d)); print('up', flush=True)\n"
    server += "c, _ = s.accept(); c.sendall(c.recv(99)[::-1]); c.close()"
    forward = ("-L", f"127.0.0.1:{here}:127.0.0.1:{there}")
    script = f"python3 -c {shlex.quote(server % there)}"
    with subprocess.Popen(
        ["/usr/bin/ssh", "-F", str(far.config), *forward, far.host, script],
        env=far.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        with socket.create_connection(("127.0.0.1", here), timeout=30) as near:
            near.sendall(b"forwards")
            assert near.recv(99) == b"sdrawrof"
        assert process.wait(60) == 0


def test_as_vs_code_does_it(running: Enter) -> None:
    """A script on stdin that starts a server, which stays, and a SOCKS proxy to reach it by; then
    all of it again on another connection."""
    far = Far(running("local"))
    socks, there = free_ports(2)
    server = f"import socket; s = socket.create_server(('127.0.0.1', {there}))\n"
    server += "while True: c, _ = s.accept(); c.sendall(b'from the node'); c.close()"
    start = f"nohup python3 -c {shlex.quote(server)} >/dev/null 2>&1 &\necho listening\n"
    assert far.ssh("sh", given=start.encode(), flags=("-T",)).stdout == b"listening\n"
    words = [
        "/usr/bin/ssh",
        "-F",
        str(far.config),
        "-T",
        "-D",
        f"127.0.0.1:{socks}",
        far.host,
        "sh",
    ]
    with subprocess.Popen(
        words, env=far.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"echo $DRAY_JOB_ID\n")
        process.stdin.flush()
        assert process.stdout.readline().decode().strip() == far.inside.job
        assert through_socks(socks, there) == b"from the node"
        process.stdin.write(b"exit 3\n")
        process.stdin.close()
        assert process.wait(60) == 3


def through_socks(port: int, there: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as near:
        near.sendall(b"\5\1\0")
        assert near.recv(2) == b"\5\0"
        near.sendall(b"\5\1\0\1" + socket.inet_aton("127.0.0.1") + there.to_bytes(2, "big"))
        assert near.recv(10)[:2] == b"\5\0"
        received = b""
        while piece := near.recv(100):
            received += piece
        return received


@everywhere
def test_a_terminal(cluster: str, running: Enter) -> None:
    inside = running(cluster)
    shell = pexpect.spawn(
        sys.executable,
        ["-m", "dray", "ssh", inside.job],
        cwd=str(inside.dray.project),
        env={**inside.dray.env, "TERM": "xterm"},
        encoding="utf-8",
        timeout=60,
        dimensions=(31, 97),
    )
    shell.sendline("PS1='RD''Y> '; stty -echo; echo $TERM; stty size; tty")
    for wanted in ("xterm", "31 97", "/dev/pts", "RDY> "):
        shell.expect_exact(wanted)
    shell.sendline("echo [$DRAY_JOB_ID]; exit 6")
    shell.expect_exact(f"[{inside.job}]")
    shell.expect(pexpect.EOF)
    shell.close()
    assert shell.exitstatus == 6


def test_functions_of_the_environment_come_along(dray: Dray, hpc: Hpc, running: Enter) -> None:
    """As the command 'module' of many clusters is one; what bash reads first can say what it
    likes."""
    noise = dray.write("noise", "echo noise\n")
    setup = [
        f"export SLURM_TMPDIR={hpc.slurm.scratch} BASH_ENV={noise}",
        'module() { echo "loaded $1"; }',
        "export -f module",
    ]
    hpc.offer(dray, setup=setup)
    far = Far(running("hpc"))
    assert far.output("BASH_ENV= bash -c 'module cuda'").splitlines()[-1] == "loaded cuda"
    assert f"BASH_ENV={noise}" in far.output("env").splitlines()


def test_as_an_ordinary_user_of_another_name(dray: Dray, ordinary_hpc: Hpc, running: Enter) -> None:
    """sshd without root; and ssh finds out as whom to log in."""
    ordinary_hpc.offer(dray)
    user = ordinary_hpc.host.user
    far = Far(running("hpc"))
    assert far.output("id -un").strip() == user
    assert far.output("id -un").strip() == user  # as remembered
    assert dray("ssh", far.inside.job, "--", "id -un").stdout.strip() == user
    refused = far.ssh("true", flags=("-l", "nobody"))
    assert refused.returncode == 255
    assert f"runs as {user} there" in refused.stderr.decode() or b"lets nobody in" in refused.stderr


def test_two_that_begin_at_once(running: Enter) -> None:
    far = Far(running("local"))
    with ThreadPoolExecutor(4) as threads:
        ended = list(threads.map(lambda n: far.ssh(f"echo {n}"), range(4)))
    assert [one.stdout for one in ended] == [b"0\n", b"1\n", b"2\n", b"3\n"], ended
    known = far.keys.parent.parent / "known_hosts"
    assert known.read_text().count(far.host) == 1


def test_a_rank_of_its_own(dray: Dray, hpc: Hpc, running: Enter) -> None:
    hpc.offer(dray)
    inside = running("hpc", "--nodes", "2", "--gpus", "2", "--launch", "srun")
    wait_for((dray.jobs / inside.job / "attempts/001/ranks/3.door.json").exists, 60)
    assert Far(inside, ".rank3.dray").output("echo $RANK").strip() == "3"
    assert dray("ssh", "--rank", "2", inside.job, "--", "echo $RANK").stdout.strip() == "2"


# -- its end ---------------------------------------------------------------------------------------


@everywhere
def test_nothing_is_left_of_a_session_or_a_job(cluster: str, running: Enter, dray: Dray) -> None:
    inside = running(cluster)
    far = Far(inside)
    left = far.output("(sleep 98765 >/dev/null 2>&1 & echo $!)").strip()
    door = far.folder()
    wait_for(lambda: [one.name for one in door.iterdir()] == ["s"])  # no key, no pipe
    assert far.output(f"kill -0 {left} && echo alive").strip() == "alive"  # as with any ssh
    staying = subprocess.Popen(
        ["/usr/bin/ssh", "-F", str(far.config), far.host, "echo in; exec sleep 98765"],
        env=far.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert staying.stdout is not None
    assert staying.stdout.readline() == b"in\n"
    assert any(one.name.startswith("beside-") for one in door.iterdir())
    (dray.jobs / inside.job / "outputs/end").touch()
    assert dray.wait(inside.job)["state"] == "done"
    assert staying.communicate(timeout=60)[0] == b""
    assert staying.returncode == 255
    assert not door.exists()
    wait_for(lambda: not Path(f"/proc/{left}").exists())
    assert far.keys.is_dir()
    refused = far.ssh("true")
    assert refused.returncode == 255
    assert b"it has ended: done" in refused.stderr
    assert f"dray run --like {inside.job}".encode() in refused.stderr
    assert not far.keys.exists()
    assert far.host not in (far.keys.parent.parent / "known_hosts").read_text()


# The server alone, with a patience of its own.
STAYING = """
import os, socket, subprocess, sys
from dray.node.sessions import server
server.IDLE, server.TICK = 0.2, 0.1
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1] + "/s")
listening.listen()
subprocess.Popen(["sh", "-c", "sleep 1; touch " + sys.argv[1] + "/done"])
server.Server(listening, {"session": None}).run()
"""


def test_what_was_left_running_is_not_ended_for_lack_of_visitors(tmp_path: Path) -> None:
    """As an editor's own server between two connections; it ends with the attempt."""
    words = [sys.executable, "-c", STAYING, str(tmp_path)]
    assert subprocess.run(words, timeout=60, check=False).returncode == 0
    assert (tmp_path / "done").exists()


def test_keys_are_private_and_go_with_the_job(dray: Dray) -> None:
    job = dray.run("--", "python3", "-c", WAITING)
    wait_for((dray.jobs / job / "attempts/001/door.json").exists, 60)
    far = Far(Inside(dray, job))
    far.output("true")
    for path in (far.keys, *far.keys.parent.parent.rglob("*")):
        assert not path.stat().st_mode & 0o077, path
    assert b"PRIVATE KEY" in (far.keys / "key").read_bytes()
    (dray.jobs / far.inside.job / "outputs/end").touch()
    dray.wait(far.inside.job)
    dray("rm", far.inside.job)
    assert not far.keys.exists()


# -- who means ill ---------------------------------------------------------------------------------


def test_only_the_jobs_own_key_is_let_in(running: Enter, tmp_path: Path) -> None:
    far = Far(running("local"))
    far.output("true")
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    alone = tmp_path / "config"
    text = (far.keys.parent.parent / "config").read_text()
    alone.write_text(text.replace(str(far.keys.parent / "%h/key"), str(other)))
    words = ["/usr/bin/ssh", "-F", str(alone), far.host, "true"]
    ended = subprocess.run(words, env=far.env, capture_output=True, timeout=100, check=False)
    assert ended.returncode == 255
    assert b"Permission denied (publickey)" in ended.stderr
    assert b"lets nobody in" in ended.stderr


def test_another_server_in_its_place_is_not_believed(running: Enter, tmp_path: Path) -> None:
    """A node that answers with a key of its own."""
    far = Far(running("local"))
    far.output("true")
    for name in ("host_key", "host_key.pub"):
        (far.keys / name).unlink()
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(far.keys / "host_key")]
    subprocess.run(words, check=True)
    ended = far.ssh("true")
    assert ended.returncode == 255
    assert b"Host key verification failed" in ended.stderr


def test_a_node_that_sends_garbage(running: Enter, dray: Dray) -> None:
    inside = running("local")
    far = Far(inside)
    far.output("true")
    fake = dray.home / "fake"
    door = dray.jobs / inside.job / "attempts/001/door.json"
    told = door.read_text()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(fake))
        server.listen()
        door.write_text(json.dumps({**json.loads(told), "socket": str(fake)}))
        threading.Thread(target=send_garbage, args=(server,), daemon=True).start()
        ended = far.ssh("true")
        server.shutdown(socket.SHUT_RDWR)
    door.write_text(told)
    assert ended.returncode == 255
    assert b"\x1b" not in ended.stderr
    assert b"lets nobody in: " in ended.stderr
    assert b"\\x1b[2Jtrust me" in ended.stderr
    users = far.keys.parent.parent / "users"
    assert "ProxyCommand" not in users.read_text()


def send_garbage(server: socket.socket) -> None:
    """Says what no sshd says; as the account, something that is more than a name."""
    with suppress(OSError):
        while True:
            far, _ = server.accept()
            far.sendall(frames.MARK + HELLO + frames.record_frame(1, frames.OPENED, {}))
            said = b"dray: user x\\\n ProxyCommand touch pwned\n\x1b[2Jtrust me\n"
            far.sendall(frames.frame(1, frames.ERRORS, said))
            far.sendall(frames.frame(1, frames.DATA, b"\x1b]0;title\x07\0\xff" * 100 + b"\n"))
            time.sleep(0.5)
            far.sendall(frames.record_frame(1, frames.EXIT, {"code": 255}))
            time.sleep(0.5)
            far.close()


@pytest.mark.parametrize(
    "name",
    [
        "$(touch pwned).dray",
        "`touch pwned`.dray",
        "x'; touch pwned; '.dray",
        "x' || touch pwned || '.dray",
        "--config.dray",
        "x;touch pwned.dray",
    ],
)
def test_a_name_is_never_run(dray: Dray, tmp_path: Path, name: str) -> None:
    """A URL of somebody else's can make git start ssh with any name."""
    dray("ssh", "--config")
    config = Path(dray.env["HOME"], ".ssh/config")
    words = ["/usr/bin/ssh", "-F", str(config), "-o", "BatchMode=yes", "--", name, "true"]
    ended = subprocess.run(
        words, cwd=tmp_path, env=dray.env, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 255
    assert not (tmp_path / "pwned").exists()
    # As an older ssh would, which does not look at names.
    proxy = next(line for line in included(config).splitlines() if "ProxyCommand" in line)
    if "'" not in name:
        line = proxy.split(None, 1)[1].replace("%h", name).replace("%%", "%")
        told = subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, env=dray.env, capture_output=True, check=False
        )
        assert b"is not the name of a job" in told.stderr
    assert not (tmp_path / "pwned").exists()


def included(config: Path) -> str:
    return Path(config.read_text().split('"')[1]).read_text()


def test_nothing_is_left_of_a_server_that_was_killed(running: Enter) -> None:
    inside = running("local", "--secret", "TOKEN", TOKEN="s3cr3t")
    far = Far(inside)
    with far.staying() as (staying, place):
        (server,) = (pid for pid in inside.dray.processes() if "session" in words_of(pid))
        os.kill(server, signal.SIGKILL)
        assert staying.wait(60) == 255
    wait_for(lambda: not place.exists())
    wait_for(lambda: not [pid for pid in inside.dray.processes() if str(place) in words_of(pid)])
    assert far.output("echo again") == "again\n"


def words_of(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_of_the_node_learns_nothing(running: Enter) -> None:
    inside = running("local", "--secret", "TOKEN", TOKEN="s3cr3t")
    far = Far(inside)
    with far.staying() as (staying, place):
        look = "try: print(os.listdir(sys.argv[1]))\nexcept OSError as e: print(e.strerror)"
        words = [sys.executable, "-c", BECOME + look, str(place)]
        seen = subprocess.run(words, capture_output=True, text=True, check=False)
        assert seen.stdout == "Permission denied\n"
        held = [one for one in place.iterdir() if one.is_file() and b"s3cr3t" in one.read_bytes()]
        assert not held
        for pid in inside.dray.processes():
            with suppress(OSError):
                assert b"s3cr3t" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        staying.kill()


# -- the user's own file ---------------------------------------------------------------------------

ODD = {
    "none": None,
    "empty": "",
    "no newline at its end": "Host *\n  ProxyCommand none",
    "blocks": "Match host *.dray\n  Port 2222\nHost *\n\tUser somebody\n  ProxyJump bastion\n",
    "includes": "Include conf.d/*\nINCLUDE=nothing\n\nHost a b *.dray\n  HostName elsewhere\n",
    "not UTF-8": b"# caf\xe9\r\nHost x\r\n  Port 3\r\n",
}


@pytest.mark.parametrize("before", ODD.values(), ids=ODD.keys())
def test_one_line_is_added_once(dray: Dray, before: str | bytes | None) -> None:
    config = Path(dray.env["HOME"], ".ssh/config")
    content = before.encode() if isinstance(before, str) else before or b""
    if before is not None:
        config.parent.mkdir(mode=0o700)
        config.write_bytes(content)
        config.chmod(0o640)
    said = dray("ssh", "--config").stderr
    assert "Include" in said
    first, _, rest = config.read_bytes().partition(b"\n")
    assert first.startswith(b'Include "')
    assert rest == content
    assert config.stat().st_mode & 0o777 == (0o640 if before is not None else 0o600)
    assert config.parent.stat().st_mode & 0o777 == 0o700
    assert "already" in dray("ssh", "--config").stderr
    assert config.read_bytes() == first + b"\n" + content
    seen = subprocess.run(
        ["/usr/bin/ssh", "-F", str(config), "-G", "no-such-1234.dray"],
        env=dray.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert "hostname no-such-1234.dray" in seen
    assert "port 22" in seen
    assert "stricthostkeychecking true" in seen
    assert any(line.startswith("proxycommand ") and "--proxy" in line for line in seen)
    assert not any(line.startswith("proxyjump") for line in seen)


def test_a_link_stays_one_and_a_block_does_not_count(dray: Dray) -> None:
    home = Path(dray.env["HOME"])
    (home / "dotfiles").mkdir()
    (home / ".ssh").mkdir(mode=0o700)
    real = home / "dotfiles/config"
    dray("ssh", "--config", HOME=str(home / "dotfiles"))
    line = (home / "dotfiles/.ssh/config").read_text()
    real.write_text(f"Host x\n  {line}")
    (home / ".ssh/config").symlink_to("../dotfiles/config")
    dray("ssh", "--config")
    assert (home / ".ssh/config").is_symlink()
    assert real.read_text() == f"{line}Host x\n  {line}"


def test_a_file_that_is_not_to_be_changed(dray: Dray) -> None:
    config = Path(dray.env["HOME"], ".ssh/config")
    config.parent.mkdir(mode=0o700)
    config.write_text("Host x\n")
    config.chmod(0o400)
    refused = dray("ssh", "--config", check=False)
    assert refused.returncode == 4
    assert "it is read-only" in refused.stderr
    assert 'at its beginning: Include "' in refused.stderr
    assert config.read_text() == "Host x\n"
    config.unlink()
    os.mkfifo(config)
    assert "named pipe" in dray("ssh", "--config", check=False).stderr


def test_several_that_write_it_at_once(dray: Dray) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: dray("ssh", "--config"), range(6)))
    config = Path(dray.env["HOME"], ".ssh/config")
    assert config.read_text().count("Include") == 1
    assert [one.name for one in config.parent.iterdir()] == ["config"]


# -- editors ---------------------------------------------------------------------------------------


def test_an_editor_opens_the_jobs_folder(running: Enter, dray: Dray) -> None:
    inside = running("local")
    where = inside.output("pwd")
    programs = dray.home / "programs"
    programs.mkdir()
    line = f"code --remote ssh-remote+{inside.job}.dray {where}"
    missing = dray("code", inside.job, check=False)
    assert missing.returncode == 3
    assert line in missing.stderr
    missing = dray("code", "--with", "nosuch", inside.job, check=False)
    assert "there is no program 'nosuch' on this machine" in missing.stderr
    editor = programs / "cursor"
    editor.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{dray.home}/opened\n')
    editor.chmod(0o755)
    dray.use(programs)
    refused = dray("code", inside.job, check=False)
    assert "dray ssh --config adds the line" in refused.stderr
    dray("ssh", "--config")
    dray("code", inside.job)
    words = ["--remote", f"ssh-remote+{inside.job}.dray", where]
    assert (dray.home / "opened").read_text().split() == words
    editor.rename(programs / "my-editor")
    dray("code", "--with", "my-editor", inside.job)


# -- where there is no sshd ------------------------------------------------------------------------


@pytest.mark.containers
def test_an_image_without_a_server(
    dray: Dray, apptainer: Apptainer, train_sif: Path, running: Enter
) -> None:
    dray.use(apptainer.bin)
    dray.write("dray.toml", f'[job]\nimage = "{train_sif}"\n')
    inside = running("local")
    refused = dray("ssh", inside.job, "--", "true", check=False)
    assert refused.returncode == 4
    assert f"there is no sshd in the image of {inside.job}" in refused.stderr
    for other in ("dray shell", "dray exec", "dray forward", "dray ssh --host"):
        assert other in refused.stderr
    outside = dray("ssh", "--host", inside.job, "--", "echo [$TRAIN_HOME] $DRAY_JOB_ID")
    assert outside.stdout.split() == ["[]", inside.job]
    assert Far(inside, ".host.dray").output("echo [$TRAIN_HOME]").strip() == "[]"


@pytest.mark.containers
def test_a_server_in_the_image(
    dray: Dray, ordinary_hpc: Hpc, apptainer: Apptainer, running: Enter
) -> None:
    """The programs of this machine, as an image that has an sshd, for an ordinary user."""
    ordinary_hpc.offer(dray)
    image = ordinary_hpc.home / "image"
    make_image(image)
    ordinary_hpc.host.hand_over(image)
    apptainer.offer_in(ordinary_hpc.bin)
    binds = '[job.container]\nbinds = ["/usr:/usr:ro"]\n'
    dray.write("dray.toml", f'[job]\nimage = "{image}"\n{binds}')
    inside = running("hpc", "--secret", "TOKEN", TOKEN="it's")
    far = Far(inside)
    seen = far.output('echo "$TOKEN" $TRAIN_HOME $SLURM_JOB_PARTITION; pwd; id -un').split()
    user = ordinary_hpc.host.user
    assert seen == ["it's", "/opt/train", *seen[2:-2], inside.output("pwd"), user]
    given = os.urandom(200_000)
    assert far.ssh("cat", given=given).stdout == given
    assert Far(inside, ".host.dray").output("echo [$TRAIN_HOME]").strip() == "[]"
    (ordinary_hpc.bin / "apptainer").unlink()


def make_image(image: Path) -> None:
    for name in ("usr", "etc", "tmp", "proc", "dev", "dray", "run", "var/tmp", "sys", "root"):
        (image / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (image / name).symlink_to(f"usr/{name}")
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", image / "etc" / name)
    own = image / ".singularity.d/env/90-environment.sh"
    own.parent.mkdir(parents=True)
    own.write_text("export TRAIN_HOME=/opt/train\n")


@pytest.mark.kubernetes
def test_a_pod_without_a_server(dray: Dray, pods: Pods, running: Enter) -> None:
    pods.offer(dray, image="registry.local/python:1")
    inside = running("k8s")
    refused = dray("ssh", inside.job, "--", "true", check=False)
    assert refused.returncode == 4
    assert "there is no sshd" in refused.stderr
    assert f"dray shell {inside.job}" in refused.stderr
    assert "kubectl exec" in dray("doctor", "k8s").stdout


# -- which way it is -------------------------------------------------------------------------------


@everywhere
def test_doctor_tells_the_way_and_when_it_was_used(
    cluster: str, running: Enter, dray: Dray
) -> None:
    way = {"local": "a socket of this machine", "hpc": "srun --overlap", "box": "a login on hpc"}
    before = finding(dray, cluster)
    assert way[cluster] in before
    assert "not used yet" in before
    inside = running(cluster)
    inside.output("true")
    assert f"into {inside.job}" in finding(dray, cluster)


def finding(dray: Dray, cluster: str) -> str:
    told = json.loads(dray("doctor", "--json", cluster, check=False).stdout)
    (found,) = [one for one in told if one["what"] == "sessions"]
    assert found["ok"]
    return str(found["detail"])
