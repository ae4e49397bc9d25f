"""The declared types of a job's files (node/formats/records.pyi): the same keys and types as the
checks by which they are read, and the same keys as what the laptop writes."""

from __future__ import annotations

import runpy
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import pytest

from dray.clusters.agent import answers
from dray.images.push import Source
from dray.job import model
from dray.job.model import Attempt, JobSpec
from dray.node.formats import files, records, shapes
from dray.node.notifications import notices, notify
from dray.node.schedulers import kubernetes, queue, rows
from dray.node.sweeps import study
from dray.programs import shipping

STUB = Path(records.__file__).with_suffix(".pyi")
TYPES = runpy.run_path(str(STUB))

# A check of a value → the types of what passes it.
ACCEPTED: Mapping[Callable[[Any], bool], Iterable[str]] = {
    shapes.is_text: ("str",),
    shapes.is_place: ("str",),
    shapes.is_id: ("str",),
    shapes.is_path_inside: ("str",),
    shapes.is_pattern: ("str",),
    shapes.is_flag: ("bool",),
    shapes.is_count: ("int",),
    shapes.is_version: ("int",),
    shapes.is_number: ("float",),
    shapes.is_moment: ("float",),
    shapes.is_texts: ("List[str]",),
    shapes.is_paths_inside: ("List[str]",),
    shapes.is_counts: ("List[int]",),
    shapes.is_use: ("List[int]",),
    shapes.is_variables: ("Dict[str, str]",),
    shapes.is_links: ("Dict[str, str]",),
    shapes.is_origin: ("Origin",),
    shapes.is_after: ("Dict[str, str]",),
    shapes.is_inputs: ("Dict[str, Input]",),
    shapes.is_metric: ("Metric",),
    shapes.is_sweep: ("SweepPart",),
    study.is_rungs: ("Dict[str, float]",),
    study.is_levels: ("Dict[str, float]",),
    study.is_objectives: ("List[Any]",),
    study.is_exchanges: ("List[Exchange]",),
    shapes.is_rule: ("TotalRule",),
    shapes.is_rules: ("List[Lookup]",),
    shapes.is_never: ("GivenPlaces",),
    shapes.is_record: (
        "Resources",
        "Resume",
        "Metrics",
        "Container",
        "SchedulerSettings",
        "Limits",
        "Dict[str, Any]",
    ),
    notify.is_addresses: ("Dict[str, str]",),
    notify.is_channels: ("Dict[str, List[str]]",),
    notices.is_end: ("End",),
}
# Types whose values are checked by a shape, and the keys that are made here or checked elsewhere.
CHECKED = [
    ("Description", shapes.DESCRIPTION, {"commands", "count"}),  # of an array: see arrays
    ("SweepPart", shapes.SWEEP, set()),
    ("ResultRecord", {**study.RESULT, "value": shapes.is_number}, set()),
    ("Exchange", study.EXCHANGE, set()),
    ("PartRecord", study.PART, set()),
    ("Resources", shapes.RESOURCES, set()),
    ("Resume", shapes.RESUME, set()),
    ("Limits", shapes.LIMITS, set()),
    ("Metrics", shapes.METRICS, set()),
    ("AttemptRecord", shapes.ATTEMPT, {"number"}),
    ("End", shapes.END, set()),
    ("NoticeSettings", {**notify.SETTINGS, "end": notices.is_end}, set()),
    ("Capacity", queue.CAPACITY, set()),
    ("Granted", queue.GRANT, set()),
    ("Row", rows.ROW, {"start", "array", "per_node"}),
    ("QueueGroup", kubernetes.GROUP, set()),
    ("End", kubernetes.ROW_END, {"time"}),
]


def keys(name: str) -> set[str]:
    return set(TYPES[name].__annotations__)


def spelled(declared: Any) -> str:
    """A type as the stub spells it, without Optional."""
    if get_origin(declared) is Union and type(None) in get_args(declared):
        (declared,) = (one for one in get_args(declared) if one is not type(None))
    if get_origin(declared) in (list, dict):
        inner = ", ".join(spelled(one) for one in get_args(declared))
        return f"{get_origin(declared).__name__.capitalize()}[{inner}]"
    return str(declared.__name__)


@pytest.mark.parametrize(("name", "shape", "others"), CHECKED, ids=[one[0] for one in CHECKED])
def test_every_key_that_is_checked_is_declared_and_the_reverse(
    name: str, shape: shapes.Shape, others: set[str]
) -> None:
    assert keys(name) - others == set(shape)
    for key, check in shape.items():
        assert spelled(TYPES[name].__annotations__[key]) in ACCEPTED[check], key


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("Description", shapes.NEEDED),
        ("Resume", shapes.RESUME_NEEDED),
        ("AttemptRecord", ("number", "outcome")),
    ],
)
def test_what_nothing_lacks_is_required(name: str, needed: tuple[str, ...]) -> None:
    assert TYPES[name].__required_keys__ == set(needed)


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "written", "added"),
    [
        (
            "Description",
            JobSpec,
            {"scheduler", "share", "order", "commands", "count"},
        ),  # by the plan of a cluster
        ("Resources", model.Resources, set()),
        ("Resume", model.Resume, {"given"}),
        ("Limits", model.Limits, set()),
        ("Metrics", model.Metrics, set()),
        ("Container", model.Container, set()),
    ],
)
def test_a_description_has_the_keys_of_the_laptops_own(
    name: str, written: Any, added: set[str]
) -> None:
    assert keys(name) - added == set(written.__fields__)


def test_a_written_description_is_read_as_such() -> None:
    container = model.Container(image="/images/train.sif")
    spec = JobSpec(id="a-1", name="a", command=("true",), container=container)
    read = read_again(spec)
    unwritten = {"scheduler", "share", "order", "commands", "count"}
    assert set(read) == keys("Description") - unwritten
    assert shapes.description(read) is read


def read_again(spec: JobSpec) -> dict[str, Any]:
    return dict(files.decode(files.encode(spec.to_dict())) or {})


def test_the_attempts_of_a_job_are_told_to_the_laptop() -> None:
    assert set(Attempt(number=1).to_dict()) <= keys("AttemptRecord")


def test_three_files_make_up_an_attempt() -> None:
    """The types of those that are in two of them are the same in both, and in the record."""
    parts = ("About", "Heartbeat", "Outcome")
    assert set().union(*map(keys, parts)) | {"number"} == keys("AttemptRecord")
    for part in parts:
        for key, declared in TYPES[part].__annotations__.items():
            whole = TYPES["AttemptRecord"].__annotations__[key]
            assert spelled(declared) == spelled(whole), (part, key)


def test_an_image_is_announced_with_the_declared_keys() -> None:
    image = Source("sha256:0", "a", "layers", "sif", "amd64", 1, (), "{}", lambda _: nullcontext())
    assert set(image.record("a-1", keep_layers=True)) == keys("ImageRecord")


def test_the_laptop_reads_the_facts_that_a_site_tells() -> None:
    assert keys("SiteFacts") - set(answers.FACTS) == {"config_error"}
    assert set(answers.FACTS) <= keys("SiteFacts")


# -- versions -------------------------------------------------------------------------------------


def test_descriptions_of_other_versions_are_read() -> None:
    first = read_again(JobSpec(id="a-1", name="a", command=("true",)))
    del first["version"]  # the first had none
    later = {**first, "version": shapes.DESCRIPTION_VERSION + 1, "unheard_of": [1]}
    for one in (first, {**first, "version": shapes.FIRST_VERSION}, later):
        assert shapes.description(one) is one


@pytest.mark.parametrize("version", ["2", 0, -1, 1.5, True, [2]])
def test_what_is_no_version_is_damage(version: object) -> None:
    record = read_again(JobSpec(id="a-1", name="a", command=("true",)))
    assert shapes.description({**record, "version": version}) is None


# -- costs ----------------------------------------------------------------------------------------


def test_clusters_are_not_sent_the_types() -> None:
    with zipfile.ZipFile(BytesIO(shipping.app().content)) as archive:
        names = archive.namelist()
        assert not any(name.endswith(".pyi") for name in names)
        assert b"TypedDict" not in archive.read("dray_node/formats/records.py")


def test_nobody_loads_the_types() -> None:
    script = "import dray.node.agent.agent, sys; print('dray.node.formats.records' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert told.stdout == b"False\n"
