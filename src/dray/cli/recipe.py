"""Lists and shows recipes."""

from __future__ import annotations

import click

from dray import recipes
from dray.cli.output import print_json, table
from dray.cli.parameters import RecipeName, json_option
from dray.cli.terminal import tell
from dray.config.editing import value
from dray.config.toml_lines import show_key

MEANINGS = {
    "job.outputs": "outputs",
    "job.resume.checkpoint": "checkpoints",
    "job.resume.number": "how far one is",
    "job.resume.scale": "an iteration is",
    "job.resume.anew": "counts anew",
    "job.resume.total": "how many in all",
    "job.resume.finished": "all done when",
    "job.resume.partner": "with each one",
    "job.resume.looks_for": "looks for",
    "job.resume.beside": "and beside it",
    "job.resume.resume_args": "resumed with",
    "job.resume.saves": "saves",
}


@click.group("recipe")
def command() -> None:
    """List and show the recipes: what dray knows about trainers."""


@command.command("list")
@json_option
def list_recipes(as_json: bool) -> None:
    """List the recipes, including those of other packages."""
    found = [(one.name, one.summary) for one in recipes.all_recipes()]
    if as_json:
        print_json([{"name": name, "summary": summary} for name, summary in found])
    else:
        tell(table(("NAME", "WHAT"), found))


@command.command("show")
@click.argument("name", type=RecipeName())
@json_option
def show_recipe(name: str, as_json: bool) -> None:
    """Show the settings that NAME fills in where neither a flag nor a file sets them."""
    recipe = recipes.find(name)
    settings, metrics = dict(recipe.settings), dict(recipe.metrics)
    if as_json:
        about = {"name": recipe.name, "summary": recipe.summary}
        print_json({**about, "settings": settings, "metrics": metrics})
        return
    rows = [("name", recipe.name), ("summary", recipe.summary)]
    rows += [(MEANINGS.get(key, key), written(one)) for key, one in settings.items()]
    rows += [("metrics", written(metrics))]
    for what, text in rows:
        tell(f"{what:<16}{text}")


def written(one: object) -> str:
    if isinstance(one, dict):
        return ", ".join(f"{show_key((key,))} {written(each)}" for key, each in one.items())
    if isinstance(one, list | tuple):
        return " ".join(written(each) for each in one)
    return one if isinstance(one, str) else value(one)
