"""Values from reports, event files and logs: whole, damaged, growing, and over several attempts."""

from __future__ import annotations

import json
import re
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.node.formats import shapes
from dray.node.jobs.jobdir import JobDir
from dray.node.metrics import sources, tfevents

GOLDEN = Path(__file__).parent / "golden"
ANY = re.compile(b"")


# -- a small writer of event files ----------------------------------------------------------------


def varint(number: int) -> bytes:
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def simple(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value)


def record(value: bytes, step: int, time: float = 0.0) -> bytes:
    data = field(1, time) + field(2, step) + field(5, field(1, value))
    return struct.pack("<QI", len(data), 0) + data + b"\0\0\0\0"


# -- event files ------------------------------------------------------------------------------


def golden(name: str) -> list[Any]:
    return tfevents.read(str(GOLDEN / name), 0, ANY)[0]


def test_what_tensorboard_writes() -> None:
    """By tensorboard 2.21's EventFileWriter, which torch.utils.tensorboard uses."""
    assert golden("tensorboard.tfevents") == [
        (tag, step * 100, value, 1000.0 + step)
        for step in range(3)
        for tag, value in (("Loss/value", 1.5 - step), ("Train/mean_reward", step * 0.25))
    ]


def test_what_tensorflow_2_writes() -> None:
    """By tensorboard 2.21's summary.Writer: numbers are tensors."""
    found = [("episode_reward", 7, 2.5, 2000.0), ("episode_reward", 8, -3.0, 2001.0)]
    assert golden("tensorboard-tensors.tfevents") == found


def test_what_tensorboardx_writes() -> None:
    """By tensorboardX 2.6, which rl_games uses; a histogram is between the numbers."""
    (first, second) = golden("tensorboardx.tfevents")
    assert first == ("rewards/iter", 12, 4.5, 3000.0)
    assert (second[:2], second[3], second[2] != second[2]) == (("rewards/iter", 13), 3001.0, True)


@pytest.mark.parametrize(
    "tensor",
    [
        field(1, 1) + field(4, struct.pack("<f", 0.5)),
        field(1, 2) + field(4, struct.pack("<d", 0.5)),
        field(1, 1) + field(2, b"") + field(5, struct.pack("<f", 0.5)),
        field(1, 2) + field(6, struct.pack("<d", 0.5)),
    ],
)
def test_numbers_in_tensors(tensor: bytes) -> None:
    assert tfevents.tagged(field(1, b"a") + field(8, tensor)) == ("a", 0.5)


def test_a_tensor_of_several_numbers_or_of_text_is_none() -> None:
    several = field(1, 1) + field(4, struct.pack("<ff", 1, 2))
    text = field(1, 7) + field(8, b"words")
    for tensor in (several, text):
        assert tfevents.tagged(field(1, b"a") + field(8, tensor)) == ("a", None)


def test_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    value = field(77, b"new") + simple("a", 1.0) + field(78, 5) + field(79, 1.0)
    (tmp_path / "e").write_bytes(record(value, 3))
    assert tfevents.read(str(tmp_path / "e"), 0, ANY)[0] == [("a", 3, 1.0, 0.0)]


def test_a_growing_file_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    """Cut at every place: nothing is read twice, nothing is missed."""
    whole = b"".join(record(simple("a", float(step)), step) for step in range(3))
    path = tmp_path / "e"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        first, offset = tfevents.read(str(path), 0, ANY)
        path.write_bytes(whole)
        second, end = tfevents.read(str(path), offset, ANY)
        assert [one[1] for one in first + second] == [0, 1, 2]
        assert end == len(whole)


def test_large_records_are_passed_over(tmp_path: Path) -> None:
    picture = field(1, b"a") + field(4, b"\0" * (tfevents.LARGEST + 1))
    (tmp_path / "e").write_bytes(record(picture, 1) + record(simple("a", 2.0), 2))
    assert [one[1] for one in tfevents.read(str(tmp_path / "e"), 0, ANY)[0]] == [2]


@given(st.binary(max_size=200))
def test_any_damage_is_only_nothing(data: bytes) -> None:
    assert isinstance(tfevents.scalars(data), list)


# -- jobs -------------------------------------------------------------------------------------


class Job:
    """A job's directory, written by hand."""

    def __init__(self, path: Path) -> None:
        self.dir = JobDir(str(path / "jobs/job-1"))
        self.outputs = Path(self.dir.outputs)
        self.outputs.mkdir(parents=True)
        self.wanted: dict[str, Any] = {}

    def attempt(self, number: int, started: float, log: str = "") -> None:
        folder = Path(self.dir.attempt(number).path)
        folder.mkdir(parents=True)
        (folder / "attempt.json").write_text(json.dumps({"started": started}))
        (folder / "log").write_text(log)

    def report(self, attempt: int, step: int, **values: float | None) -> None:
        line = {"attempt": attempt, "step": step, "time": 0.0, "values": values}
        with (self.outputs / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def log_event(self, name: str, tag: str, value: float, step: int, time: float = 0.0) -> None:
        path = self.outputs / name / "events.out.tfevents.1.host"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(record(simple(tag, value), step, time))

    def series(self) -> tuple[str, list[Any]]:
        found = sources.series({"metrics": self.wanted}, self.dir)
        return found["name"], found["points"]

    def watch(self, attempt: int) -> sources.Watch:
        return sources.Watch({"metrics": self.wanted}, self.dir.outputs, self.dir.attempt(attempt))


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_job_without_metrics_has_none(job: Job) -> None:
    assert job.series() == ("", [])
    watch = job.watch(1)
    watch.look()
    assert watch.value() is None


def test_what_was_done_again_counts_once(job: Job) -> None:
    for attempt, steps in ((1, range(5)), (2, range(3, 6)), (3, range(5, 8))):
        for step in steps:
            job.report(attempt, step, reward=attempt * 100 + step)
    assert job.series() == (
        "reward",
        [
            *([step, 100 + step, 1] for step in (0, 1, 2)),
            *([step, 200 + step, 2] for step in (3, 4)),
            *([step, 300 + step, 3] for step in (5, 6, 7)),
        ],
    )


def test_lines_that_are_none_are_passed_over(job: Job) -> None:
    job.report(1, 1, reward=1.0)
    with (job.outputs / "metrics.jsonl").open("a") as file:
        file.write('{"attempt": 1, "st\n[]\n{"values": 3}\n\n{"attempt": 1, "step": 3')
    assert job.series() == ("reward", [[1, 1.0, 1]])


def test_not_a_number_stays_visible(job: Job) -> None:
    watch = job.watch(1)
    job.report(1, 1, reward=2.0)
    job.report(1, 2, reward=None)
    watch.look()
    assert watch.value() == {"name": "reward", "value": None, "step": 2, "recent": [2.0, None]}


def test_event_files_belong_to_the_attempt_that_ran_then(job: Job) -> None:
    job.attempt(1, 100.0)
    job.attempt(2, 200.0)
    for step in range(4):
        job.log_event("run_1", "Train/mean_reward", step, step, 110.0 + step)
    for step in range(2, 5):
        job.log_event("run_2", "Train/mean_reward", -step, step, 210.0 + step)
    points = [[0, 0.0, 1], [1, 1.0, 1], [2, -2.0, 2], [3, -3.0, 2], [4, -4.0, 2]]
    assert job.series() == ("Train/mean_reward", points)


def test_a_watch_reads_only_what_its_attempt_writes(job: Job) -> None:
    job.report(1, 1, reward=1.0)
    job.log_event("run", "reward", 1.0, 1)
    watch = job.watch(2)
    watch.look()
    assert watch.value() is None
    job.log_event("run", "reward", 5.0, 9)
    watch.look(last=True)
    assert watch.value() == {"name": "reward", "value": 5.0, "step": 9, "recent": [5.0]}
    job.report(2, 7, loss=0.5)  # what is reported goes before a tag
    watch.look(last=True)
    assert watch.value() == {"name": "loss", "value": 0.5, "step": 7, "recent": [0.5]}


def test_the_main_metric_is_the_first_that_there_is(job: Job) -> None:
    job.wanted = {"main": ["c", "b"]}
    job.log_event("run", "b", 2.0, 1)
    assert job.series()[0] == "b"
    job.report(1, 1, a=1.0, c=2.0)
    assert job.series()[0] == "c"


def test_the_likeliest_tag_is_shown_until_one_that_was_asked_for_comes(job: Job) -> None:
    job.wanted = {"main": ["Train/mean_reward"]}
    watch = job.watch(1)
    job.log_event("run", "Perf/total_fps", 5000.0, 1)
    watch.look()
    assert watch.value() is None
    job.log_event("run", "Loss/value", 0.5, 1)
    watch.look(last=True)
    assert watch.value() == {"name": "Loss/value", "value": 0.5, "step": 1, "recent": [0.5]}
    assert job.series() == ("Loss/value", [[1, 0.5, 1]])
    job.log_event("run", "Train/mean_reward", 7.0, 2)
    watch.look(last=True)
    assert watch.value() == {"name": "Train/mean_reward", "value": 7.0, "step": 2, "recent": [7.0]}
    assert job.series() == ("Train/mean_reward", [[2, 7.0, 1]])


def test_a_reward_that_comes_later_goes_before_a_loss(job: Job) -> None:
    watch = job.watch(1)
    for tag in ("Loss", "eval/RETURN"):
        job.log_event("run", tag, 1.0, 1)
        watch.look(last=True)
        found = watch.value()
        assert found is not None
        assert found["name"] == tag


@pytest.mark.parametrize(
    ("tags", "main"),
    [
        (["Episode_Reward/feet_air_time", "Train/mean_reward", "Loss/value"], "Train/mean_reward"),
        (["rollout/ep_len_mean", "rollout/ep_rew_mean"], "rollout/ep_rew_mean"),
        (["rewards/time", "rewards/iter", "losses/a_loss"], "rewards/iter"),
        (
            ["Reward / Instantaneous reward (max)", "Reward / Total reward (mean)"],
            "Reward / Total reward (mean)",
        ),
        (["eval/return"], "eval/return"),
        (["loss", "val/loss", "accuracy"], "accuracy"),
        (["loss_q", "val/loss"], "val/loss"),
        (["time/fps", "epoch", "entropy", "train/lr"], "entropy"),
        (["time/fps", "epoch"], ""),
    ],
)
def test_a_tag_that_looks_like_the_reward(job: Job, tags: list[str], main: str) -> None:
    for tag in tags:
        job.log_event("run", tag, 1.0, 1)
    assert job.series()[0] == main


def test_a_tag_is_found_by_its_plain_spelling_too(job: Job) -> None:
    name = "Reward_/_Total_reward_mean"
    job.wanted = {"main": [name]}
    watch = job.watch(1)
    for tag in ("Reward / Total reward (max)", "Reward / Total reward (mean)", "Loss"):
        job.log_event("run", tag, float(len(tag)), 1)
    watch.look(last=True)
    assert job.series() == (name, [[1, 28.0, 1]])
    found = watch.value()
    assert found is not None
    assert (found["name"], found["value"]) == (name, 28.0)


def test_a_tag_that_is_spelled_as_asked_for_is_no_other(job: Job) -> None:
    job.wanted = {"main": ["a b", "a_b"]}
    job.log_event("run", "a b", 1.0, 1)
    job.log_event("run", "a_b", 2.0, 1)
    assert job.series() == ("a b", [[1, 1.0, 1]])


def test_only_the_event_files_that_are_named(job: Job) -> None:
    job.wanted = {"tensorboard": "train/**/events.out.tfevents.*"}
    job.log_event("eval", "reward", 1.0, 1)
    job.log_event("train/a/b", "reward", 2.0, 1)
    assert job.series() == ("reward", [[1, 2.0, 1]])


def test_values_of_the_log_are_counted_over_the_attempts(job: Job) -> None:
    job.wanted = {"pattern": r"mean\s+reward: ([-0-9.e]+)"}
    job.attempt(1, 1.0, "x\nmean reward: 1.5\nmean  reward: 2\rmean reward: e\nmean reward: -3e2")
    job.attempt(2, 2.0, "mean reward: 4\n")
    # The last line of the first is not whole.
    assert job.series() == ("reward", [[1, 1.5, 1], [2, 2.0, 1], [3, 4.0, 2]])


def test_a_long_log_is_watched_at_its_end(job: Job) -> None:
    job.wanted = {"pattern": "r=([0-9]+)", "main": ["return"]}
    job.attempt(1, 1.0, "r=1\n" + "x" * sources.PIECE * 3 + "\nr=2\n")
    watch = job.watch(1)
    watch.look()
    assert watch.value() == {"name": "return", "value": 2.0, "step": 1, "recent": [2.0]}
    assert [value for _, value, _ in job.series()[1]] == [1.0, 2.0]


def test_a_long_curve_is_thinned_out(job: Job) -> None:
    for step in range(3000):
        job.report(1 if step < 1001 else 2, step, reward=step)
    points = job.series()[1]
    assert len(points) <= sources.MOST_POINTS + 1
    assert (points[0][0], points[-1][0]) == (0, 2999)
    assert [1001, 1001, 2] in points


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000])
def test_the_course_of_a_value_is_told_in_a_few(job: Job, count: int) -> None:
    watch = job.watch(1)
    for step in range(count):
        job.report(1, step, reward=step / 3)
    watch.look()
    value = watch.value()
    assert value is not None
    recent = value["recent"]
    assert min(count, 8) <= len(recent) <= sources.MOST_RECENT
    assert recent[0] == 0.0
    steps = {round(after - before, 1) for before, after in pairwise(recent)}
    assert len(steps) <= 2  # but for the rounding to four digits
    assert shapes.is_metric(json.loads(json.dumps(value)))


@pytest.mark.parametrize("recent", [3, [1.0] * 17, ["1"], [[1.0]], [1e400], [True]])
def test_a_course_that_is_none_is_not_told(recent: Any) -> None:
    assert not shapes.is_metric({"name": "a", "value": 1.0, "step": 1, "recent": recent})
    assert shapes.is_metric({"name": "a", "value": 1.0, "step": 1})  # of an older dray


def test_what_cannot_be_read_does_not_end_the_attempt(
    job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    watch = job.watch(1)
    (job.outputs / "metrics.jsonl").mkdir()
    job.log_event("run", "reward", 3.0, 1)
    for _ in range(3):
        watch.look(last=True)
    assert watch.value() == {"name": "reward", "value": 3.0, "step": 1, "recent": [3.0]}
    assert capfd.readouterr().out.count("metrics:") == 1
