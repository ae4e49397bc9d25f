"""Writes the notices about a job in the form that each channel wants. Pure.

A job's name, its reason and the name of its metric are not to be trusted: they are cut, kept on one
line, and never become a header of their own. The command, its variables and its output are never
sent.
"""

import json
import re

from ..formats import shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple, Union  # noqa: F401

    from ..formats.records import (
        ArrayEnd,
        Description,
        Metric,
        Notice,
        NoticeMetric,
        NoticeSettings,
        Placeholder,
        Status,
    )

VERSION = 1
DONE, FAILED, STOPPED, STARTED = "done", "failed", "stopped", "started"
EVENTS = (DONE, FAILED, STOPPED, STARTED)
OVER_HTTP = ("ntfy", "slack", "webhook")
MAIL = "mail"
CHANNELS = OVER_HTTP + (MAIL,)
LONGEST_TEXT = 300
LONGEST_NAME = 100
LONGEST_ADDRESS = 2048
ADDRESS = re.compile(r"(https?)://(?:([^/?#@\s]*)@)?([A-Za-z0-9.:\[\]_-]+)([/?][!-~]*)?\Z")
MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,200}\Z")
NTFY = {
    DONE: ("3", "white_check_mark"),
    FAILED: ("4", "x"),
    STOPPED: ("3", "octagonal_sign"),
    STARTED: ("3", "rocket"),
}


def is_addresses(value: "Any") -> bool:
    return shapes.is_variables(value) and all(
        name in CHANNELS and is_address(name, value[name]) for name in value
    )


def is_channels(value: "Any") -> bool:
    return isinstance(value, dict) and all(shapes.is_texts(one) for one in value.values())


SETTINGS = {
    "to": is_addresses,  # channel → address
    "on": shapes.is_texts,
    "cluster": shapes.is_text,
    "after": shapes.is_number,
    "long_wait": shapes.is_number,
    "jobs": shapes.is_count,  # of an array
    "left": is_channels,  # event → channels it has not been sent over yet
    "tries": shapes.is_count,
    "looked": shapes.is_moment,  # when sending was last tried again
}  # type: shapes.Shape


class Request:
    """One HTTP POST."""

    def __init__(self, url: str, headers: "Dict[str, str]", body: bytes) -> None:
        self.url = url
        self.headers = headers
        self.body = body


def is_address(channel: str, address: str) -> bool:
    """Return whether a notice can be sent to this address."""
    if channel == MAIL:
        return MAILBOX.match(address) is not None
    return len(address) <= LONGEST_ADDRESS and ADDRESS.match(address) is not None


# -- which event it is ----------------------------------------------------------------------------


def end_event(state: str) -> str:
    """Return the event for this end. To whoever waits for it, a lost job has failed."""
    return state if state in (DONE, STOPPED) else FAILED


def wanted_end(settings: "NoticeSettings", facts: "Notice") -> "Optional[str]":
    """Return the event of a job's end; None if it is not wanted."""
    event = str(facts["event"])
    short = facts["elapsed"] is not None and facts["elapsed"] < (settings.get("after") or 0.0)
    return event if event in settings["on"] and not short else None


def waited_long(settings: "NoticeSettings", job: "Description", started: float) -> bool:
    """Return whether a notice of the first attempt's start is wanted."""
    if STARTED not in settings["on"] or job.get("resumed_after") or settings.get("jobs"):
        return False
    created = job.get("created")
    wait = settings.get("long_wait")
    return created is not None and wait is not None and started - created >= wait


# -- the facts ------------------------------------------------------------------------------------


def facts_of(event: str, status: "Status", cluster: str) -> "Notice":
    """Of one job, from what ``states.status`` or the laptop knows of it."""
    attempts = status["attempts"]
    job, last = status["job"], attempts[-1] if attempts else None
    created, ended = job.get("created"), status.get("ended")
    metrics = [one.get("metric") for one in attempts]
    metric = next(filter(None, reversed(metrics)), None)
    return {
        "version": VERSION,
        "event": event,
        "id": plain(status["id"], LONGEST_NAME),
        "name": plain(job.get("name") or "", LONGEST_NAME),
        "cluster": plain(cluster, LONGEST_NAME),
        "state": plain(status["state"], LONGEST_NAME),
        "reason": plain(status.get("reason") or "", LONGEST_TEXT),
        "exit_code": last.get("exit_code") if last else None,
        "attempts": len(attempts),
        "submitted": created,
        "ended": ended,
        "elapsed": max(ended - created, 0.0) if ended and created else None,
        "metric": metric_of(metric) if metric else None,
        "jobs": None,
    }


def facts_of_array(
    array: str, states: "List[str]", common: "Union[Description, Placeholder]", times: "ArrayEnd"
) -> "Notice":
    """Return the facts of all jobs of an array together.

    ``states``: of each job. ``common``: the description they share. ``times``: the array's cluster,
    and when its last job ended.
    """
    counts = {state: states.count(state) for state in sorted(set(states))}
    failed = any(end_event(state) == FAILED for state in states)
    state = FAILED if failed else DONE if counts.get(DONE) else STOPPED
    status = {"id": array, "job": common, "attempts": []}  # type: Status
    status["state"], status["ended"] = state, times["ended"]
    facts = facts_of(state, status, times["cluster"])
    facts["jobs"] = counts
    return facts


def metric_of(metric: "Metric") -> "NoticeMetric":
    return {
        "name": plain(metric["name"], LONGEST_NAME),
        "value": metric.get("value"),
        "step": metric.get("step"),
    }


def plain(text: str, most: int) -> str:
    """Return the text as one line of printable characters."""
    seen = "".join(one if one.isprintable() else " " for one in text[: 4 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def title(facts: "Notice") -> str:
    name = facts["name"]
    named = "" if not name or facts["id"].startswith(name) else " ({})".format(name)
    return "{}{}: {}".format(facts["id"], named, facts["event"])


def text(facts: "Notice") -> str:
    """Return the notice as one or two sentences."""
    event = facts["event"]
    if event == STARTED:
        return "{} has started on {}.".format(facts["id"], facts["cluster"])
    what = {DONE: "is done", STOPPED: "was stopped"}.get(event, "has failed")
    if facts["state"] == "lost":
        what = "is lost"
    elapsed = facts["elapsed"]
    after = " after " + duration(elapsed) if elapsed is not None else ""
    parts = ["{} {} on {}{}".format(facts["id"], what, facts["cluster"], after)]
    if facts["jobs"]:
        parts.append(", ".join("{} {}".format(facts["jobs"][one], one) for one in facts["jobs"]))
    if facts["reason"]:
        parts.append(facts["reason"])
    if facts["attempts"] > 1:
        parts.append("{} attempts".format(facts["attempts"]))
    metric = facts["metric"]
    if metric and metric["value"] is not None:
        at = "" if metric["step"] is None else " at step {}".format(metric["step"])
        parts.append("{} {:g}{}".format(metric["name"], metric["value"], at))
    return ". ".join(parts) + "."


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return "{} h {} min".format(hours, minutes)
    return "{} min".format(minutes) if minutes else "{} s".format(rest)


# -- the message of each channel ------------------------------------------------------------------


def request_to(channel: str, address: str, facts: "Notice") -> Request:
    """Return the HTTP request for an address that passes ``is_address``."""
    url, headers = split_address(address)
    if channel == "ntfy":
        priority, tag = NTFY[facts["event"]]
        headers.update(Title=ascii_only(title(facts)), Priority=priority, Tags=tag)
        headers["Content-Type"] = "text/plain; charset=utf-8"
        return Request(url, headers, text(facts).encode("utf-8", "replace"))
    headers["Content-Type"] = "application/json"
    said = {"text": for_slack(text(facts))} if channel == "slack" else facts  # type: Mapping[str, Any]
    return Request(url, headers, json.dumps(said, sort_keys=True).encode("ascii"))


def split_address(address: str) -> "Tuple[str, Dict[str, str]]":
    """Return the URL and the headers. A name and password in the address become a header."""
    found = ADDRESS.match(address)
    assert found is not None
    scheme, account, host, rest = found.groups()
    headers = {"User-Agent": "dray"}
    if account:
        import base64  # only here

        coded = base64.b64encode(account.encode("utf-8")).decode("ascii")
        headers["Authorization"] = "Basic " + coded
    return "{}://{}{}".format(scheme, host, rest or "/"), headers


def mail_to(address: str, facts: "Notice") -> bytes:
    """Return a message for ``sendmail -t``. Nothing in it but the address can name a recipient."""
    lines = [
        "To: " + address,
        "Subject: [dray] " + ascii_only(title(facts)),
        "Auto-Submitted: auto-generated",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: 8bit",
        "",
        text(facts),
        "",
    ]
    return "\n".join(lines).encode("utf-8", "replace")


def ascii_only(line: str) -> str:
    return line.encode("ascii", "replace").decode("ascii")


def for_slack(said: str) -> str:
    return said.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
