"""What Kueue and KAI say of a job that waits, whatever shape it has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.clusters.kube import kai, kueue, schedulers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["metadata", "name", "uid", "ownerReferences", "kind", "status", "conditions",
             "schedulingConditions", "type", "reason", "reasons", "message", "items"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


def workload(name: str, uid: str, **conditions: tuple[str, str, str]) -> dict[str, Any]:
    said = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in conditions.items()
    ]
    owner = {"kind": "Job", "name": name}
    metadata = {"name": f"job-{name}", "uid": uid, "ownerReferences": [owner]}
    return {"metadata": metadata, "status": {"conditions": said}}


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Stopped", "its queue was stopped; waiting in its queue"),
        ("DeactivatedDueToRequeuingLimitExceeded", "Kueue has given it up; waiting in its queue"),
        ("SomethingNew", "waiting in its queue"),
    ],
)
def test_why_a_job_was_taken_out(reason: str, words: str) -> None:
    evicted = ("True", reason.replace("Stopped", "LocalQueueStopped"), "")
    found = kueue.reasons([workload("a", "1", Evicted=evicted)], {"a"}, {})
    assert found == {"a": words}


NEVER = (
    "insufficient quota for cpu in flavor a, previously considered podsets requests (0) + "
    "current podset request (2) > maximum capacity (1)"
)
LATER = "insufficient unused quota for cpu in flavor b, 1 more needed"


@pytest.mark.parametrize(
    ("reason", "said", "words"),
    [
        ("ExceedsMaxQuota", "", "it asks for more than its queue can ever give"),
        # As Kueue says it by default: in prose only.
        ("Pending", NEVER, "it asks for more than its queue can ever give"),
        ("Pending", LATER, "waiting in its queue"),
        ("Pending", f"{NEVER}, {LATER}", "waiting in its queue"),  # another flavor has enough
        ("Pending", "untolerated taint x in flavor a", "its queue has nothing that fits it"),
        ("Pending", f"flavor a doesn't match node affinity, {LATER}", "waiting in its queue"),
        ("Inadmissible", "LocalQueue a doesn't exist", "its queue is not there, or not set up"),
        ("Inadmissible", "ClusterQueue a is inactive", "its queue is stopped"),
    ],
)
def test_why_a_job_is_not_let_in(reason: str, said: str, words: str) -> None:
    found = kueue.reasons([workload("a", "1", QuotaReserved=("False", reason, said))], {"a"}, {})
    assert found["a"].partition(" (Kubernetes says: ")[0] == words


def test_a_job_that_was_let_in_waits_for_no_queue() -> None:
    found = kueue.reasons([workload("a", "1", Admitted=("True", "Admitted", ""))], {"a"}, {})
    assert found == {"a": ""}


def test_who_took_the_place_of_a_job_is_named_if_it_can_be_seen() -> None:
    said = "Preempted to accommodate a workload (UID: 0a-1f, JobUID: 7) due to prioritization"
    low = workload("low", "1", Evicted=("True", "Preempted", said))
    high = workload("high", "0a-1f", Admitted=("True", "Admitted", ""))
    seen = kueue.reasons([low, high], {"low"}, {})
    assert seen == {"low": "preempted by high; waiting in its queue"}
    assert kueue.reasons([low], {"low"}, {})["low"].startswith("preempted by another job; ")


@given(st.lists(JSON, max_size=3), JSON)
def test_whatever_is_said_is_read(said: list[Any], pending: Any) -> None:
    listed = [one for one in said if isinstance(one, dict)]
    about = pending if isinstance(pending, dict) else {}
    found = {**kueue.reasons(listed, {"", "a"}, about), **kai.reasons(listed, {"", "a"})}
    assert all(isinstance(one, str) for one in found.values())


def test_whose_queue_is_meant() -> None:
    queue = {"queue": "lab"}
    both = {"schedulers": ["kueue", "kai"]}
    assert schedulers.chosen({}, both) == "default"
    assert schedulers.chosen(queue, both) == "kueue"
    assert schedulers.chosen({**queue, "scheduler": "kai"}, both) == "kai"
    nobody = schedulers.find_problem(queue, {"schedulers": []})
    assert nobody
    assert nobody.what == "it has nothing that keeps a queue, and the settings name lab"
    assert schedulers.find_problem(queue, both) is None
