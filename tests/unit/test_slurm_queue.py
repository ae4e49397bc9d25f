"""What Slurm prints of its queue, nodes and limits, read: real output of three versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.agent.answers import Told
from dray.clusters.queues import slurm, slurm_explaining
from dray.clusters.queues.slurm_reasons import reason_of
from dray.job.model import JobSpec, Resources
from dray.job.situation import Explanation, Limit, Pool, QueueEntry
from dray.node.schedulers.slurm import SEPARATOR

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = ("20.11", "22.05", "24.11")
DRAINED = (
    "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
)
NAMES = ("queue", "gpus", "nodes", "reservations", "shares", "limits", "config", "job", "waiting")


@pytest.fixture(params=VERSIONS)
def told(request: pytest.FixtureRequest) -> Told:
    """What a Slurm of this version said of one scene: three nodes of two GPUs, one of them
    draining; a maintenance ahead; jobs of three users."""
    folder = GOLDEN / f"slurm-{request.param}"
    texts = {name: (folder / f"{name}.txt").read_text() for name in NAMES}
    now = slurm.entries(texts["queue"], texts["gpus"], "root")[0].submitted or 0.0
    return Told(texts, {}, now + 12, "root", 0)


def wanting(gpus: float, **more: object) -> JobSpec:
    return JobSpec(
        id="two-aaaa",
        name="two",
        command=("x",),
        resources=Resources(gpus=gpus, **more),  # type: ignore[arg-type]
    )


# -- reasons ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_reason_of_slurms_library_has_words(version: str) -> None:
    for name in (GOLDEN / f"slurm-{version}/reasons.txt").read_text().split():
        assert "Slurm says" not in reason_of(name).words, name


@pytest.mark.parametrize(
    ("said", "words", "never"),
    [
        ("QOSMaxGRESPerUser", "you use as many GPUs as your QoS allows", False),
        ("QOSMaxMemoryPerUser", "you use as much memory as your QoS allows", False),
        ("AssocGrpGRES", "your group uses as many GPUs as it may", False),
        ("QOSGrpNodeLimit", "its QoS has as many nodes in use as it may", False),
        ("AssocMaxJobsLimit", "you have as many jobs running as its account allows", False),
        ("QOSMaxSubmitJobPerUserLimit", "you have as many jobs in the queue as", False),
        ("AssocGrpGRESMinutes", "your group has used up its hours of GPUs", True),
        ("AssocGrpGRESRunMinutes", "too much time on GPUs is promised", False),
        ("MaxGRESRunMinsPerUser", "too much time on GPUs is promised", False),
        ("QOSMaxGRESPerJob", "it asks for more GPUs than its QoS allows one job", True),
        ("AssocMaxCpuPerNode", "it asks for more CPUs than its account allows on one node", True),
        ("QOSMinGRES", "it asks for fewer GPUs than its QoS demands", True),
        ("QOSMinMemory", "it asks for less memory than its QoS demands", True),
        ("QOSMaxWallDurationPerJobLimit", "it asks for more time than its QoS allows", True),
        ("AssocGrpWallLimit", "the time that its account has is used up", True),
        ("ReqNodeNotAvail, UnavailableNodes:node[3,7]", "being drained: node[3,7]", False),
        ("ReqNodeNotAvail, Reserved for maintenance", "it would run into a maintenance", False),
        ("ReqNodeNotAvail", "the nodes it needs are down or reserved", False),
        (DRAINED, "all nodes that fit are down", False),
        ("JobHeldAdmin", "held by an administrator", True),
        ("SomethingNew, of  tomorrow", "Slurm says SomethingNew, of tomorrow", False),
    ],
)
def test_reasons_in_words(said: str, words: str, never: bool) -> None:
    found = reason_of(said)
    assert words in found.words
    assert found.never is never


def test_what_never_starts_says_what_to_do_about_time() -> None:
    assert "Ask for less time" in reason_of("PartitionTimeLimit").advice


@given(st.text())
def test_no_reason_can_break_it(said: str) -> None:
    assert isinstance(reason_of(said).words, str)


# -- the queue ----------------------------------------------------------------------------------


def test_the_queue(told: Told) -> None:
    found = slurm.entries(told.text("queue"), told.text("gpus"), "root")
    waiting = [one for one in found if one.is_waiting]
    assert waiting[0].job == "two-aaaa", "the highest priority comes first"
    assert waiting[-1].job == "held-aaaa", "what is held has none"
    by_name = {one.job: one for one in found if one.job}
    assert by_name["byjob-aaaa"].gpus == 1, "asked for by --gpus, which the short format lacks"
    assert (by_name["one-aaaa"].gpus, by_name["one-aaaa"].gpu_type) == (1, "a100")
    assert by_name["one-aaaa"].nodes == "node1"
    assert 5900 < (by_name["one-aaaa"].left or 0) < 6000
    (rest,) = (one for one in waiting if one.job == "sweep-aaaa")
    assert (rest.jobs, rest.is_held) == (8, True)
    assert [one.gpus for one in found if one.owner in ("daemon", "games")] == [2, 2, 2]
    assert not [one.job for one in found if one.owner != "root" and one.job]
    assert by_name["long-aaaa"].reason == "it would run into a maintenance"


def test_gpus_of_nodes_that_do_not_work_are_not_counted_as_there(told: Told) -> None:
    assert slurm.pools(told.text("nodes")) == [Pool("a100", 0, 4, 2, 2)]
    assert slurm.pools(told.text("nodes"), ["nosuch"]) == []
    assert slurm.troubles(told.text("nodes")) == {"node3": "fan broken"}


def test_only_maintenance_is_told_of_reservations(told: Told) -> None:
    (found,) = slurm.maintenances(told.text("reservations"))
    assert (found.name, found.end - found.start) == ("upgrade", 36000)


def test_limits_with_what_is_used_of_them(told: Told) -> None:
    found = slurm.limits(told.text("limits"), "root", 0)
    assert Limit("GPUs", 2, 1, "QoS normal, for you") in found
    assert Limit("GPUs", 3, 2, "account rl") in found
    assert Limit("running jobs", 5, 4, "you in rl") in found
    assert Limit("time of one job", 172800, None, "QoS normal", "seconds") in found
    (hours,) = (one for one in found if one.what == "GPU hours")
    assert (round(hours.most), hours.unit) == (1667, "hours")
    assert len(found) == 6, "no limit is told twice, and none that is not set"
    of_job = slurm.limits(told.text("limits"), "root", 0, "rl", "short")
    assert not [one for one in of_job if "normal" in one.scope]
    assert slurm.limits(told.text("limits"), "nobody", 65534) == []


def test_shares(told: Told) -> None:
    found = {
        one.account: one for one in slurm.shares(told.text("shares"), told.text("config"), "root")
    }
    assert found["root"].used == 0
    assert found["rl"].half_life == 7 * 86400


def test_a_share_that_is_used_twice() -> None:
    (found,) = slurm.shares("rl|ada|0.250000|0.500000|0.310000|0.500000\n", "", "ada")
    assert (found.factor, found.used, found.half_life) == (0.31, 2.0, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_guesses(version: str) -> None:
    folder = GOLDEN / f"slurm-{version}"
    found = slurm.guess_of((folder / "guess.txt").read_text())
    assert found is not None
    assert found[1:] == ("node1", "gpu")
    assert slurm.guess_of((folder / "guess-never.txt").read_text()) is None


# -- why it waits -------------------------------------------------------------------------------


def entry_named(told: Told, name: str) -> QueueEntry:
    return next(one for one in slurm_explaining.queue_view(told).entries if one.job == name)


def explained(told: Told, spec: JobSpec, name: str) -> Explanation:
    entry = entry_named(told, name)
    job = f"JobId={entry.number} Reason={entry.why} Dependency=(null) Account=rl QOS={entry.qos}"
    about = told._replace(texts={"job": job})
    return slurm_explaining.explanation(spec, entry.number, about, told)


def test_why_a_job_waits_at_its_limit(told: Told) -> None:
    found = explained(told, wanting(2), "two-aaaa")
    assert found.reason.words == "you use as many GPUs as your QoS allows"
    assert found.place == 1
    assert found.pool == Pool("a100", 0, 4, 2, 2)
    assert Limit("GPUs", 2, 1, "QoS normal, for you") in found.limits
    assert set(found.holders) == {"one-aaaa", "byjob-aaaa"}


def test_who_is_before_it(told: Told) -> None:
    found = explained(told, wanting(2), "three-aaaa")
    line = [one for one in slurm_explaining.queue_view(told).waiting if not one.is_held]
    assert found.waiting == len(line) == 5, "two, theirs, three, long and pinned"
    assert found.gpus_before == sum(one.gpus for one in line[: found.place - 1])
    assert found.frees is not None
    assert found.frees[1] == "node1", "the shortest that runs"


def test_a_maintenance_in_the_way(told: Told) -> None:
    found = explained(told, wanting(0, time=120000.0), "long-aaaa")
    assert [one.name for one in found.maintenance] == ["upgrade"]
    shorten = slurm_explaining.before_maintenance
    (one,) = shorten(wanting(0), found._replace(place=1), "8", told.as_of, "euler")
    assert one.change == "--time 3h45m", "it ends before the maintenance in four hours"
    assert one.command == "ssh euler scontrol update JobId=8 TimeLimit=225"
    assert shorten(wanting(0), found._replace(place=2), "8", told.as_of, "") == []
    assert shorten(wanting(1), found._replace(place=1), "8", told.as_of, "") == [], "none is free"


def test_three_changes_at_most(told: Told) -> None:
    spec = wanting(0, time=120000.0)
    changes = slurm_explaining.changes_for(spec, entry_named(told, "long-aaaa"), told, {})
    assert [one.flag for one in changes] == ["--time=495"], "a quarter of its time"
    roomy = told._replace(
        texts={
            **told.texts,
            "nodes": told.text("nodes").replace("gpu:a100:2(IDX", "gpu:a100:0(IDX"),
        }
    )
    spec = wanting(1, time=120000.0)
    changes = slurm_explaining.changes_for(spec, entry_named(told, "long-aaaa"), roomy, {})
    assert [one.flag.partition("=")[0] for one in changes] == ["--time", *["--partition"] * 2]
    assert "gpu" not in [one.flag.partition("=")[2] for one in changes], "it waits there already"


def test_nothing_is_guessed_where_a_limit_keeps_it_back(told: Told) -> None:
    entry = entry_named(told, "two-aaaa")
    assert slurm_explaining.changes_for(wanting(2), entry, told, {}) == []


def test_only_what_starts_earlier_is_offered() -> None:
    change = slurm_explaining.shorter(3600)
    said = "sbatch: Job 9 to start at 2026-11-17T10:00:00 using 1 processors on nodes n1"
    said += " in partition gpu"
    moment = slurm.moment("2026-11-17T10:00:00")
    assert moment is not None
    alternatives = slurm_explaining.alternatives
    assert alternatives([change], [said], "7", moment, moment - 9000, "euler") == []
    (one,) = alternatives([change], [said], "7", moment + 3600, moment - 9000, "euler")
    assert (one.start, one.where) == (moment, "n1")
    assert one.command == "ssh euler scontrol update JobId=7 TimeLimit=60"
    (now,) = alternatives([change], [said], "7", None, moment, "")
    assert now.start == 0


def test_private_data_gives_no_places(told: Told) -> None:
    hidden = told._replace(texts={**told.texts, "config": "PrivateData             = jobs,usage\n"})
    view = slurm_explaining.queue_view(hidden)
    assert not view.is_ordered
    assert "only your own jobs" in view.remarks[0]
    assert explained(hidden, wanting(2), "three-aaaa").place == 0


# -- hostile ------------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_nothing_that_slurm_prints_can_break_it(one: str, other: str) -> None:
    text = f"{one}\n{SEPARATOR.join([other] * slurm.FIELDS)}\nQOS={one} User Limits= 0={{{other}}}"
    told = Told(dict.fromkeys(NAMES, text), {}, 0.0, "root", 0)
    slurm_explaining.explanation(wanting(1), "1", told, told)
    slurm.limits(text, "root", 0)
    slurm.shares(text, text, "root")
    slurm.guess_of(text)
