"""Writes docs/reference from the code: verbs, settings and their schema, JSON, exit codes.
``--check`` compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from api_page import api

from dray import errors
from dray.cli import why
from dray.cli.cluster_list import Known
from dray.cli.group import cli
from dray.cli.verbs import VERBS
from dray.config.loading import INHERITED
from dray.job.model import Attempt, JobSpec, JobState, JobView
from dray.job.options import CLUSTERS, JOB, NOTIFY, SNAPSHOT, Option
from dray.job.options.schema import schema
from dray.job.situation import Allowance, Explanation, QueueEntry, QueueView
from dray.launcher.explaining import Diagnosis
from dray.launcher.tickets import Ticket
from dray.snapshot.ignore import ALWAYS_OUT, TELLTALES
from dray.store import Row
from dray.sweep.options import SWEEP

REFERENCE = Path(__file__).parent / "reference"
HOW_FILES_COMBINE = """\
`dray.toml` at the project's root and `config.toml` in dray's config folder have the same tables. A
flag wins over the project's file, which wins over the user's; variables, outputs, secrets and binds
of all three come together. Which cluster a job goes to can also be said by the variable `DRAY_ON`:
it wins over both files, and the flag `--on` over it. `dray cluster default NAME` writes `on` into
your own file.

A project's file may set what a job needs, and some settings of a cluster that your own file
defines; `kind` need not be repeated then. A new cluster, and what is marked with ▲ (where programs
are started, what is run outside the job, which secrets go out), is heeded only in your own file, or
in a project's file that you have trusted as it is: see [trust](../how-to/trust-a-project.md)."""
IN_AN_EDITOR = """\
[dray.schema.json](dray.schema.json) is a JSON schema of both files: editors complete keys by it,
show what they mean and mark mistakes. Where the editor has Taplo (VS Code's extension Even Better
TOML, Neovim, Helix, Zed), the file's first line says where the schema is: a URL, or a path seen
from the file.

```toml
#:schema ./dray.schema.json
[job]
on = "local"
```

dray itself takes that line for a comment. A cluster of a kind that another package brings is not
checked by it."""
ENVIRONMENT = """\
A job sees what its description says. Of the shell it was submitted from it sees only {inherited}
and `LC_*`; everything else is given with `--env` or `[job.env]`. dray adds `DRAY_JOB_ID`,
`DRAY_ATTEMPT`, `DRAY_OUTPUTS`, `DRAY_CODE` (the job's own copy of the code), `DRAY_PROJECT` (on
`local`, the folder it was copied from), `DRAY_DEADLINE` (unix time, where there is a time limit),
`DRAY_CHECKPOINT` and `DRAY_CHECKPOINT_PARTNER` (on a resume), `DRAY_CHECKPOINT_GIVEN` (`1` where
that checkpoint is the one of `dray run --from`), `DRAY_CHECKPOINT_SIGNAL` (where one is set),
`DRAY_INPUT_NAME` (for each `--input NAME=JOB`), `DRAY_GRACE` (seconds) and
`CUDA_VISIBLE_DEVICES`, and `TERM=xterm` where there is no terminal,
since scripts such as `isaaclab.sh` end without one. `PYTHONPATH` ends with the file in which
`import dray.training` is found; a `dray` that the command can import from elsewhere goes before it.
It begins with a folder in that file, from which Python starts: see
[editable installs](../how-to/use-an-environment.md#packages-installed-with-pip-install--e). In a
container it sees the image's variables instead of the shell's: see
[containers](../how-to/use-containers.md)."""
LEFT_OUT = """\
Always: {always}; folders that hold {telltales}; declared outputs; dray's own folders (`DRAY_HOME`,
the `root` of a cluster), where they lie in the project. Then what `.drayignore` says, or, where the
project has none, what the `.gitignore` files say; files that git tracks all the same are taken. An
ignore file of more than 1 MB or 10,000 patterns is refused; a line of more than 16 KB matches
nothing."""
STATES = """\
{states}. An attempt's outcome is `done`, `failed`, `interrupted` (to be resumed), `stopped` or
`lost`. A job is `stopped` where you have stopped it, and where a limit of its own has
([limits](../how-to/set-limits.md)): its `total_time` or `gpu_hours` are used up, or it had not
begun by `start_by`. So is one that comes after a job which did not end as it had to
([chain jobs](../how-to/chain-jobs.md)). Its `reason` says which. While a crash is held for a look
(`hold`), the job is still `running`, and the outcome of its last attempt is `failed` already."""
LAST_ATTEMPT = """\
`exit_code` and `signal` are those of the last attempt: a command that exits with 137 has
`exit_code` 137 and no `signal`; one that was killed has `signal` `SIGKILL` and no `exit_code`."""
METRICS = """\
`metric` is the latest value of the main metric: `name`, `value` (null where it is not a number),
`step`, and in `recent` at most sixteen values of the attempt, evenly apart; null where there is
none. `last_attempt` has of the last attempt the `number`, `started`, `heartbeat`, `ended`,
`deadline`, `iteration`, `total`, `gpu_use` and `gpu_idle`; null where there is none. These times
are by the clock of the machine it runs on; `gpu_use` is in percent, `gpu_idle` since when its GPUs
do nothing; `iteration` is that of its newest checkpoint, of `total` in all, null where that
is not known. `curve` has its `name` and `points`, each
`[step, value, attempt]`: what was done again after a resume is there once, and of a long curve some
400 points. `last_lines` is the end of what a failed job wrote. The `remarks` of an attempt tell of
checkpoints that were passed over, put back or set aside. `held` is until when its allocation is, or
was, kept for a look. `sweep` says which trial of which sweep a job is, and with which values; null
where it is none. `begins_from` is the checkpoint of another run that the job was given (`dray
run --from`), or empty. `after` names the jobs that it comes after, each with `ok` or `any`, and
those of an array in a row as `sweep-7f3k.0-9`; `inputs` what it reads of other jobs, by name."""
CLUSTERS_LISTED = """\
`queued` and `running` count your jobs there, as they were last seen. `host` is null for what is on
this machine. `answered` is when the cluster last answered a command of yours, null where that is
not known. `answers` is null unless `--check` asks; where it is false, `problem` says why."""
SWEEP_FILE = """\
A sweep's file has [sweep], [sweep.space] and [job]; dray.toml has no [sweep]. In [sweep.space] a
parameter is a text as `--space` takes it (`lr = "1e-5..1e-1:log"`), a list to choose from, a number
or truth value that is fixed, or a table: `{ log = [1e-5, 1e-1] }`, `{ float = [0, 1], step = 0.25
}`, `{ int = [8, 64], step = 8 }`, `{ int = [1, 1000], log = true }`, `{ choice = [...] }`,
`{ formula = "..." }`, `{ fixed = ... }`, `{ drawn = [...] }` (one for each configuration),
`{ table = [[[512, 16], 2048], ...], of = ["--num_envs", "horizon"] }`. With `emit` it says how a
parameter that the command does not name is added to it: `flag`, `assignment`, `value` or `none`."""
NOTE = "<!-- Written by docs/generate.py from the code: edit there. -->"


def command_line() -> str:
    lines = [NOTE, "# The command line", "", "`dray VERB --help` says the same.", ""]
    with click.Context(cli, info_name="dray") as top:
        for title, verbs in VERBS.items():
            lines += [f"## {title}", ""]
            for name, summary in verbs.items():
                lines += [f"### dray {name}", "", f"{summary[0].upper()}{summary[1:]}.", ""]
                command = cli.get_command(top, name)
                assert command is not None
                lines += help_of(command, f"dray {name}")
    return "\n".join(lines)


def help_of(command: click.Command, name: str) -> list[str]:
    context = click.Context(command, info_name=name, terminal_width=96, max_content_width=96)
    lines = ["```", command.get_help(context), "```", ""]
    if isinstance(command, click.Group):
        for sub in command.commands.values():
            lines += help_of(sub, f"{name} {sub.name}")
    return lines


def settings() -> str:
    lines = [NOTE, "# Settings", "", HOW_FILES_COMBINE, "", "## In an editor", ""]
    lines += [IN_AN_EDITOR, ""]
    tables: dict[str, list[Option]] = {}
    for option in (*JOB, *SNAPSHOT, *NOTIFY):
        tables.setdefault(option.table, []).append(option)
    for table, known in tables.items():
        lines += [f"## [{table}]", "", *rows(known)]
    for kind, known_here in CLUSTERS.items():
        lines += [f"## [clusters.NAME], kind `{kind}`", "", *rows(list(known_here))]
    lines += [
        "## [sweep], in a file for `dray sweep start`",
        "",
        SWEEP_FILE,
        "",
        *rows(list(SWEEP)),
    ]
    inherited = ", ".join(f"`{name}`" for name in INHERITED)
    always = ", ".join(f"`{name}`" for name in sorted(ALWAYS_OUT))
    telltales = " or ".join(f"`{name}`" for name in sorted(TELLTALES))
    lines += ["## The command's environment", "", ENVIRONMENT.format(inherited=inherited), ""]
    lines += ["## What is left out of a snapshot", ""]
    lines += [LEFT_OUT.format(always=always, telltales=telltales), ""]
    return "\n".join(lines)


def rows(known: list[Option]) -> list[str]:
    lines = ["| key | flag | default | example | meaning |", "|---|---|---|---|---|"]
    for option in known:
        flag = f"`{option.flag} {option.metavar}`" if option.flag else ""
        example = f"`{option.name} = {option.example}`".replace("|", "\\|")
        name = f"`{option.name}`{'' if option.harmless else ' ▲'}"
        lines.append(f"| {name} | {flag} | {option.shown_default} | {example} | {option.help} |")
    return [*lines, ""]


def outcomes() -> str:
    by_code = {family.exit_code: family.__doc__ for family in errors.DrayError.__subclasses__()}
    view = JobView(
        spec=JobSpec(id="train-7f3k", name="train", command=("python", "train.py")),
        cluster="local",
        state=JobState.DONE,
        attempts=(Attempt(number=1),),
    )
    sample = view.to_dict()
    lines = [
        NOTE,
        "# Exit codes, states and JSON",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        "| 0 | fine |",
        "| 1 | the job did not end as `done` (`wait`, `run --follow`, `demo`) |",
    ]
    lines += [f"| {code} | {meaning} |" for code, meaning in sorted(by_code.items())]
    lines += [
        "| 130 | Ctrl-C |",
        "",
        "## States of a job",
        "",
        STATES.format(states=", ".join(f"`{state}`" for state in JobState)),
        "",
        "## JSON",
        "",
        ABOUT_JSON,
        "",
        "- `dray ps --json`: a list of " + keys(("version", *Row._fields)),
        "- `dray show --json`: " + keys({**sample, "directory": "", "curve": "", "last_lines": ""}),
        "- in it, each of `attempts`: " + keys(sample["attempts"][0]),
        "- `dray cluster list --json`: a list of " + keys(Known._fields),
        "- `dray why --json`: " + keys(why.as_record(Diagnosis(view))),
        "- in it, `explanation` of a job that waits: " + keys(Explanation._fields),
        "- `dray queue --json`: a list of "
        + keys(("version", "cluster", *QueueView._fields, "fair")),
        "- in it, each of `entries`: " + keys(QueueEntry._fields),
        "- `dray quota --json`: a list of " + keys(("version", "cluster", *Allowance._fields)),
        "- `dray ticket --json`: " + keys(("version", *Ticket._fields)),
        "",
        LAST_ATTEMPT,
        "",
        METRICS,
        "",
        CLUSTERS_LISTED,
        "",
    ]
    return "\n".join(lines)


def keys(names: object) -> str:
    assert isinstance(names, dict | tuple)
    return ", ".join(f"`{name}`" for name in names)


def schema_of_settings() -> str:
    return json.dumps(schema(), indent=1, ensure_ascii=False)


def python_api() -> str:
    return f"{NOTE}\n{api()}"


ABOUT_JSON = (
    "Times are unix seconds, sizes bytes, durations seconds. Keys are only ever added; `version` "
    "is raised where one changes its meaning or goes."
)
PAGES = {
    "command-line.md": command_line,
    "settings.md": settings,
    "outcomes.md": outcomes,
    "dray.schema.json": schema_of_settings,
    "api.md": python_api,
}


def main() -> int:
    stale = []
    for name, write in PAGES.items():
        path = REFERENCE / name
        text = write().rstrip() + "\n"
        if "--check" in sys.argv:
            if not path.exists() or path.read_text("utf-8") != text:
                stale.append(str(path.relative_to(REFERENCE.parent.parent)))
        else:
            path.write_text(text, "utf-8")
    if stale:
        print(f"out of date: {', '.join(stale)}; run 'make docs'")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
