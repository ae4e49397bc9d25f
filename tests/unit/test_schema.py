"""The JSON schema of dray.toml takes what dray takes, and marks what it refuses."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dray.config.reading import read_file
from dray.errors import ConfigError
from dray.job import options
from dray.job.options.option import Option
from dray.job.options.schema import TAKEN, schema, taken
from dray.job.options.values import Choice

TOP = Path(__file__).parents[2]
PAGES = [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.M | re.S)
EXAMPLES = [
    (f"{page.relative_to(TOP)}-{number}", block)
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text()))
    if "[sweep]" not in block and "[[jobs]]" not in block  # a sweep's, a batch's: see test_docs
]
CLUSTER_OPTIONS = [one for known in options.CLUSTERS.values() for one in known]


def mistakes(text: str) -> list[str]:
    found = as_json(tomllib.loads(text))
    checker = jsonschema.Draft7Validator(schema())
    return [error.message for error in checker.iter_errors(found)]


def as_json(value: Any) -> Any:
    """As a TOML server hands it to the schema."""
    if isinstance(value, dict):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_json(one) for one in value]
    return value.isoformat() if isinstance(value, date | datetime | time) else value


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(schema())
    assert json.loads(json.dumps(schema())) == schema()


@pytest.mark.parametrize(("place", "block"), EXAMPLES, ids=[place for place, _ in EXAMPLES])
def test_the_docs_examples_are_valid(place: str, block: str) -> None:
    assert mistakes(block) == [], place


@pytest.mark.parametrize(
    "option", [*options.JOB, *options.SNAPSHOT, *options.NOTIFY], ids=lambda one: one.key
)
def test_an_options_own_example_is_valid(option: Option) -> None:
    assert mistakes(f"{option.key} = {option.example}") == []


@pytest.mark.parametrize("kind", options.CLUSTERS)
def test_a_cluster_of_each_kind(kind: str) -> None:
    lines = [f"{one.name} = {one.example}" for one in options.CLUSTERS[kind]]
    assert mistakes("\n".join(["[clusters.mine]", *lines])) == []


@pytest.mark.parametrize(
    "option",
    [*options.JOB, *options.SNAPSHOT, *options.NOTIFY, *CLUSTER_OPTIONS],
    ids=lambda one: one.key,
)
def test_every_parser_is_described_and_takes_the_default(option: Option) -> None:
    assert isinstance(option.parse, Choice) or option.parse in TAKEN
    if option.default is not None:
        jsonschema.validate(option.default, taken(option))


def test_a_cluster_that_is_known_already_and_one_of_another_package() -> None:
    assert mistakes('[clusters.mine]\npartition = "gpu"') == []
    assert mistakes('[clusters.mine]\nkind = "of-others"\ncolour = "red"') == []


@pytest.mark.parametrize(
    "text",
    [
        "[jobs]",
        "[job]\nnmae = 'x'",
        "[job]\nname = 'Not This'",
        "[job]\nlaunch = 'mpi'",
        "[job]\nretries = -1",
        "[job]\noutputs = 'logs'",
        "[job]\noutputs = ['/logs']",
        "[job]\nretry_on = [0]",
        "[job.env]\n'A B' = '1'",
        "[job.env]\nA = true",
        "[job.resources]\ntime = 4",
        "[job.resources]\ntime = '04:00'",
        "[job.resources]\ngpus = 'many'",
        "[job.resources]\nmemory = '32 gigabytes'",
        "[job.container]\nwritable = 'yes'",
        "[job.resume]\nanew = true",
        "[snapshot]\nmax_size = 'big'",
        "[notify]\non = ['never']",
        "[clusters.mine]\nkind = 'slurm'\nqueue = 'gpu'",
        "[clusters.mine]\nkind = 'pbs'\npartition = 'gpu'",
        "[clusters.mine]\nkind = 'local'\ngpus = 'two'",
        "[clusters.mine]\nkind = 7",
        "[clusters.mine]\ncolour = 'red'",
        "[clusters.mine]\nkind = 'slurm'\nhost = '-oProxyCommand=x'",
        "[clusters.'my cluster']\nkind = 'slurm'",
    ],
)
def test_what_dray_refuses_is_marked(text: str, tmp_path: Path) -> None:
    assert mistakes(text) != []
    (tmp_path / "x.toml").write_text(text)
    if "kind" in text or "[clusters" not in text:
        with pytest.raises(ConfigError):
            read_file(tmp_path / "x.toml")
