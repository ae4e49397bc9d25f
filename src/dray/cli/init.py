from __future__ import annotations

import click

from dray import config as configuration
from dray import recipes
from dray.cli.terminal import multiline, say, tell, visible
from dray.errors import UsageError
from dray.project import PROJECT_FILE

TEMPLATE = """\
[job]
recipe = "{recipe}"    # dray recipe show {recipe}

[job.resources]
gpus = {gpus}
time = "4h"              # for each attempt; then it is resumed
"""


@click.command("init")
@click.option("--recipe", metavar="RECIPE", help="Do not look: the trainer is this.")
def command(recipe: str | None) -> None:
    """Look at this folder, and write a first dray.toml.

    A file that is there is left as it is.
    """
    folder = configuration.current_folder()
    path = folder / PROJECT_FILE
    if path.exists():
        raise UsageError(f"{path} is there already", hint="Change it, or remove it first.")
    if recipe is None:
        found = {one.name: why for one in recipes.everyone() if (why := one.detect(folder))}
        recipe = next(iter(found), "generic")
        why = found.get(recipe, "nothing is known here, so your own trainer")
        say(f"{visible(recipe)}: {visible(why)}")
        for other, why in list(found.items())[1:]:
            say(f"also possible: --recipe {other} ({visible(why)})")
    name = recipes.find(recipe).name
    text = TEMPLATE.format(recipe=name, gpus=0 if name == "generic" else 1)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already") from None
    say(f"written to {path}:")
    tell(multiline(text.removesuffix("\n")))
    say("Next:  dray plan -- …")
