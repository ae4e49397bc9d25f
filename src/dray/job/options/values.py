"""Parsers of settings: a TOML value or a flag's text → the value that dray works with."""

from __future__ import annotations

import re

from dray.checks import VARIABLE
from dray.job.quantities import parse_count, parse_gpus
from dray.node.notifications.notify import EVENTS, MAIL, is_address
from dray.records import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LONGEST_PATH = 4096  # Linux has no longer ones
LARGEST_CODE = 255


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text in quotes")
    return value


def texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f'{value!r} is not a list of texts: write ["…"]')
    return tuple(text(one) for one in value)


def job_name(value: object) -> str:
    name = text(value)
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,39}", name):
        raise ValueError(
            f"the name '{name}' must be of lower-case letters, digits and '-', 40 at the most"
        )
    return name


def output_path(value: object) -> str:
    path = text(value)
    parts = path.rstrip("/").split("/")
    if len(path) > LONGEST_PATH:
        raise ValueError(f"the output '{path[:20]}…' is longer than a path can be")
    if path.startswith("/") or ".." in parts or not path.strip("/.") or set("*?[\0") & set(path):
        raise ValueError(f"the output '{path}' must be a path below the project's folder")
    return "/".join(part for part in parts if part not in ("", "."))


def output_paths(value: object) -> tuple[str, ...]:
    return tuple(output_path(one) for one in texts(value))


def signal_name(value: object) -> str:
    import signal  # its enums take a while to make: only where one is named

    name = text(value).upper().removeprefix("SIG")
    number = signal.Signals.__members__.get(f"SIG{name}")
    if number is None or number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD):
        raise ValueError(f"'{value}' is not a signal that a program can answer: write USR1 or USR2")
    return name


def env_table(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a table of variables")
    return {env_name(key): env_value(key, one) for key, one in value.items()}


def env_value(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float) or "\0" in str(value):
        raise ValueError(f"{name}: {value!r} is not a text in quotes, or a number")
    return str(value)


def env_name(value: object) -> str:
    name = text(value)
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"'{name}' is not the name of a variable")
    return name


def env_names(value: object) -> tuple[str, ...]:
    return tuple(env_name(one) for one in texts(value))


def mailbox(value: object) -> str:
    address = text(value)
    if not is_address(MAIL, address):
        raise ValueError(f"'{address}' is not a mail address")
    return address


def events(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(Choice(*EVENTS), texts(value))))


class GpuRequest(NamedTuple):
    number: float
    kind: str | None = None


def gpu_request(value: object) -> GpuRequest:
    kind, colon, count = str(value).rpartition(":")
    if colon and not re.fullmatch(r"[A-Za-z0-9_.-]+", kind):
        raise ValueError(f"cannot read the GPUs '{value}': write 2, 0.5 or a100:2")
    return GpuRequest(parse_gpus(count if colon else value), kind or None)


def remote_path(value: object) -> str:
    path = text(value)
    if not path.startswith(("/", "~/", "$")):  # the agent fills in no other home than one's own
        raise ValueError(f"'{path}' must begin with /, ~/ or a $VARIABLE")
    if not re.fullmatch(r"(~|\$\w++|\$\{\w+\})?/?[\w./@:+,=$-]*", path):
        raise ValueError(f"'{path}' must be a path of letters, digits and /._-@:+,= or $VARIABLES")
    return path


def absolute_path(value: object) -> str:
    path = text(value)
    if not path.startswith("/") or not path.strip("/") or not path.isprintable():
        raise ValueError(f"'{path}' must be the whole path of a folder, from / on")
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def one_word(value: object) -> str:
    word = text(value)
    if not word or re.search(r"\s", word):
        raise ValueError(f"'{word}' must be one word without spaces")
    return word


def ssh_host(value: object) -> str:
    host = one_word(value)
    # ssh would take it for an option, or hand it to the shell of a ProxyCommand.
    if host.startswith("-") or re.search(r"""['"`$\\;&<>|(){}*?!#]""", host):
        raise ValueError(f"'{host}' is not a host")
    return host


def regular_expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"'{pattern}' is not a regular expression: {error}") from error


def metric_pattern(value: object) -> str:
    pattern = text(value)
    compiled = regular_expression(pattern)
    if compiled.groups == ("step" in compiled.groupindex):
        raise ValueError(f"'{pattern}' has no group for the value: write reward: ([-0-9.e]+)")
    return pattern


class Choice:
    """Accepts one of several words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: object) -> str:
        if value not in self.choices:
            raise ValueError(f"'{value}' is none of {', '.join(self.choices)}")
        return str(value)


def runtime_name(value: object) -> str:
    from dray.node.containers.known import NAMES  # only where one is named

    return Choice("auto", *NAMES)(value)


def yes_or_no(value: object) -> bool:
    if value not in (True, False, "true", "false"):
        raise ValueError(f"'{value}' is neither true nor false")
    return value in (True, "true")


def words(value: object) -> tuple[str, ...]:
    import shlex  # only where one is given

    found = tuple(shlex.split(text(value)))
    if not found:
        raise ValueError("it is empty")
    return found


def count_from_zero(value: object) -> int:
    return parse_count(value, least=0)


def exit_codes(value: object) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a list of exit codes: write [75, 137]")
    codes = tuple(dict.fromkeys(parse_count(one) for one in value))
    for code in codes:
        if code > LARGEST_CODE:
            raise ValueError(f"{code} is not the exit code of a failure: they are 1 to 255")
    return codes


def counting_pattern(value: object) -> str:
    pattern = text(value)
    if regular_expression(pattern).groups != 1:
        raise ValueError(f"'{pattern}' must have one group: the number, as in model_([0-9]+)")
    return pattern


def partner_name(value: object) -> str:
    name = one_word(value)
    if "{number}" not in name or "/" in name:
        raise ValueError(f"'{name}' is not the name of a file with {{number}} in it")
    return name


def total_flag(value: object) -> dict[str, str]:
    flag = one_word(value)
    if not flag.startswith("-"):
        raise ValueError(f"'{flag}' is not an argument of the command such as --max_iterations")
    return {"flag": flag}


def image(value: object) -> str:
    name = one_word(value)
    if name.startswith("-"):
        raise ValueError(f"'{name}' is not an image")
    return name


def bind(value: object) -> str:
    """Read SOURCE[:TARGET[:ro]], as Apptainer and Docker write it. The source is on the node, where
    ~ and $VARIABLES are filled in; ~ in the target is the home inside."""
    source, *rest = text(value).split(":")
    target, *mode = rest or [source]
    absolute = source.startswith(("/", "~", "$")) and target.startswith(("/", "~", "$"))
    if not absolute or mode not in ([], ["ro"], ["rw"]) or set(",\0\n") & set(text(value)):
        raise ValueError(f"cannot read the bind '{value}': write /on/the/node:/inside:ro")
    return text(value)


def binds(value: object) -> tuple[str, ...]:
    return tuple(bind(one) for one in texts(value))


def cache(value: object) -> str:
    if not re.fullmatch(r"[\w][\w.-]*:(~|/)[^:,\0\n]*", text(value)):
        raise ValueError(f"cannot read the cache '{value}': write kit:/isaac-sim/kit/cache")
    return text(value)


def caches(value: object) -> tuple[str, ...]:
    return tuple(cache(one) for one in texts(value))


def env_patterns(value: object) -> tuple[str, ...]:
    for one in texts(value):
        if not re.fullmatch(r"[A-Za-z_*?][A-Za-z0-9_*?]*", one):
            raise ValueError(f"'{one}' is not the name of a variable, or a pattern such as NCCL_*")
    return texts(value)


def place_inside(value: object) -> str:
    path = text(value)
    if path and not re.fullmatch(r"/[^:,\0\n]+", path):
        raise ValueError(f"'{path}' must be an absolute path inside the container")
    return path.rstrip("/")


def rule(value: object) -> dict[str, Any]:
    """Read a recipe's rule: see dray.node.checkpoints.resuming."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{value!r} is not a table")
    return value


def rules(value: object) -> tuple[dict[str, Any], ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a list of tables")
    return tuple(rule(one) for one in value)
