"""A machine without a scheduler behind SSH: what is planned, what refused, what its queue tells."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dray.clusters.ssh import equipment_of, find_problem, keeper_script, make_plan
from dray.job.model import Equipment, Resources
from dray.job.options.values import absolute_path
from dray.node.schedulers.local import Local, capacity_of, job_of, place_in
from dray.programs import shipping
from tests.unit.test_pbs_plan import JOB

FACTS = {"nodes": [{"nodes": 1, "cpus": 16, "kilobytes": 64 << 20, "gpus": 4}]}
HAVE = Equipment(cpus=16, memory=64 << 30, gpus=4)
MACHINE = {"cpus": 16, "memory": 64 << 30, "gpus": 4}


# -- the plan -----------------------------------------------------------------------------------


def test_the_script_hands_the_locks_to_the_keeper() -> None:
    folder, app = f"@ROOT@/jobs/{JOB.id}", f"@ROOT@/node/{shipping.name()}"
    assert keeper_script(JOB, {"python": "/opt/my python"}).splitlines() == [
        "#!/bin/bash -l",
        f"exec >>'{folder}/batch.log' 2>&1",
        f"exec '/opt/my python' -I -S '{app}' keep '{folder}' \"$1\" \"$2\"",
    ]


def test_modules_and_setup_come_before_it() -> None:
    lines = keeper_script(JOB, {"modules": ["cuda"], "setup": ["ulimit -c 0"]}).splitlines()
    assert lines.index("module load cuda || {") < lines.index("ulimit -c 0") < len(lines) - 1


def test_the_job_says_what_the_settings_declare() -> None:
    plan = make_plan(JOB, "box", {"gpus": 0, "cpus": 8, "host": "workstation"})
    assert json.loads(plan.files["job.json"])["scheduler"] == {"kind": "ssh", "gpus": 0, "cpus": 8}


def test_the_job_says_with_whom_it_shares_the_machine() -> None:
    shared = make_plan(JOB, "box", {"share": "/var/lib/dray-share"})
    assert json.loads(shared.files["job.json"])["share"] == "/var/lib/dray-share"
    assert "share" not in json.loads(make_plan(JOB, "box", {}).files["job.json"])


@pytest.mark.parametrize("value", ["share", "~/share", "$HOME/share", "/", "", "/a\nb", 7])
def test_the_shared_folder_is_the_same_for_everybody(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be the whole path|is not a text"):
        absolute_path(value)
    assert absolute_path("/var//lib/./dray-share/") == "/var/lib/dray-share"


# -- what is refused ----------------------------------------------------------------------------


def test_settings_come_before_what_was_found() -> None:
    assert equipment_of(FACTS, {}) == HAVE
    declared = equipment_of(FACTS, {"gpus": 0, "cpus": 8})
    assert declared == HAVE._replace(gpus=0, cpus=8)
    assert equipment_of({}, {"gpus": 2}) is None


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (Resources(gpus=5), "5 GPUs asked for, and the machine has 4"),
        (Resources(gpus=4.5), "4.5 GPUs asked for, and the machine has 4"),
        (Resources(cpus=17), "17 CPUs asked for, and the machine has 16"),
        (Resources(memory=65 << 30), "65.0 GB of memory asked for, and the machine has 64.0 GB"),
        (Resources(nodes=2), "a command is started once there, on one machine"),
        (Resources(gpus=1, gpu_type="a100"), "GPUs are not asked for by type there"),
        (Resources(gpus=0.5), None),
        (Resources(gpus=4, cpus=16, memory=64 << 30), None),
    ],
)
def test_what_the_machine_does_not_have(wanted: Resources, what: str | None) -> None:
    found = find_problem(replace(JOB, resources=wanted), HAVE)
    assert (found.what if found else None) == what


def test_of_an_unknown_machine_nothing_is_refused() -> None:
    assert find_problem(replace(JOB, resources=Resources(gpus=64)), None) is None


# -- the queue there ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "known", "counted", "gpus"),
    [
        ({}, {}, True, 4),
        ({"gpus": 2}, {"gpus": 4}, True, 2),
        ({"gpus": 0}, {"gpus": 4}, False, 0),
        ({}, {"gpus": 8}, False, 8),  # not counted for this job: what is known stays
        ({}, {"gpus": 8}, True, 4),
    ],
)
def test_what_jobs_may_use(
    declared: dict[str, Any], known: dict[str, Any], counted: bool, gpus: int
) -> None:
    assert capacity_of(MACHINE, declared, known, counted)["gpus"] == gpus


def test_the_place_in_the_queue() -> None:
    line = ["walk-1", "run-2"]
    assert place_in(line, 0, "") == ""
    assert place_in(line, 0, "waiting for 1 GPU") == "next in the queue, waiting for 1 GPU"
    assert place_in(line, 1, "") == "place 2 in the queue, behind walk-1"


def test_a_number_names_its_job() -> None:
    assert job_of("000000000012-walk-7f3k") == "walk-7f3k"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        '{"../up": {"id": "1", "state": "waiting", "why": ""}}',
        '{"walk-7f3k": {"id": 1, "state": "waiting", "why": ""}}',
        '{"walk-7f3k": []}',
    ],
)
def test_a_damaged_listing_names_no_job(tmp_path: Path, text: str) -> None:
    assert Local(str(tmp_path)).parse_queue(text) == {}


def test_an_empty_root_has_an_empty_queue(tmp_path: Path) -> None:
    assert Local(str(tmp_path)).queue() == {}
    Local(str(tmp_path)).cancel(["1-walk-7f3k", "1-../../up", "rubbish"])
