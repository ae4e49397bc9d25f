"""What ssh has to know to reach a job, and the one line in the user's own file that leads there."""

from __future__ import annotations

import glob
import os
import re
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from dray import plain_files
from dray.errors import Refused
from dray.node.formats import files
from dray.sessions.ssh.keys import KEY, USER, Keys
from dray.sessions.ssh.names import DOMAIN

OWN = "~/.ssh/config"
HOMES = ("DRAY_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
UNUSABLE = re.compile(r"[\"'%\n\r\\]|\$\{")  # ssh would not take it literally
NOT_IN_A_LINE = re.compile(r"[\"\n\r\\]")
# A name with a quote in it would end the quotes that keep a name from being run: no job's is so.
NO_QUOTES = "!*'*"
SECONDS = 100  # until the server answers: a scheduler may be slow to lead there
ABOUT = """\
# Written by dray ssh --config, and written anew by the next: JOB.dray is a running job.
"""


# -- pure -----------------------------------------------------------------------------------------


def own_command(*words: str) -> str:
    """Return a command line that starts dray from anywhere, as the user's shell takes it."""
    homes = [f"{name}={os.environ[name]}" for name in HOMES if os.environ.get(name)]
    argv = [*(["env", *homes] if homes else []), sys.executable, "-P", "-m", "dray", *words]
    return shlex.join(argv).replace("%", "%%")


def options(keys: Keys) -> list[tuple[str, str]]:
    """Return the settings for jobs' hosts, which ssh calls %h. The first value that ssh meets
    counts: what the user has set for all hosts must not change these."""
    return [
        ("HostName", "%h"),
        ("Port", "22"),
        ("ProxyCommand", f"{own_command('ssh', '--proxy', '--')} '%h'"),
        ("IdentityFile", quoted(keys.jobs / "%h" / KEY)),
        ("IdentitiesOnly", "yes"),
        ("IdentityAgent", "none"),
        ("PreferredAuthentications", "publickey"),
        ("UserKnownHostsFile", quoted(keys.known_hosts)),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("HostKeyAlgorithms", "ssh-ed25519"),
        ("StrictHostKeyChecking", "yes"),
        ("UpdateHostKeys", "no"),
        ("CheckHostIP", "no"),
        ("CanonicalizeHostname", "no"),
        ("AddKeysToAgent", "no"),
        # What lets the node use something of this machine is asked for by name: ssh -A.
        ("ForwardAgent", "no"),
        ("ForwardX11", "no"),
        ("ForwardX11Trusted", "no"),
        ("Tunnel", "no"),
        ("ConnectTimeout", str(SECONDS)),
    ]


def quoted(path: Path) -> str:
    return f'"{path}"'


def include_text(keys: Keys) -> str:
    """Write dray's own file. The account that a job runs as is found before ssh needs it, once."""
    is_known = f"test -s '{keys.jobs}/%h/{USER}'"
    prepare = f"{is_known} || {own_command('ssh', '--prepare', '--')} '%h'"
    lines = [
        f'Match host "*{DOMAIN},{NO_QUOTES}" exec "{prepare}"',
        f"    Include {quoted(keys.users)}",
        f'Host *{DOMAIN} "{NO_QUOTES}"',
        *(f"    {key} {value}" for key, value in options(keys)),
    ]
    return ABOUT + "\n".join(lines) + "\n"


def include_line(path: Path) -> str:
    return f'Include "{glob.escape(str(path))}"'


def is_included(text: str, path: Path) -> bool:
    """Return whether a config includes the file for every host: before the first block."""
    for line in text.splitlines():
        key, _, value = line.strip().replace("=", " ", 1).replace("\t", " ").partition(" ")
        if key.lower() in ("host", "match"):
            return False
        if key.lower() == "include" and value.strip().strip('"') == glob.escape(str(path)):
            return True
    return False


def with_include(text: str, path: Path) -> str:
    """Put the line first: further down it would belong to somebody's block, and other settings
    would come before it."""
    return text if is_included(text, path) else f"{include_line(path)}\n{text}"


# -- acting ---------------------------------------------------------------------------------------


def path_of(keys: Keys) -> Path:
    """Return where dray's own file is. Raises Refused where ssh could not be told of it."""
    path = keys.folder / "config"
    if UNUSABLE.search(str(path)) or NOT_IN_A_LINE.search(own_command()):
        raise Refused(
            f"ssh cannot be told of {path}, or of {own_command()}: a character means something",
            hint="Set DRAY_HOME to a path of plain characters.",
        )
    return path


def is_set_up(keys: Keys) -> bool:
    """Return whether the user's ssh knows of jobs."""
    path = path_of(keys)
    try:
        return path.is_file() and is_included(read_own()[1], path)
    except OSError:
        return False


def set_up(keys: Keys) -> Sequence[str]:
    """Write dray's file, and the line that includes it, where they are not there. Return what was
    changed."""
    path, changed = path_of(keys), []
    with keys.lock():
        text = include_text(keys)
        if not path.is_file() or plain_files.read(path)[0] != text.encode():
            files.write_bytes(str(path), text.encode())
            changed.append(f"{path} is written")
        if add_line(path):
            changed.append(f"{OWN} includes it: {include_line(path)}")
    return changed


def read_own() -> tuple[Path, str]:
    """Return the user's file, where it really is, and its text as it is."""
    own = Path(os.path.realpath(os.path.expanduser(OWN)))
    try:
        return own, plain_files.read(own)[0].decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return own, ""


def add_line(path: Path) -> bool:
    """Add the line to the user's file, which stays as it is otherwise: its mode, and a link to
    it."""
    try:
        own, text = read_own()
        if is_included(text, path):
            return False
        mode = permission_to_write(own)
        content = with_include(text, path).encode("utf-8", "surrogateescape")
        own.parent.mkdir(mode=0o700, exist_ok=True)
        replace(own, content, mode)
    except OSError as error:
        raise Refused(
            f"{OWN} cannot be changed: {error.strerror or error}",
            hint=f"Write this line at its beginning: {include_line(path)}",
        ) from error
    return True


def permission_to_write(own: Path) -> int:
    """Return the mode that the file has, or gets. Raises OSError where its owner wants it to stay
    as it is, or is somebody else."""
    try:
        status = own.stat()
    except FileNotFoundError:
        return files.PRIVATE_FILE
    if status.st_uid != os.getuid():
        raise PermissionError(0, "it belongs to somebody else")
    if not status.st_mode & stat.S_IWUSR:
        raise PermissionError(0, "it is read-only")
    return stat.S_IMODE(status.st_mode)


def replace(path: Path, content: bytes, mode: int) -> None:
    new = path.with_name(f"{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        files.write_bytes(str(new), content)
        new.chmod(mode)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
