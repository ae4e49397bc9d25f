"""What people see: tables, colours, progress, times. Machines get --json."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import accumulate

from dray.cli.terminal import (
    Shown,
    joined,
    lines,
    multiline,
    on_terminal,
    redraw,
    say,
    styled,
    tell,
    visible,
)
from dray.config import loading as configuration
from dray.job.model import Container, JobSpec
from dray.job.quantities import show_duration, show_size
from dray.launcher import Launcher
from dray.reporter import Progress, Reporter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

COLORS = {
    "queued": "33",
    "running": "36",
    "done": "32",
    "failed": "31",
    "stopped": "35",
    "lost": "31",
    "interrupted": "33",
}
INNER = frozenset({"dray_node", "dray-session"})  # words of commands that dray has put together
BAR_WIDTH = 30
SMALLEST_CELL = 20
GAP = 2  # between two cells
NARROWEST = 30  # columns that a wrapped text has, however narrow the terminal is
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 8


def print_json(value: Any) -> None:
    """Print JSON. It is all ASCII, and every control character is escaped, also \\x7f, which json
    leaves as it is."""
    tell(multiline(json.dumps(value, indent=2).replace("\x7f", "\\u007f")))


def colored(text: str, state: str) -> Shown:
    color = COLORS.get(state.strip())
    return styled(text, color) if color and in_color() else visible(text)


def in_color() -> bool:
    return on_terminal() and not configuration.environment().get("NO_COLOR")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], state_column: int = -1) -> Shown:
    """Lay out left-aligned columns. The last one is cut to the terminal's width, and no other takes
    more than half of it."""
    room = terminal_width()
    leads = [[cut(visible(cell), room // 2) for cell in row[:-1]] for row in [header, *rows]]
    widths = [max(map(columns, column)) for column in zip(*leads, strict=True)]
    left = max(room - sum(width + GAP for width in widths), SMALLEST_CELL)
    shown = []
    for number, (lead, row) in enumerate(zip(leads, [header, *rows], strict=True)):
        cells = [padded(cell, width + GAP) for cell, width in zip(lead, widths, strict=True)]
        cells.append(cut(visible(row[-1]), left))
        if state_column >= 0 and number:
            cells[state_column] = colored(cells[state_column], row[state_column])
        shown.append(joined(*cells))
    return lines(shown)


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def terminal_width() -> int:
    if not on_terminal():
        return 10_000
    return width_of(sys.stdout)


def width_of(stream: TextIO) -> int:
    return os.get_terminal_size(stream.fileno()).columns or 80  # some terminals say 0


def cut(text: str, width: int) -> str:
    """Cut a text to so many columns, with a sign that there is more."""
    if columns(text) <= width:
        return text
    ends = accumulate(map(columns, text))
    return text[: sum(1 for end in ends if end < width)] + "…"


def columns(text: str) -> int:
    """Return how many columns of a terminal the text takes: Chinese or Japanese characters take
    two."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # seldom needed

    return sum(0 if combining(one) else 1 + (east_asian_width(one) in "WF") for one in text)


def hanging(lead: str, text: str, indent: int, taken: int = 0) -> list[Shown]:
    """Put a text behind a lead, wrapped to the terminal; further lines begin at column ``indent``.
    ``taken`` is the width of a lead that is not as wide as that. A pipe gets one line."""
    shown, room = visible(text), max(terminal_width(), indent + NARROWEST)
    if (taken or indent) + columns(shown) <= room:
        return [joined(lead, shown)]
    import textwrap  # a pipe, and most texts, do without

    margin = " " * indent
    first, *others = textwrap.wrap(
        shown,
        room,
        initial_indent=" " * (taken or indent),
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,  # a path that is cut cannot be copied
    )
    return [joined(lead, first[taken or indent :]), *map(visible, others)]


def one_line(words: Sequence[str]) -> Shown:
    """Show a command on one line, as one could type it."""
    import shlex

    return visible(" ".join(shlex.quote(word) for word in words))


def told_commands(words: Sequence[str]) -> list[Shown]:
    """Show a job's command as its user knows it: a session by what it is, and commands that run
    side by side on a line each."""
    if not INNER.intersection(words):
        return [one_line(words)]
    from dray.description.side_by_side import commands_of
    from dray.node.sessions.commands import is_held, lab_at

    if is_held(words):
        return [visible("session (shell)")]
    if lab_at(words):
        return [visible("JupyterLab")]
    return [one_line(one) for one in commands_of(words) or [list(words)]]


def show_metric(metric: Mapping[str, Any] | None) -> str:
    """Show the latest value, under the last part of its name: mean_reward 12.3 at 1500."""
    if metric is None:
        return ""
    value = show_value(metric["value"])
    return visible(f"{last_part(metric['name'])} {value} at {metric['step']}")


def show_value(value: float | None) -> str:
    return "nan" if value is None else f"{value:.4g}"


def show_range(name: str, values: Sequence[float | None]) -> str:
    """Show the values of several jobs, of which one at least is a number: mean_reward 8.1 to 12.3;
    with "and nan" behind it where others are none."""
    known = [value for value in values if value is not None]
    others = " and nan" if len(known) < len(values) else ""
    return visible(f"{last_part(name)} {min(known):.4g} to {max(known):.4g}{others}")


def last_part(name: str) -> str:
    return name.rpartition("/")[2].strip()


def show_image(container: Container) -> str:
    """Show an image by the user's name for it, and its id on the cluster."""
    name, image = container.name, container.image
    return visible(image if name in ("", image) else f"{name}  ({image})")


def show_resources(job: JobSpec) -> str:
    """Show what a job asks for: 1 GPU, 4 CPU, 4h an attempt."""
    wanted = job.resources
    parts = [f"{wanted.gpus:g} GPU"] if wanted.gpus else []
    parts.append(f"{wanted.cpus} CPU")
    if wanted.memory:
        parts.append(show_size(wanted.memory))
    if wanted.nodes > 1:
        parts = [f"{wanted.nodes} nodes of {', '.join(parts)}"]
    if job.launch != "none":
        parts.append(f"by {job.launch}")
    if wanted.time:
        least = f", at least {show_duration(wanted.time_min)}" if wanted.time_min else ""
        parts.append(f"{show_duration(wanted.time)} an attempt{least}")
    if number := job.sweep.get("per_node"):
        parts.append(f"of an allocation that {number} trials share")
    return ", ".join(parts)


def when(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) if moment else "-"


def age(moment: float) -> str:
    return show_duration(max(time.time() - moment, 0))


def time_there(heartbeat: float) -> float:
    """Return the time by the clock of the machine that an attempt runs on, which may be far off
    ours: its last heartbeat shows it, to within one interval."""
    from dray.node.formats.pace import HEARTBEAT

    return min(max(time.time(), heartbeat), heartbeat + HEARTBEAT)


def sparkline(values: Sequence[float | None]) -> str:
    """Draw the course of a value in a few characters; '' where there are fewer than two values."""
    known = [one for one in values if one is not None]
    if len(known) < 2:
        return ""
    last = len(values) - 1
    width = min(SPARK_WIDTH, len(values))
    chosen = [values[at * last // (width - 1)] for at in range(width)]
    low, high = min(known), max(known)
    top = len(SPARKS) - 1
    span = high - low
    places = [
        # A span of the smallest numbers there are cannot be divided exactly.
        None if one is None else min(round((one - low) / span * top), top) if span else 3
        for one in chosen
    ]
    return "".join(" " if place is None else SPARKS[place] for place in places)


class Bar:
    """A progress bar on a terminal, a line every few seconds elsewhere; nothing for quick work."""

    def __init__(self, label: str) -> None:
        self.label = visible(label)
        self.started = 0.0
        self.shown = 0.0
        self.drawn = False
        self.on_terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.started:
            self.started, self.shown = now, now + 0.3
        finished = done >= total
        if total <= 0 or (now < self.shown and not (finished and self.drawn)):
            return
        self.shown = now + (0.1 if self.on_terminal else 5.0)
        self.drawn = True
        share = done / total
        text = f"{self.label}: {share:4.0%}  {show_size(done)} of {show_size(total)}"
        if 0 < share < 1 and now > self.started + 5:  # before, nobody can tell
            text += f", about {show_duration((now - self.started) / share - (now - self.started))}"
            text += " left"
        if self.on_terminal:
            filled = int(share * BAR_WIDTH)
            bar = "█" * filled + "·" * (BAR_WIDTH - filled)
            room = width_of(sys.stderr) - 1  # the cursor stands behind it
            redraw(cut(f"{bar} {text}", room), is_last=finished)
        else:
            say(text)


def progress(label: str) -> Progress:
    return Bar(label)


def launcher(flags: dict[str, Any] | None = None, *, submits: bool = False) -> Launcher:
    """Make the launcher from the settings. For a verb that submits, settings that are wrong or not
    trusted are an error."""
    config = configuration.load(flags=flags, submits=submits)
    if config.mistake:
        say(f"dray: {config.mistake.message}")
        say("      The file's settings are not used here; nothing can be submitted with it.")
    if config.untrusted and not submits:
        say(f"dray: {config.untrusted.warning}")
    return launcher_for(config)


def named_or_latest(verbs: Launcher, job: str | None) -> str:
    if job is not None:
        return job
    latest = verbs.latest()
    say(f"the latest job: {latest}")
    return latest


def launcher_for(config: configuration.Config) -> Launcher:
    return Launcher(config, Reporter(say=say, progress=progress))
