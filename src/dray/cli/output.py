"""What people see: tables, colours, progress, times. Machines get --json."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dray import config as configuration
from dray.cli import say as say
from dray.cluster import Progress
from dray.launcher import Launcher
from dray.model import Container
from dray.quantities import show_duration, show_size
from dray.reporter import Reporter

COLORS = {
    "queued": "yellow",
    "running": "cyan",
    "done": "green",
    "failed": "red",
    "stopped": "magenta",
    "lost": "red",
    "interrupted": "yellow",
}
BAR_WIDTH = 30


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def colored(text: str, state: str) -> str:
    return click.style(text, fg=COLORS.get(state.strip())) if in_color() else text


def in_color() -> bool:
    return on_terminal() and not configuration.environment().get("NO_COLOR")


def on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], state_column: int = -1) -> str:
    """Left-aligned columns; the last one is cut to the terminal's width."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    room = terminal_width()
    lines = []
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lead = "  ".join(cells[:-1]) + "  "
        last = cut(row[-1], max(room - len(lead), 20))
        if state_column >= 0 and row is not header:
            cells[state_column] = colored(cells[state_column], row[state_column])
        lines.append(("  ".join(cells[:-1]) + "  " + last).rstrip())
    return "\n".join(lines)


def terminal_width() -> int:
    if not on_terminal():
        return 10_000
    return os.get_terminal_size(sys.stdout.fileno()).columns or 80  # some terminals say 0


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def one_line(words: Sequence[str]) -> str:
    """A command as one could type it, on one line."""
    import shlex

    return visible(" ".join(shlex.quote(word) for word in words))


def visible(text: str) -> str:
    """Nothing in it moves the cursor or colours the terminal: control characters are spelled."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def show_metric(metric: Mapping[str, Any] | None) -> str:
    """The latest value, under the last part of its name: mean_reward 12.3 at 1500."""
    if metric is None:
        return ""
    value = "nan" if metric["value"] is None else f"{metric['value']:.4g}"
    return visible(f"{last_part(metric['name'])} {value} at {metric['step']}")


def show_range(name: str, lowest: float, highest: float) -> str:
    """Of several jobs: mean_reward 8.1 to 12.3."""
    return visible(f"{last_part(name)} {lowest:.4g} to {highest:.4g}")


def last_part(name: str) -> str:
    return name.rpartition("/")[2].strip()


def show_image(container: Container) -> str:
    """As the user calls it, and which one that is on the cluster."""
    name, image = container.name, container.image
    return visible(image if name in ("", image) else f"{name}  ({image})")


def when(moment: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment)) if moment else "-"


def ago(moment: float) -> str:
    return f"{show_duration(max(time.time() - moment, 0))} ago"


class Bar:
    """A progress bar on a terminal, a line every few seconds elsewhere; nothing for quick work."""

    def __init__(self, label: str) -> None:
        self.label = label
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
            click.echo(f"\r{bar} {text}\x1b[K" + ("\n" if finished else ""), err=True, nl=False)
        else:
            say(text)


def progress(label: str) -> Progress:
    return Bar(label)


def launcher(flags: dict[str, Any] | None = None) -> Launcher:
    return launcher_for(configuration.load(flags=flags))


def launcher_for(config: configuration.Config) -> Launcher:
    return Launcher(config, Reporter(say=say, progress=progress))
