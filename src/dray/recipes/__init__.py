"""Recipes, what dray knows about trainers: the Recipe protocol and the lazy table of recipes.

A recipe is data, made by a pure function on the submitting machine. It only sets defaults: flags
and files take precedence. Its rules for resuming are documented in ``resuming``, which knows no
trainer, so a recipe of another package needs nothing on the cluster.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from dray import plugins
from dray.errors import NotFound, nearest
from dray.job.model import Capabilities
from dray.records import NamedTuple


class Request(NamedTuple):
    """The command, project and resources for which a recipe fills in the settings."""

    command: tuple[str, ...]  # the whole, or only the trainer's arguments
    folder: Path  # where it starts, on this machine
    on: Capabilities = Capabilities(is_local=True)  # of the cluster
    nodes: int = 1
    gpus: int = 0  # of each node
    launch: str | None = None  # if the user has set it
    python: tuple[str, ...] = ()  # the same
    image: str = ""  # of the container it runs in
    is_whole: bool = True  # the folder is the whole project, no part of it
    env: Mapping[str, str] = MappingProxyType({})  # what the command will see, as far as is known

    @property
    def workers(self) -> int:
        """Return how many processes train."""
        return self.nodes * max(self.gpus, 1)


class Filled(NamedTuple):
    command: tuple[str, ...]
    settings: Mapping[str, Any] = MappingProxyType({})  # what depends on the request
    notes: tuple[str, ...] = ()
    links: Mapping[str, str] = MappingProxyType({})  # made where the command starts, on the node


class Recipe(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str:
        """Return one line about the recipe."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return the settings by config key: job.outputs, job.resume.checkpoint …"""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Return where the curve is: ``tensorboard``, a glob in the outputs, with the tags that
        matter most as ``main``; or ``pattern``, a regular expression over the log."""

    def detect(self, project: Path) -> str:
        """Return why this folder looks like one for this recipe; "" if it does not."""

    def fill(self, request: Request) -> Filled:
        """Return the command as it is started. Raise UsageError if it cannot be."""


RECIPES = {
    "isaaclab/rsl_rl": "dray.recipes.isaaclab:RSL_RL",
    "isaaclab/rl_games": "dray.recipes.isaaclab:RL_GAMES",
    "isaaclab/skrl": "dray.recipes.isaaclab:SKRL",
    "isaaclab/sb3": "dray.recipes.isaaclab:SB3",
    "protomotions": "dray.recipes.protomotions:PROTOMOTIONS",
    "lightning": "dray.recipes.lightning:LIGHTNING",
    "torchrun": "dray.recipes.plain:TORCHRUN",
    "generic": "dray.recipes.plain:GENERIC",
}
GROUP = "dray.recipes"  # where other packages announce theirs


def find(name: str) -> Recipe:
    if name in RECIPES:
        module, _, attribute = RECIPES[name].partition(":")
        recipe: Recipe = getattr(importlib.import_module(module), attribute)
        return recipe
    others = announced()
    if name not in others:
        known = [*RECIPES, *others]
        raise NotFound(
            f"there is no recipe '{name}'.{nearest(name, known)}",
            hint=f"Known recipes: {', '.join(known)}.",
        )
    return load(others[name])


def all_recipes() -> Iterator[Recipe]:
    """Yield the built-in recipes, then those of other packages."""
    for name in RECIPES:
        yield find(name)
    for entry in announced().values():
        yield load(entry)


def announced() -> dict[str, Any]:
    """Return the entry points of other packages; a built-in name cannot be taken."""
    return plugins.announced(GROUP, RECIPES)


def load(entry: Any) -> Recipe:
    recipe: Recipe = plugins.load(entry, "the recipe")
    return recipe
