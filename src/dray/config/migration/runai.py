"""Reads a shell script around ``runai submit``, such as runai_one.sh, without a shell."""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Mapping

from dray.config.migration import pods, shell
from dray.config.migration.found import HANDLED, Found, Gathering, Text, as_number
from dray.errors import ConfigError

WHAT = "a script with runai submit"
BESIDE: tuple[str, ...] = ()
SUBMIT = re.compile(r"^[ \t]*runai[ \t]+(?:training[ \t]+)?submit\b(.*)", re.M)
ASSIGNMENT = re.compile(r"\s*(?:export\s+)?[A-Za-z_]\w*=")
REFERENCE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
SHORT = {"-i": "--image", "-g": "--gpu", "-e": "--environment", "-v": "--volume", "-p": "--project"}
ALONE = (
    "--large-shm", "--interactive", "--command", "--run-as-user", "--preemptible", "--host-ipc",
    "--host-network", "--stdin", "--tty", "--attach", "--create-home-dir",
)  # fmt: skip
COMPUTED = "only the shell that runs the script knows it"
OWN = {
    "--command": HANDLED,
    "--name": HANDLED,
    "--backofflimit": HANDLED,
    "--large-shm": "/dev/shm has half of the job's memory (shm)",
    "--interactive": "jobs are for training; one that may be preempted goes on by itself",
    "--preemptible": "a preempted job goes on by itself",
    "--working-dir": "a job starts in its code",
}
SETTINGS = {
    "--image": "image",
    "--run-as-uid": "uid",
    "--run-as-gid": "gid",
    "--cpu": "cpu",
    "--memory": "memory",
    "--gpu": pods.GPU,
    "--gpu-devices-request": pods.GPU,
    "--gpu-portion-request": pods.GPU,
}


def recognises(text: Text) -> bool:
    return SUBMIT.search(joined(text)) is not None


def read(text: Text, _: Mapping[str, Text]) -> Found:
    into = Gathering(text, kind="kubernetes")
    known = assigned(text, into)
    submit = SUBMIT.search(joined(text))
    try:
        words = shlex.split(submit[1] if submit else "", comments=True)
    except ValueError as error:
        raise ConfigError(f"{text.path}: {error} in the words of runai submit") from error
    variables: dict[str, str] = {}
    volumes: list[str] = []
    left = deque(filled(one, known) for one in words)
    while left:
        take(left, variables, volumes, into)
    if variables:
        into.set("job.env", variables, "-e")
    if volumes:
        into.set("volumes", volumes, "--pvc")
    into.add_note("runai submit", "a Job of Kubernetes takes its place, in the project's namespace")
    return pods.finished(into)


def joined(text: Text) -> str:
    """Return the script with lines that go on in the next one put together."""
    return re.sub(r"\\\n", " ", text.content)


def assigned(text: Text, into: Gathering) -> dict[str, str]:
    """Return the variables that the script sets itself, as far as no shell is needed for that."""
    lines = [one for one in text.content.split("\n") if ASSIGNMENT.match(one)]
    found: dict[str, str] = {}
    for line in lines:
        try:
            known = shell.assignments(Text(text.path, line))
        except ConfigError:
            into.add_note(line.partition("=")[0].strip(), COMPUTED)
            continue
        found.update({name: one.value for name, one in known.items() if not one.computed})
    return found


def filled(word: str, known: Mapping[str, str]) -> str:
    return REFERENCE.sub(lambda one: known.get(one[1] or one[2], one[0]), word)


def take(words: deque[str], variables: dict[str, str], volumes: list[str], into: Gathering) -> None:
    """Take a flag and its value from the front."""
    word = words.popleft()
    if word == "--":
        pods.note_command(" ".join(words), into)
        words.clear()
        return
    name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
    name = SHORT.get(name, name)
    if not name.startswith("-"):
        return  # the job's name
    if not equals and name not in ALONE and words and not words[0].startswith("--"):
        value = words.popleft()
    gather(name, value, variables, volumes, into)


def gather(
    name: str, value: str, variables: dict[str, str], volumes: list[str], into: Gathering
) -> None:
    origin = f"{name} {value}".strip()
    if name == "--environment":
        gather_variable(value, variables, into)
    elif "$" in value or "`" in value:
        into.add_note(origin, COMPUTED)
    elif name in ("--pvc", "--volume"):
        volumes.append(f"{'pvc' if name == '--pvc' else 'host'}:{value}")
    elif name == "--existing-pvc":
        parts = dict(one.partition("=")[::2] for one in value.split(","))
        volumes.append(f"pvc:{parts.get('claimname', '')}:{parts.get('path', '')}")
    elif name == "--project":
        into.set("namespace", f"runai-{value}", origin)
    elif name in SETTINGS and SETTINGS[name] in ("image", "uid", "gid"):
        into.set(SETTINGS[name], as_number(value), origin)
    elif name in SETTINGS:
        pods.gather_resource(SETTINGS[name], value, into)
    else:
        into.add_note(origin, OWN.get(name, "has no counterpart"))


def gather_variable(assignment: str, variables: dict[str, str], into: Gathering) -> None:
    name, _, value = assignment.partition("=")
    if "$" in value or "`" in value:
        into.add_note(f"-e {name}", COMPUTED)
    else:
        pods.gather_variable(name, value, variables, into)
