"""Names of Kubernetes objects, and labels by which they are found again. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dray.job.options.pod_values import OBJECT_NAME
from dray.node.code.packs import hash_of

JOB = "dray/job"
ROOT = "dray/root"  # tells apart who shares a namespace
CREATED = "dray/created"
CARRIED = "dray/carried"  # the Job brings its own submission along
MANAGED = {"app.kubernetes.io/managed-by": "dray"}
LONGEST = 45  # characters of a Job's name; one that is resumed, its pods and hostnames add to it
POD_TAIL = re.compile(r"-\d+-[a-z0-9]{5}$")
RESUMED = re.compile(r"(.+)--r([0-9]{1,9})")


def job_name(job_id: str, resumed_after: int = 0) -> str:
    """Name the Job of a job. A resumed job has another one: the old one may still be there."""
    tail = f"--r{resumed_after}" if resumed_after else ""
    name = job_id.replace(".", "--")
    if len(name) > LONGEST:  # whatever the tail is: the Jobs of one job begin with the same
        name = f"{name[: LONGEST - 9]}-{hash_of(job_id.encode())[:8]}"
    return name + tail


def resumed_of(name: str) -> tuple[str, int]:
    """Return the name of a job's first Job, and after how many attempts this one resumed it."""
    found = RESUMED.fullmatch(name) if "--r" in name else None
    return (found[1], int(found[2])) if found else (name, 0)


def is_name(text: str) -> bool:
    """Return whether this can name an object: what the API server says is not put into a path, or a
    command, unchecked."""
    return OBJECT_NAME.fullmatch(text) is not None


def job_of_pod(name: str) -> str:
    """Return the name of the Job that a pod belongs to."""
    return POD_TAIL.sub("", name)


def helper_name(root: str, user: str) -> str:
    return f"dray-agent-{hash_of(f'{user}:{root}'.encode())[:10]}"


def root_label(root: str, user: str) -> str:
    return hash_of(f"{user}:{root}".encode())[:16]


def label_value(text: str) -> str:
    """Make a label's value of any text."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text)[:63].strip("-._")


def selector(labels: Mapping[str, str | Sequence[str] | None]) -> str:
    """Write the selector of objects with these labels; with several words, any of them; with None,
    whatever it says."""
    from urllib.parse import quote  # only where the API is asked

    return "labelSelector=" + quote(",".join(term(*one) for one in labels.items()))


def term(name: str, value: str | Sequence[str] | None) -> str:
    if value is None:
        return name
    return f"{name}={value}" if isinstance(value, str) else f"{name} in ({','.join(value)})"


def text_at(record: Any, *path: str) -> str:
    """Return the text at this place of what the API server says; '' where there is none."""
    found = value_at(record, *path)
    return found if isinstance(found, str) else ""


def value_at(record: Any, *path: str) -> Any:
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two Jobs of the same name are of the same submission."""
    created = ("metadata", "annotations", CREATED)
    return text_at(one, *created) == text_at(other, *created)


def items_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = record.get("items")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def owner_of(record: Mapping[str, Any]) -> str:
    """Return the name of the Job that an object belongs to."""
    owners = value_at(record, "metadata", "ownerReferences")
    listed = owners if isinstance(owners, list) else []
    return next((text_at(one, "name") for one in listed if text_at(one, "kind") == "Job"), "")
