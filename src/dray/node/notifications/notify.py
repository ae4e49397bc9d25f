"""What is told of a job to whoever asked for it, and how each channel wants it said. Pure.

A job's name, its reason and the name of its metric come from places that nobody vouches for: they
are cut, kept on one line, and never become a header of their own. Neither the command, its
variables nor its output are told.
"""

import json
import re

from ..formats import shapes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple  # noqa: F401

    Record = Dict[str, Any]

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
    "left": is_channels,  # event → channels that it was not sent by so far
    "tries": shapes.is_count,
    "looked": shapes.is_moment,  # when somebody who looked has tried
}  # type: shapes.Shape


class Request:
    """One HTTP POST."""

    def __init__(self, url: str, headers: "Dict[str, str]", body: bytes) -> None:
        self.url = url
        self.headers = headers
        self.body = body


def is_address(channel: str, address: str) -> bool:
    """Whether something can be sent there."""
    if channel == MAIL:
        return MAILBOX.match(address) is not None
    return len(address) <= LONGEST_ADDRESS and ADDRESS.match(address) is not None


# -- which event it is ----------------------------------------------------------------------------


def end_event(state: str) -> str:
    """A job that was lost has failed, for whoever waits for it."""
    return state if state in (DONE, STOPPED) else FAILED


def wanted_end(settings: "Record", facts: "Record") -> "Optional[str]":
    """The event of a job's end, if it is to be told."""
    event = str(facts["event"])
    short = facts["elapsed"] is not None and facts["elapsed"] < (settings.get("after") or 0.0)
    return event if event in settings["on"] and not short else None


def waited_long(settings: "Record", job: "Record", started: float) -> bool:
    """Whether the start of its first attempt is to be told."""
    if STARTED not in settings["on"] or job.get("resumed_after") or settings.get("jobs"):
        return False
    created = job.get("created")
    wait = settings.get("long_wait")
    return created is not None and wait is not None and started - created >= wait


# -- what is told ---------------------------------------------------------------------------------


def facts_of(event: str, status: "Record", cluster: str) -> "Record":
    """Of one job, from what ``states.status`` or the laptop knows of it."""
    attempts = status["attempts"]
    job, last = status["job"], attempts[-1] if attempts else {}
    created, ended = job.get("created"), status.get("ended")
    metrics = [one["metric"] for one in attempts if one.get("metric")]
    return {
        "version": VERSION,
        "event": event,
        "id": plain(status["id"], LONGEST_NAME),
        "name": plain(job.get("name") or "", LONGEST_NAME),
        "cluster": plain(cluster, LONGEST_NAME),
        "state": plain(status["state"], LONGEST_NAME),
        "reason": plain(status.get("reason") or "", LONGEST_TEXT),
        "exit_code": last.get("exit_code"),
        "attempts": len(attempts),
        "submitted": created,
        "ended": ended,
        "elapsed": max(ended - created, 0.0) if ended and created else None,
        "metric": metric_of(metrics[-1]) if metrics else None,
        "jobs": None,
    }


def facts_of_array(array: str, states: "List[str]", common: "Record", times: "Record") -> "Record":
    """Of all jobs of an array together; ``times`` has its cluster and when its last job ended."""
    counts = {state: states.count(state) for state in sorted(set(states))}
    failed = any(end_event(state) == FAILED for state in states)
    state = FAILED if failed else DONE if counts.get(DONE) else STOPPED
    status = {"id": array, "job": common, "state": state, "attempts": [], "ended": times["ended"]}
    return dict(facts_of(state, status, times["cluster"]), jobs=counts)


def metric_of(metric: "Record") -> "Record":
    return {
        "name": plain(metric["name"], LONGEST_NAME),
        "value": metric.get("value"),
        "step": metric.get("step"),
    }


def plain(text: str, most: int) -> str:
    """One line of characters that can be seen."""
    seen = "".join(one if one.isprintable() else " " for one in text[: 4 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else line[: most - 1] + "…"


def title(facts: "Record") -> str:
    name = facts["name"]
    named = "" if not name or facts["id"].startswith(name) else " ({})".format(name)
    return "{}{}: {}".format(facts["id"], named, facts["event"])


def text(facts: "Record") -> str:
    """One or two sentences for people."""
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


# -- how it is said -------------------------------------------------------------------------------


def request_to(channel: str, address: str, facts: "Record") -> Request:
    """What is sent over HTTP, for an address that ``is_address``."""
    url, headers = split_address(address)
    if channel == "ntfy":
        priority, tag = NTFY[facts["event"]]
        headers.update(Title=ascii_only(title(facts)), Priority=priority, Tags=tag)
        headers["Content-Type"] = "text/plain; charset=utf-8"
        return Request(url, headers, text(facts).encode("utf-8", "replace"))
    headers["Content-Type"] = "application/json"
    said = {"text": for_slack(text(facts))} if channel == "slack" else facts  # type: Record
    return Request(url, headers, json.dumps(said, sort_keys=True).encode("ascii"))


def split_address(address: str) -> "Tuple[str, Dict[str, str]]":
    """A name and a password in an address are sent as a header."""
    found = ADDRESS.match(address)
    assert found is not None
    scheme, account, host, rest = found.groups()
    headers = {"User-Agent": "dray"}
    if account:
        import base64  # only here

        coded = base64.b64encode(account.encode("utf-8")).decode("ascii")
        headers["Authorization"] = "Basic " + coded
    return "{}://{}{}".format(scheme, host, rest or "/"), headers


def mail_to(address: str, facts: "Record") -> bytes:
    """A message for ``sendmail -t``; nothing of it but the address can name who gets it."""
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
