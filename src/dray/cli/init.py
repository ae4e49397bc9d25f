from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from dray import recipes
from dray.cli.output import launcher, one_line
from dray.cli.parameters import RecipeName
from dray.cli.terminal import joined, multiline, say, tell, visible
from dray.config import loading as configuration
from dray.errors import DrayError, UsageError
from dray.job.options import GpuRequest
from dray.project import PROJECT_FILE
from dray.recipes.first import first_command

WITHOUT_GPUS = ("generic",)
TEMPLATE = """\
[job]
recipe = "{recipe}"    # dray recipe show {recipe}

[job.resources]
gpus = {gpus}
time = "4h"              # for each attempt; then it is resumed
"""


@click.command("init")
@click.option(
    "--recipe",
    type=RecipeName(),
    metavar="RECIPE",
    help="Use this recipe instead of looking for one.",
)
def command(recipe: str | None) -> None:
    """Look at this folder, write a first dray.toml, and print a first command.

    On a terminal, two questions at most: which trainer it is, where there are several, and where
    the first job is to run, where you have added a cluster and no default one. A file that is there
    is left as it is.
    """
    folder = configuration.current_folder()
    path = folder / PROJECT_FILE
    if path.exists():
        raise UsageError(f"{path} is there already", hint="Change it, or remove it first.")
    name = recipes.find(recipe or choose_recipe(folder)).name
    on = choose_cluster(configuration.load(submits=False))
    text = TEMPLATE.format(recipe=name, gpus=0 if name in WITHOUT_GPUS else 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already") from None
    say(f"written to {path}:")
    tell(multiline(text.removesuffix("\n")))
    suggest(name, folder, on)


def choose_recipe(folder: Path) -> str:
    found = {one.name: why for one in recipes.all_recipes() if (why := one.detect(folder))}
    first = next(iter(found), "generic")
    if len(found) > 1 and can_ask():
        for name, why in found.items():
            say(f"{visible(name)}: {visible(why)}")
        chosen: str = click.prompt(
            "Which trainer", type=click.Choice(list(found)), default=first, err=True
        )
        return chosen
    why = found.get(first, "nothing is known here, so your own trainer")
    say(f"{visible(first)}: {visible(why)}")
    for other, why in list(found.items())[1:]:
        say(f"also possible: --recipe {other} ({visible(why)})")
    return first


def choose_cluster(config: configuration.Config) -> str | None:
    """Ask where the first job is to run; None for the default."""
    others = [name for name in config.clusters if name != "local"]
    if "job.on" in config.job or not others or not can_ask():
        return None
    chosen: str = click.prompt(
        "Where is the first job to run",
        type=click.Choice(list(config.clusters)),
        default=others[0],
        err=True,
    )
    return chosen


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def suggest(recipe: str, folder: Path, on: str | None) -> None:
    """Print a command that can be copied, and any reason why it would be refused."""
    chosen: dict[str, Any] = {"job.on": on} if on else {}
    verbs = launcher(chosen, submits=True)
    target = verbs.cluster(verbs.config.on)
    is_here = target.capabilities.is_local
    flags = ["--on", on] if on else []
    if is_here and recipe not in WITHOUT_GPUS and not target.equipment().gpus:
        flags += ["--gpus", "0"]
        chosen["job.resources.gpus"] = GpuRequest(0.0)
    python = "python" if is_here and shutil.which("python") else "python3"
    words = first_command(recipe, folder, python)
    say(joined("Try it:  ", one_line(["dray", "run", *flags, "--follow", "--", *words])))
    try:
        launcher(chosen, submits=True).plan(words, snapshot=False)
    except DrayError as error:
        say(f"For now it would be refused: {error.message}")
        if error.hint:
            say(f"  {error.hint}")
