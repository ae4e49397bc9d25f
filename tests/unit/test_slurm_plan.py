"""What is sent to Slurm and what is read from it: pure functions."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.agent.upload import change_of
from dray.clusters.slurm import (
    batch_script,
    facts_of,
    find_problem,
    gpus_by_type,
    make_array_plan,
    make_plan,
    parse_partitions,
    sbatch_flags,
    slurm_findings,
    waiting_reason,
)
from dray.job.model import JobArray, JobSpec, Resources
from dray.node.agent.snapshots import read_manifest
from dray.node.code.packs import Packs
from dray.node.schedulers.scheduler import (
    CANCELLED,
    ENDED,
    REQUEUED,
    RUNNING,
    UNKNOWN,
    SchedulerError,
    planned_words,
)
from dray.node.schedulers.slurm import (
    number_of,
    parse_batch_state,
    parse_config,
    parse_ends,
    parse_queue,
    parse_submitted,
    parse_time_left,
    srun_words,
    submit_words,
)
from dray.programs import shipping

JOB = JobSpec(
    id="anymal-7f3k",
    name="anymal",
    command=("python", "train.py", "it's; $(rm -rf /)"),
    resources=Resources(gpus=2, cpus=8, memory=33 * 2**30, time=4 * 3600),
)
SETTINGS = {
    "account": "my_account",
    "partition": "gpu,long",
    "gpu_type": "a100",
    "modules": ("eth_proxy", "gcc/12"),
    "setup": ("ulimit -c 0",),
    "extra": ("--licenses=matlab",),
    "mail": "me@example.org",
    "python": "/opt/python 3/bin/python3",
}
GOLDEN = """\
#!/bin/bash -l
#SBATCH --output=@ROOT@/jobs/anymal-7f3k/batch.log
#SBATCH --job-name=anymal-7f3k
#SBATCH --comment=dray:anymal-7f3k
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=33792M
#SBATCH --time=240
#SBATCH --gres=gpu:a100:2
#SBATCH --account=my_account
#SBATCH --partition=gpu,long
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=END,FAIL
#SBATCH --licenses=matlab
trap 'echo CANCELLED before the attempt; exit 143' TERM
module load eth_proxy gcc/12 || {
    echo 'module load eth_proxy gcc/12 failed: see the setting modules'
    exit 1
}
ulimit -c 0
[ $? = 0 ] || { echo 'setup failed: ulimit -c 0 (where that is fine, add: || true)'; exit 1; }
exec '/opt/python 3/bin/python3' -I -S '@ROOT@/node/APP' attempt '@ROOT@/jobs/anymal-7f3k'
""".replace("APP", shipping.name())


def test_the_batch_script_is_this() -> None:
    assert batch_script(JOB, SETTINGS) == GOLDEN


def test_a_job_that_resumes_takes_a_shorter_slot() -> None:
    job = replace(JOB, resources=replace(JOB.resources, time_min=3601.0))
    script = batch_script(job, SETTINGS)
    assert script == GOLDEN.replace("--time=240\n", "--time=240\n#SBATCH --time-min=61\n")


def test_an_array_is_one_script_and_every_command() -> None:
    plan = make_array_plan(JobArray(JOB, (("a",), ("b", "it's"))), "euler", SETTINGS)
    array, single = plan.files["batch.sh"], plan.files["job.sh"]
    assert array == (
        GOLDEN.replace("/jobs/anymal-7f3k/batch.log", "/arrays/anymal-7f3k/%a.log")
        .replace("#SBATCH --licenses=matlab\n", "#SBATCH --licenses=matlab\n#SBATCH --array=0-1\n")
        .replace("/jobs/", "/arrays/")
    )
    assert single == GOLDEN.replace("anymal-7f3k", "@JOB@")
    description = json.loads(plan.files["job.json"])
    assert plan.command == ("sbatch", "--parsable", "@ROOT@/arrays/anymal-7f3k/batch.sh")
    assert plan.is_array
    assert description["commands"] == [["a"], ["b", "it's"]]
    assert description["resources"]["gpus"] == 2


def flags_of(job: JobSpec, **settings: object) -> list[str]:
    """Those that say how much of what is asked for."""
    words = ("--nodes", "--ntasks", "--cpus", "--mem", "--gres", "--gpus", "--exclusive")
    return [flag for flag in sbatch_flags(job, settings) if flag.startswith(words)]


def wide(launch: str, **more: Any) -> JobSpec:
    return replace(JOB, launch=launch, resources=replace(JOB.resources, nodes=4, **more))


def test_on_several_nodes_the_resources_are_those_of_each() -> None:
    each = ["--mem=33792M", "--gres=gpu:2"]
    tasks = ["--nodes=4", "--ntasks-per-node=2", "--cpus-per-task=4"]
    assert flags_of(wide("srun")) == [*tasks, *each]
    tasks = ["--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=8"]
    assert flags_of(wide("torchrun")) == [*tasks, *each]
    assert flags_of(wide("none")) == ["--nodes=4", "--ntasks=4", "--cpus-per-task=8", *each]


def test_every_task_has_a_cpu() -> None:
    tasks = ["--nodes=4", "--ntasks-per-node=8", "--cpus-per-task=1"]
    assert flags_of(wide("srun", gpus=8.0, cpus=1, memory=None)) == [*tasks, "--gres=gpu:8"]
    assert "--cpus-per-task=3" in flags_of(wide("srun", cpus=5))
    tasks = ["--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=8"]
    assert flags_of(wide("srun", gpus=0.0, memory=None)) == tasks


@pytest.mark.parametrize(
    ("flag", "kind", "words"),
    [
        ("gres", None, "--gres=gpu:2"),
        ("gpus-per-node", None, "--gpus-per-node=2"),
        ("gpus", None, "--gpus=8"),
        ("gpus-per-node", "a100", "--gpus-per-node=a100:2"),
        ("gpus", "a100", "--gpus=a100:8"),
    ],
)
def test_gpus_as_the_cluster_spells_them(flag: str, kind: str | None, words: str) -> None:
    assert flags_of(wide("srun"), gpu_flag=flag, gpu_type=kind)[-1] == words


def test_whole_nodes() -> None:
    assert "--exclusive" in flags_of(JOB, exclusive=True)
    assert "--exclusive" not in flags_of(JOB, exclusive=False)


def test_what_srun_is_told() -> None:
    assert srun_words(wide("srun").to_dict())[:5] == [
        "srun",
        "--nodes=4",
        "--ntasks=8",
        "--ntasks-per-node=2",
        "--cpus-per-task=4",
    ]


def test_the_plan_is_what_is_executed() -> None:
    """The node adds only what it alone knows; a job of an older dray has no words in its record."""
    plan = make_plan(JOB, "euler", SETTINGS)
    words, script = plan.command[:-1], plan.command[-1]
    assert script == "@ROOT@/jobs/anymal-7f3k/batch.sh"
    assert submit_words(words, script) == list(plan.command)
    assert submit_words(words, script, "14") == [*words, "--dependency=afterany:14", script]
    description = json.loads(plan.files["job.json"])
    assert planned_words(description) == list(words)
    del description["scheduler"]["command"]
    assert submit_words(planned_words(description), script) == list(plan.command)
    for damaged in ("sbatch", [1], None):
        assert planned_words({"scheduler": {"command": damaged}}) == []


def test_nothing_of_the_command_is_in_the_script() -> None:
    plan = make_plan(JOB, "euler", SETTINGS)
    assert "rm -rf" not in plan.files["batch.sh"]
    assert "rm -rf" in plan.files["job.json"]


def test_a_type_of_gpu_asked_for_wins() -> None:
    typed = replace(JOB, resources=Resources(gpus=1, gpu_type="h100"))
    assert "--gres=gpu:h100:1\n" in batch_script(typed, SETTINGS)


def test_a_plain_job_asks_for_little() -> None:
    plain = batch_script(JobSpec(id="x-1", name="x", command=("true",)), {})
    for word in ("--mem", "--time", "--gres", "--account", "module"):
        assert word not in plain


HAS = {
    "partitions": """\
gpu*|up|1-00:00:00|4|64|256000|gpu:a100:4(S:0-1)
gpu*|up|1-00:00:00|2|96|512000|gpu:2080ti:8
cpu|up|infinite|9|128|100000|(null)
old|drain|infinite|1|8|1000|gpu:2
""",
    "accounts": "mine\nours\n",
}


@pytest.mark.parametrize(
    ("wanted", "settings", "says"),
    [
        ({"gpus": 4}, {}, ""),
        ({"gpus": 0.5}, {}, "whole GPUs only"),
        ({"gpus": 1.5}, {}, "whole GPUs only"),
        ({"gpus": 9}, {}, "9 GPUs asked for, and no node of partition gpu has more than 8"),
        ({"gpus": 8, "gpu_type": "2080ti"}, {}, ""),
        ({"gpus": 5}, {"gpu_type": "a100"}, "has more than 4"),
        ({"gpus": 1, "gpu_type": "h100"}, {}, "has no GPUs of type 'h100'"),
        ({"gpus": 1}, {"partition": "cpu"}, "partition cpu has none"),
        ({"cpus": 96, "gpus": 1, "gpu_type": "a100"}, {}, "96 CPUs asked for"),
        ({"memory": 300 << 30}, {}, ""),
        ({"nodes": 6}, {}, ""),
        ({"nodes": 7}, {}, "7 nodes asked for, and partition gpu has 6 such nodes"),
        ({"nodes": 7}, {"partition": "gpu,cpu"}, ""),
        ({"nodes": 3, "gpus": 8}, {}, "has 2 such nodes"),
        ({"memory": 600 << 30}, {}, "600 GB of memory asked for"),
        ({"time": 2 * 86400}, {}, "2d0h asked for, and partition gpu allows 1d0h"),
        ({"time": 2 * 86400}, {"qos": "long"}, ""),
        ({"time": 2 * 86400}, {"partition": "gpu,cpu"}, ""),
        ({}, {"partition": "gup"}, "there is no partition 'gup'"),
        ({}, {"partition": "old"}, "takes no jobs now"),
        ({}, {"account": "theirs"}, "you have no account 'theirs'"),
        ({"gpus": 99}, {"extra": ("--partition=secret",)}, ""),
    ],
)
def test_what_slurm_would_refuse(
    wanted: dict[str, Any], settings: dict[str, Any], says: str
) -> None:
    job = replace(JOB, resources=Resources(**wanted))
    found = find_problem(job, settings, HAS)
    assert found is None if not says else found is not None and says in found.what


def test_nothing_known_means_nothing_refused() -> None:
    assert find_problem(JOB, {"partition": "any", "account": "any"}, {}) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("59:30", 3570.0),
        ("1:00:00", 3600.0),
        ("1-00:00:10\n", 86410.0),
        ("0:05", 5.0),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("", None),
    ],
)
def test_time_left(text: str, seconds: float | None) -> None:
    assert parse_time_left(text) == seconds


def test_the_queue_is_read_by_name() -> None:
    lines = (
        "12|N/A|train-a|PENDING|Priority|N/A",
        "13|N/A|train-b|RUNNING|None|x",
        "14|3|sweep-a|COMPLETING|None|x",
        "14|5-6,9%2|sweep-a|PENDING|Resources|x",
        "rubbish",
    )
    found = parse_queue("\n".join(lines).replace("|", "\x1f"))
    assert {name: (number_of(row, name), row["state"]) for name, row in found.items()} == {
        "train-a": ("12", "waiting"),
        "train-b": ("13", "running"),
        "sweep-a.3": ("14_3", "ending"),
        "sweep-a.5": ("14_5", "waiting"),
        "sweep-a.6": ("14_6", "waiting"),
        "sweep-a.9": ("14_9", "waiting"),
    }


def test_a_successor_is_found_before_what_is_ending() -> None:
    waiting, ending = "15|N/A|train-a|PENDING|None|x", "14|N/A|train-a|COMPLETING|None|x"
    for lines in ((waiting, ending), (ending, waiting)):
        found = parse_queue("\n".join(lines).replace("|", "\x1f"))
        assert number_of(found["train-a"], "train-a") == "15"


def test_the_config_is_read_for_what_matters() -> None:
    text = "Configuration data as of now\nJobRequeue              = 0\nKillWait = 30 sec\nX = 1\n"
    assert parse_config(text) == {"JobRequeue": "0", "KillWait": "30 sec"}
    hello = {"slurm": "slurm 22.05", "config": parse_config(text)}
    assert any("depends on the one before" in one.detail for one in slurm_findings(hello, {}))


def test_sbatch_answers() -> None:
    assert parse_submitted("123;cluster\n") == "123"
    assert parse_submitted("some banner\n77\n") == "77"
    with pytest.raises(SchedulerError):
        parse_submitted("")


@pytest.mark.parametrize(
    ("state", "reason", "batch_state"),
    [
        ("RUNNING", "None", RUNNING),
        ("CANCELLED", "None", CANCELLED),
        ("COMPLETING", "None", REQUEUED),
        ("COMPLETING", "TimeLimit", ENDED),
        ("REQUEUED", "None", REQUEUED),
        ("NODE_FAIL", "None", ENDED),
    ],
)
def test_what_becomes_of_a_batch_job(state: str, reason: str, batch_state: str) -> None:
    assert parse_batch_state(f"JobId=1 JobName=x JobState={state} Reason={reason}") == batch_state
    assert parse_batch_state("") == UNKNOWN


@pytest.mark.parametrize(
    ("times", "batch_state"),
    [
        ("EndTime=2026-11-16T09:16:03 Deadline=N/A PreemptTime=2026-11-16T09:16:03", ENDED),
        ("EndTime=2026-11-16T09:16:03 Deadline=N/A PreemptTime=None", REQUEUED),
        ("EndTime=Unknown Deadline=N/A SuspendTime=None", REQUEUED),  # requeued by Slurm
    ],
)
def test_preempted_and_coming_back_or_not(times: str, batch_state: str) -> None:
    assert parse_batch_state(f"JobId=1 JobState=COMPLETING Reason=None {times}") == batch_state


def test_what_the_books_say_of_ends() -> None:
    text = (
        "1|COMPLETED|0:0\n2|RUNNING|0:0\n3|CANCELLED by 1000|0:15\n4|CANCELLED|0:0\n"
        "5|FAILED|127:0\n6|NODE_FAIL|1:0\n7|OUT_OF_MEMORY|0:125\n8|DEADLINE|0:0\n9|BOOT_FAIL|0:0\n"
        "10|TIMEOUT|0:0\n11|PREEMPTED|0:15\n12_4|CANCELLED by 0|0:0\n12_[5-9%2]|DEADLINE|0:0\n"
        "no answer\n"
    )
    found = parse_ends(text, {"0": "root", "1000": "alice"}.__getitem__)
    assert {number: (end["state"], end["reason"]) for number, end in found.items()} == {
        "3": ("stopped", "cancelled in Slurm by alice"),
        "4": ("stopped", "cancelled in Slurm"),
        "5": ("failed", "its batch script ended with exit code 127"),
        "6": ("lost", "its node failed"),
        "7": ("lost", "it used more memory than it had asked for"),
        "8": ("lost", "its deadline in Slurm passed"),
        "9": ("lost", "its node did not boot"),
        "10": ("lost", "Slurm's time limit ended it"),
        "11": ("lost", "it was preempted and not requeued"),
        "12_4": ("stopped", "cancelled in Slurm by root"),
        "12": ("lost", "its deadline in Slurm passed"),
    }


def test_reasons_in_plain_words() -> None:
    assert "free nodes" in waiting_reason({"why": "Resources", "start": "N/A"})
    assert "2026" in waiting_reason({"why": "Priority", "start": "2026-11-15T20:00:00"})
    assert waiting_reason({"why": "OddLimit", "start": "N/A"}) == "Slurm says OddLimit"
    assert waiting_reason({"why": "None", "start": "N/A"}) == ""


def test_partitions_and_gpus() -> None:
    (row,) = parse_partitions("gpu|up|1-00:00:00|4|64+|256000|gpu:a100:4(S:0-1),gpu:v100:2\nbad\n")
    assert row["name"] == "gpu"
    assert gpus_by_type(row["gres"]) == {"a100": 4, "v100": 2}
    assert gpus_by_type("(null)") == {}
    assert gpus_by_type("gpu:3") == {"": 3}
    assert facts_of({"partitions": "a*|up|30:00|1|2|3|(null)\n"}).shapes[0].time == 1800.0


LINES = st.lists(st.sampled_from([b"f aa 1 a\0", b"f bb 2 b\0", b"x cc 3 c d\0", b"d - 0 e\0"]))


@given(LINES, LINES)
def test_a_manifest_survives_being_sent_as_a_change(
    before: list[bytes], after: list[bytes]
) -> None:
    base, manifest = b"".join(before), b"".join(after)
    change = change_of(base, manifest)
    assert change.middle == b"" or change.middle.endswith(b"\0")

    class Known(Packs):
        def read_snapshot(self, snapshot: str) -> tuple[list[str], bytes]:
            assert snapshot == change.base
            return [], base

    assert read_manifest(Known("/nowhere"), change.to_dict())[1] == manifest


def test_indices_that_are_not_understood_are_no_empty_array() -> None:
    with pytest.raises(SchedulerError, match="not understood"):
        parse_queue("14\x1f0-3,5...\x1fwalk-7f3k\x1fPENDING\x1fPriority\x1fN/A\n")
