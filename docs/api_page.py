"""Writes docs/reference/api.md from the signatures and docstrings of the Python API."""

from __future__ import annotations

import inspect
import re
from types import FunctionType

import dray
from dray import errors
from dray.job.keywords import JobSettings, keyword
from dray.job.options import JOB

BEGIN = """\
# The Python API

```python
import dray

job = dray.run(["python", "train.py"], gpus=1, time="4h", outputs=["logs"])
if job.wait() == dray.JobState.DONE:
    job.pull()

jobs = dray.run_many([["python", "train.py", f"--seed={n}"] for n in range(8)], gpus=1)
print(jobs.wait())  # one question for all of them

job = dray.Job("train-7f3k")  # one that is known from before, by its id or the beginning of it
```

What can be imported from `dray` itself, and is named here, is public; all other modules may change.
It is typed: editors and mypy know every keyword. Settings that are not given come from `dray.toml`
and `config.toml`, as they do for the [command line](command-line.md)."""
VIEWS = """\
`Job.show()` returns a `JobView`: `spec` (a `JobSpec`, its description), `cluster`, `state` (a
`JobState`, which is also its text: `"done"`), `reason`, `ended`, and `attempts`, each an `Attempt`.
Their fields are those of [`dray show --json`](outcomes.md#json). `Job.curve()` returns a `Series`:
`name`, and `points` of (step, value, attempt), where a value that is no number is `None`. All of
them are frozen."""
ERRORS = """\
All are subclasses of `dray.DrayError`, with `message`, `hint` (what to do), and `exit_code` (that
of the [command line](outcomes.md#exit-codes))."""
KEYWORDS = """\
For `run` and `run_many`; `Job.resume` takes those of `[job.limits]`. Their meaning is that of the
[setting](settings.md). Types of your own can be built on `dray.JobSettings`, a `TypedDict`."""

ALIASES = {
    "Count": "int | str",
    "Duration": "str",
    "Codes": "list[int] | tuple[int, ...]",
    "Texts": "list[str] | tuple[str, ...]",
}
SPELLED = {"(self, ": "(", "(self)": "()", "PathLike[str]": "os.PathLike[str]"}


def api() -> str:
    parts = [BEGIN]
    for name in ("run", "run_many", "jobs"):
        parts += [f"## dray.{name}", *described(getattr(dray, name), f"dray.{name}")]
    for cls in (dray.Job, dray.Jobs):
        parts += [f"## dray.{cls.__name__}", inspect.getdoc(cls) or ""]
        for name, member in public(cls):
            parts += [f"### {cls.__name__}.{name}", *described(member, name)]
    parts += ["## What is known of a job", VIEWS, "## Errors", ERRORS, error_table()]
    parts += ["## Keywords", KEYWORDS, keyword_table()]
    return "\n\n".join(parts)


def public(cls: type) -> list[tuple[str, FunctionType]]:
    return [
        (name, one)
        for name, one in vars(cls).items()
        if isinstance(one, FunctionType) and not name.startswith("_")
    ]


def described(function: FunctionType, name: str) -> list[str]:
    # Annotations are in quotes; the empty text, which is a default, stays one.
    quoted = str(inspect.signature(function)).replace("''", '""')
    signature = re.sub(r"'([^']+)'", r"\1", quoted)
    for written, better in SPELLED.items():
        signature = signature.replace(written, better)
    about = in_markdown(inspect.getdoc(function) or "")
    return [f"```python\n{wrapped(name + signature)}\n```", about]


def in_markdown(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text)


def wrapped(text: str) -> str:
    """Give each parameter a line of its own where all of them are too long for one."""
    if len(text) <= 90:
        return text
    begin, _, rest = text.partition("(")
    inside, _, end = rest.rpartition(")")
    parts = re.split(r", (?![^\[(]*[\])])", inside)
    return f"{begin}(\n" + "".join(f"    {part},\n" for part in parts) + f"){end}"


def error_table() -> str:
    known = [one for one in vars(errors).values() if isinstance(one, type)]
    rows = [
        f"| `dray.{one.__name__}` | {in_markdown(one.__doc__ or '')} |"
        for one in known
        if issubclass(one, errors.DrayError) and one.__name__ in dray.__all__
    ]
    return "\n".join(["| error | meaning |", "|---|---|", *rows])


def keyword_table() -> str:
    types = {**JobSettings.__annotations__, "on": "str"}
    rows = []
    for option in JOB:
        name = keyword(option)
        kind = getattr(types[name], "__forward_arg__", types[name])
        kind = ALIASES.get(kind, kind).replace("'", '"').replace("|", "\\|")
        rows.append(f"| `{name}` | `{kind}` | `{option.name}` in `[{option.table}]` |")
    return "\n".join(["| keyword | type | setting |", "|---|---|---|", *rows])
