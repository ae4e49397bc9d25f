"""What is sent to PBS and what is read from it: pure functions.

The golden files are written after the sources of each qstat (OpenPBS 23, Torque 6, Slurm's own).
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.pbs import (
    batch_script,
    find_problem,
    make_plan,
    name_for,
    pbs_findings,
    waiting_reason,
)
from dray.job.model import JobSpec, Resources
from dray.node.schedulers.pbs import (
    Pbs,
    is_readable,
    kilobytes,
    node_shapes,
    parse_batch_state,
    parse_blocks,
    parse_duration,
    parse_jobs,
    parse_queue,
    parse_submitted,
    parse_time_left,
    submit_words,
)
from dray.node.schedulers.scheduler import CANCELLED, ENDED, REQUEUED, RUNNING, SchedulerError
from dray.programs import shipping

GOLDEN = Path(__file__).parent / "golden"
JOB = JobSpec(
    id="a-very-long-name-7f3k",
    name="a-very-long-name",
    command=("python", "train.py", "it's; $(rm -rf /)"),
    resources=Resources(gpus=2, cpus=8, memory=33 * 2**30, time=4 * 3600 + 1),
)
SETTINGS = {
    "account": "my_account",
    "queue": "gpu",
    "gpu_type": "a100",
    "chunk": "system=polaris",
    "modules": ("gcc/12",),
    "setup": ("ulimit -c 0",),
    "extra": ("-l place=excl",),
    "mail": "me@example.org",
}
SCRIPT = """\
#!/bin/bash -l
#PBS -N a-very-long-name-7f3k
#PBS -S /bin/bash
#PBS -o @ROOT@/jobs/a-very-long-name-7f3k/pbs.log
#PBS -j oe
#PBS -r y
#PBS -l select=1:ncpus=8:mem=33792mb:ngpus=2:gpu_type=a100:system=polaris
#PBS -l walltime=04:01:00
#PBS -A my_account
#PBS -q gpu
#PBS -m ae
#PBS -M me@example.org
#PBS -l place=excl
exec >>'@ROOT@/jobs/a-very-long-name-7f3k/batch.log' 2>&1
trap 'echo CANCELLED before the attempt; exit 143' TERM
module load gcc/12 || {
    echo 'module load gcc/12 failed: see the setting modules'
    exit 1
}
ulimit -c 0
[ $? = 0 ] || { echo 'setup failed: ulimit -c 0 (where that is fine, add: || true)'; exit 1; }
exec python3 -I -S '@ROOT@/node/APP' attempt '@ROOT@/jobs/a-very-long-name-7f3k'
""".replace("APP", shipping.name())


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


# -- what is sent -------------------------------------------------------------------------------


def test_the_batch_script_is_this() -> None:
    assert batch_script(JOB, SETTINGS) == SCRIPT


def test_torque_is_asked_in_its_own_words() -> None:
    script = batch_script(JOB, {**SETTINGS, "dialect": "torque"})
    assert "#PBS -N a-very-lon-7f3k\n" in script
    assert "#PBS -l nodes=1:ppn=8:gpus=2:a100:system=polaris\n#PBS -l mem=33792mb\n" in script
    assert "select" not in script


def test_nothing_of_the_command_is_in_the_script() -> None:
    plan = make_plan(JOB, "far", SETTINGS)
    words, script = plan.command[:-1], plan.command[-1]
    umask = ["-W", "umask=077"]
    assert submit_words(words, script, None, 0o077) == ["qsub", *umask, script]
    assert submit_words([], script, "7.pbs", 0o077) == [
        *("qsub", *umask),
        *("-W", "depend=afterany:7.pbs", script),
    ]
    assert "rm -rf" not in plan.files["batch.sh"]
    assert "rm -rf" in plan.files["job.json"]


def test_a_type_of_gpu_asked_for_wins() -> None:
    typed = replace(JOB, resources=Resources(gpus=1, gpu_type="h100"))
    script = batch_script(typed, {"gpu_type": "a100", "gpu_resource": "gpu_model"})
    assert "#PBS -l select=1:ncpus=1:ngpus=1:gpu_model=h100\n" in script


def test_a_plain_job_asks_for_little() -> None:
    plain = batch_script(JobSpec(id="x-1", name="x", command=("true",)), {})
    assert "#PBS -l select=1:ncpus=1\n" in plain
    for word in ("mem=", "walltime", "gpus", "-A", "-q", "module"):
        assert word not in plain


def test_fractions_are_refused() -> None:
    found = find_problem(replace(JOB, resources=Resources(gpus=0.5)), {}, {})
    assert found is not None
    assert "whole GPUs" in found.what
    assert find_problem(JOB, {}, {}) is None


def test_what_no_node_has_is_told_before() -> None:
    queue = {"enabled": "True", "resources_max.walltime": "24:00:00"}
    node = {"cpus": 64, "kilobytes": 256 << 20, "gpus": 4, "nodes": 2}
    found = {"queues": {"gpu": queue}, "nodes": [node]}

    def problem(settings: dict[str, object], **wanted: object) -> str:
        job = replace(JOB, resources=Resources(**wanted))  # type: ignore[arg-type]
        problem = find_problem(job, settings, found)
        return problem.what if problem else ""

    assert problem({}, gpus=4, gpu_type="a100", cpus=64, time=3600.0) == ""
    assert "no node of queue gpu has more than 4" in problem({}, gpus=5)
    assert "queue gpu allows 1d" in problem({"queue": "gpu"}, time=2 * 86400.0)
    assert problem({"queue": "old"}) == "there is no queue 'old'"
    assert problem({"queue": "old@elsewhere"}) == ""
    assert problem({"extra": ("-q other",)}, gpus=5) == ""


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,39}-[a-z0-9]{4}", fullmatch=True))
def test_names_that_torque_takes(job_id: str) -> None:
    name = name_for(job_id, 15)
    assert len(name) <= 15
    assert name[0].isalpha()
    assert name.endswith(job_id[-5:])
    assert len(job_id) > 14 or name.endswith(job_id)


# -- what is read -------------------------------------------------------------------------------


def test_the_queue_of_openpbs() -> None:
    found = parse_queue(golden("openpbs-qstat.json"))
    assert {job: (row["id"], row["state"], row["why"]) for job, row in found.items()} == {
        "anymal-7f3k": (
            "1203.pbs",
            "running",
            "Job run at Sun Oct 19 at 07:49 on (node03:ncpus=8:mem=34603008kb:ngpus=1)",
        ),
        "a-very-long-name-of-a-training-run-b2c4": (
            "1204.pbs",
            "waiting",
            "Not Running: Insufficient amount of resource: ngpus (R: 4 A: 1 T: 8)",
        ),
        "anymal-9x9x": ("1205.pbs", "waiting", "Dependency"),
        "held-2222": (
            "1206.pbs",
            "waiting",
            "Held u Job held by ada on Sun Oct 19 07:00:00 2025",
        ),
    }
    assert found["a-very-long-name-of-a-training-run-b2c4"]["start"] == "Sun Oct 19 21:00:00 2025"


def test_text_and_json_say_the_same() -> None:
    text, json = (parse_jobs(golden(f"openpbs-qstat.{kind}")) for kind in ("txt", "json"))
    one, other = text["1203.pbs"], json["1203.pbs"]
    same = ("job_state", "Resource_List.walltime", "resources_used.walltime", "stime", "substate")
    assert [one[key] for key in same] == [other[key] for key in same]
    assert one["comment"] == other["comment"]
    assert list(parse_queue(golden("openpbs-qstat.txt"))) == ["anymal-7f3k"]


def test_json_that_is_none_is_noticed() -> None:
    assert is_readable(golden("openpbs-qstat.json"))
    assert not is_readable(golden("openpbs-qstat-not-json.json"))


def test_the_queue_of_torque() -> None:
    found = parse_queue(golden("torque-qstat.txt"))
    assert {job: (row["id"], row["state"]) for job, row in found.items()} == {
        "a-very-long-name-b2c4": ("4711.torque.example.org", "waiting"),
        "ending-5555": ("4714.torque.example.org", "ending"),
    }


def test_the_queue_of_slurms_own_qstat() -> None:
    found = parse_queue(golden("slurm-torque-qstat.txt"))
    assert found == {"train-k2m4": {"id": "3", "state": "waiting", "why": "", "start": ""}}


def test_a_successor_is_found_before_what_it_waits_for() -> None:
    block = "Job Id: {}.pbs\n    job_state = {}\n    Output_Path = h:/r/jobs/x-1/pbs.log\n\n"
    text = block.format(100, "H") + block.format(99, "R")
    assert parse_queue(text)["x-1"]["id"] == "100.pbs"


class Scripted(Pbs):
    """A PBS in which the job goes on as number 2 after it was asked for this user's numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = [["1.pbs"], ["2.pbs"]]
        self.asked: list[list[str]] = []

    def _own_numbers(self) -> list[str]:
        return self.lists.pop(0)

    def _full(self, numbers: list[str], patience: float = 0.0) -> str:  # noqa: ARG002
        self.asked.append(numbers)
        path = "Output_Path = h:/r/jobs/x-1/pbs.log"
        return "".join(
            f"Job Id: {number}\n    job_state = {'F' if number == '1.pbs' else 'H'}\n    {path}\n"
            for number in numbers
        )


def test_a_job_that_goes_on_between_two_questions_is_not_lost() -> None:
    pbs = Scripted()
    assert pbs.queue()["x-1"]["id"] == "2.pbs"
    assert pbs.asked == [["1.pbs"], ["2.pbs"]]
    pbs.lists = [["1.pbs"], ["1.pbs"]]  # as Torque still lists what is over
    assert pbs.queue() == {}


def as_pbs_breaks_lines(name: str, value: str) -> str:
    """prt_attr() of qstat.c, which OpenPBS and Torque share."""
    out, start, first = f"    {name} = ", len(name) + 7, True
    pieces = [piece for piece in value.split(",") if piece]
    for at, piece in enumerate(pieces):
        if len(piece) + start < 78:
            out += piece
            start += len(piece)
        else:
            if not first:
                out += "\n\t"
                start = 9
            for letter in piece:
                out += letter
                start += 1
                if start > 78:
                    out += "\n\t"
                    start = 8
        if at < len(pieces) - 1:
            out += ","
            first = False
    return out + "\n"


PIECES = st.lists(st.text("ab/=:. 🤖ü", min_size=1, max_size=120), min_size=1)
VALUES = PIECES.map(",".join).filter(lambda value: value == value.strip())


@given(VALUES, VALUES)
def test_long_values_are_put_together_again(first: str, second: str) -> None:
    pairs = {"Output_Path": first, "comment": second}
    text = "Job Id: 1.pbs\n" + "".join(as_pbs_breaks_lines(*pair) for pair in pairs.items())
    assert parse_blocks(text, "Job Id:") == {"1.pbs": pairs}


@given(st.text())
def test_rubbish_is_survived(text: str) -> None:
    parse_blocks(text, "Job Id:")
    if is_readable(text):
        parse_queue(text)


def test_qsub_answers() -> None:
    assert parse_submitted("1203.pbs\n") == "1203.pbs"
    assert parse_submitted("a banner\n12\n") == "12"
    assert parse_submitted("7[].server.example.org\n") == "7[].server.example.org"
    for text in ("", "qsub: illegal -N value\n"):
        with pytest.raises(SchedulerError):
            parse_submitted(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("04:00:00", 14400.0), ("00:05", 5.0), ("90", 90.0), ("UNLIMITED", None), ("", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_time_left() -> None:
    now = time.mktime((2025, 10, 19, 8, 0, 0, 0, 0, -1))
    openpbs = parse_jobs(golden("openpbs-qstat.json"))
    torque = parse_jobs(golden("torque-qstat.txt"))
    assert parse_time_left(openpbs["1203.pbs"], now) == 4 * 3600 - 605
    assert parse_time_left(torque["4712.torque.example.org"], now) == 3600 - 310
    assert parse_time_left(openpbs["1204.pbs"], now) == 24 * 3600  # not started
    assert parse_time_left(openpbs["1206.pbs"], now) is None  # no limit
    assert parse_time_left(openpbs["1203.pbs"], now + 10**6) == 0


@pytest.mark.parametrize(
    ("attributes", "batch_state"),
    [
        ({"job_state": "R", "substate": "42"}, RUNNING),
        ({"job_state": "R", "substate": "60"}, REQUEUED),  # being rerun
        ({"job_state": "S"}, RUNNING),
        ({"job_state": "Q"}, REQUEUED),
        ({"job_state": "E"}, CANCELLED),
        ({"job_state": "C"}, CANCELLED),
        ({}, CANCELLED),  # deleted by force: PBS no longer knows it
        (
            {
                "job_state": "R",
                "Resource_List.walltime": "00:01:00",
                "resources_used.walltime": "00:01:02",
            },
            ENDED,
        ),
    ],
)
def test_what_becomes_of_a_batch_job(attributes: dict[str, str], batch_state: str) -> None:
    assert parse_batch_state(attributes, 0.0) == batch_state


# -- in plain words -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("Not Running: Insufficient amount of resource: ngpus (R: 4 A: 1 T: 8)", "free: GPUs"),
        ("Not Running: Insufficient amount of queue resource: ncpus", "not enough free: CPUs"),
        ("Not Running: Not enough free nodes available", "enough free nodes"),
        ("Not Running: Job would conflict with reservation or top job", "others are before it"),
        ("Not Running: User has reached queue gpu running job limit.", "as many jobs running"),
        ("Not Running: Queue gpu job limit reached for user ada", "as many jobs running"),
        ("Not Running: would exceed user ada's limit on resource ngpus in complex", "may: GPUs"),
        ("Not Running: Server per-group limit reached on resource mem", "group uses as much"),
        ("Not Running: Queue not started", "its queue is stopped"),
        ("Can Never Run: Insufficient amount of resource: ngpus", "it can never run: Insuff"),
        ("Dependency", "the attempt before it"),
        ("Held u Job held by ada", "held by you"),
        ("Held s too many failed attempts to run", "PBS itself: too many failed"),
        ("Held s", "held by an administrator, or by PBS itself"),
        ("Something else", "PBS says: Something else"),
    ],
)
def test_reasons(why: str, says: str) -> None:
    assert says in waiting_reason({"why": why, "start": ""})


def test_when_it_may_start() -> None:
    assert waiting_reason({"why": "", "start": "Sun"}) == ""
    assert "; start expected at Sun" in waiting_reason({"why": "BeginTime", "start": "Sun"})


NODES = """\
node01
     Mom = node01.example.org
     state = free
     resources_available.mem = 263789532kb
     resources_available.ncpus = 64
     resources_available.ngpus = 4
     resources_assigned.mem = 0kb

node02
     state = free
     np = 8
     status = rectime=1,physmem=65840000kb,ncpus=8
     gpus = 2

node03
     state = free
     np = 8
     status = rectime=2,physmem=65840000kb,ncpus=8
     gpus = 2
"""


def test_what_there_is() -> None:
    assert node_shapes(NODES) == [
        {"cpus": 8, "kilobytes": 65840000, "gpus": 2, "nodes": 2},
        {"cpus": 64, "kilobytes": 263789532, "gpus": 4, "nodes": 1},
    ]
    assert node_shapes("") == []
    assert [kilobytes(text) for text in ("2048b", "3kb", "2mb", "1gb", "odd")] == [
        2,
        3,
        2048,
        1 << 20,
        0,
    ]


def test_what_doctor_says() -> None:
    queues = parse_blocks(
        "Queue: gpu\n    resources_max.walltime = 24:00:00\n    enabled = True\n"
        "    started = True\n\nQueue: old\n    enabled = False\n    started = True\n",
        "Queue:",
    )
    hello = {"version": "x", "dialect": "openpbs", "queues": queues, "nodes": node_shapes(NODES)}

    def bad(**settings: str) -> list[str]:
        return [one.detail for one in pbs_findings(hello, settings) if not one.ok]

    details = [one.detail for one in pbs_findings(hello, {})]
    assert "gpu: limit 24:00:00, open" in details
    assert "2 nodes of 8 CPUs, 62.8 GB, 2 GPUs" in details
    assert bad() == bad(queue="gpu") == bad(queue="elsewhere@other") == []
    assert bad(queue="old") == ["old: closed"]
    assert bad(queue="nosuch") == ["there is no queue 'nosuch'"]
    assert bad(dialect="torque") == ["this looks like openpbs"]
    (missing,) = pbs_findings({"queues_error": "qstat: command not found"}, {})
    assert not missing.ok
