"""Every setting is declared once: its default, how two values are merged, who sets it."""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dray import recipes
from dray.config.loading import combine
from dray.job import model, options
from dray.job.options import kinds, shared
from dray.job.options.option import Option
from dray.node.containers.known import NAMES

EVERY = [
    *options.JOB,
    *options.SNAPSHOT,
    *options.NOTIFY,
    *options.RECIPE_ONLY,
    *(one for known in options.CLUSTERS.values() for one in known),
]


@pytest.mark.parametrize("option", EVERY, ids=lambda one: one.key)
def test_a_default_is_a_value_that_the_option_itself_takes(option: Option) -> None:
    if option.default is not None:
        assert option.initial == option.parse(option.default)
        assert option.shown_default or option.default in ({}, "")
    assert option.initial != [], "values are frozen"
    assert (option.initial == ()) == (option.many and option.default is None)


@pytest.mark.parametrize("option", options.RECIPE_ONLY, ids=lambda one: one.key)
def test_an_example_of_a_recipes_own_setting_is_valid(option: Option) -> None:
    option.parse(tomllib.loads(f"value = {option.example}")["value"])


def test_the_settings_say_otherwise() -> None:
    nodes = options.DECLARED["job.resources.nodes"]
    assert (nodes.of({}), nodes.of({"job.resources.nodes": 3})) == (1, 3)
    assert nodes.of({"job.resources.nodes": None}) is None
    assert (shared.PYTHON.of({}), shared.PYTHON.of({"python": "py"})) == ("python3", "py")
    assert options.SNAPSHOT_SIZE.of({}) == 2**30


def test_what_is_merged_and_what_replaces() -> None:
    settings: dict[str, Any] = {
        "job.env": {"A": "1", "B": "1"}, "job.secrets": ("X",), "job.outputs": ("logs/deep", "out"),
        "job.container.caches": ("pip:~/x",),
    }  # fmt: skip
    stronger: dict[str, Any] = {
        "job.env": {"B": "2"}, "job.secrets": ("Y", "X"), "job.outputs": ("logs",),
        "job.container.caches": ("kit:~/y",), "job.container.binds": ("/a",),
    }  # fmt: skip
    combine(settings, stronger)
    assert settings == {
        "job.env": {"A": "1", "B": "2"}, "job.secrets": ("X", "Y"), "job.outputs": ("out", "logs"),
        "job.container.caches": ("kit:~/y",), "job.container.binds": ("/a",),
    }  # fmt: skip


def test_the_model_of_a_job_has_the_same_defaults() -> None:
    """They are those of a description that an earlier dray wrote."""
    for table, kind in (("resources", model.Resources), ("container", model.Container),
                        ("resume", model.Resume)):  # fmt: skip
        for field in fields(kind):
            option = options.DECLARED.get(f"job.{table}.{field.name}")
            if option is not None and option.default is not None and field.name != "gpus":
                assert field.default == option.initial, option.key


def test_a_recipe_sets_only_what_is_declared() -> None:
    for recipe in recipes.all_recipes():
        for key, value in recipe.settings.items():
            assert key in options.DECLARED, (recipe.name, key)
            declared = [one for one in EVERY if one.key == key]
            assert any(takes(one, value) for one in declared), (recipe.name, key, value)


def takes(option: Option, value: Any) -> bool:
    try:
        option.parse(value)
    except ValueError:
        return False
    return True


def test_every_rule_of_resuming_is_declared() -> None:
    renamed = {"args": "resume_args", "signal": "checkpoint_signal"}
    for field in fields(model.Resume):
        assert f"job.resume.{renamed.get(field.name, field.name)}" in options.DECLARED


def test_the_help_names_every_runtime() -> None:
    assert all(f"`{name}`" in shared.RUNTIME.help for name in NAMES)
    assert shared.RUNTIME.parse("enroot") == "enroot"
    with pytest.raises(ValueError, match="'docker' is none of auto, apptainer"):
        shared.RUNTIME.parse("docker")


def test_a_kinds_settings_are_read_without_what_acts_on_them() -> None:
    """What reads a file must not import transports and the node side."""
    from dray.clusters.options import kubernetes, local, pbs, ray, slurm, ssh

    for module in (local, slurm, pbs, ssh, kubernetes, ray):
        source = Path(inspect.getfile(module)).read_text()
        imported = {line.split()[1] for line in source.splitlines() if line.startswith("from dray")}
        assert all(name.startswith("dray.job.") for name in imported), imported
    assert [kinds.find(name).cluster for name in kinds.BUILT_IN] == [
        "dray.clusters.local:LocalCluster",
        "dray.clusters.slurm:SlurmCluster",
        "dray.clusters.pbs:PbsCluster",
        "dray.clusters.ssh:SshCluster",
        "dray.clusters.kubernetes:KubernetesCluster",
        "dray.clusters.ray:RayCluster",
    ]
