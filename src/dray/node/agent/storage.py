"""What may be stored on this site, and what is: quotas as the programs here tell them, and what
dray itself occupies. The laptop reads it."""

import os
import time

from ..formats import bootstrap, files, shapes
from ..schedulers import scheduler
from ..schedulers.scheduler import SchedulerError
from .situation import LONGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List  # noqa: F401

    from ..formats.records import Answer, KnownAnswer, PlaceUsage, Request
    from .agent import Agent

PATIENCE = 20.0  # seconds for a program that asks a file server
COUNTING = 10.0  # seconds for which dray's own files are counted
PLACES = (("home", "HOME"), ("scratch", "SCRATCH"), ("work", "WORK"), ("project", "PROJECT"))
OWN = ("jobs", "packs", "snapshots", "images", "arrays", "node")


def look(agent: "Agent", request: "Request") -> "Answer":
    own = request.get("quota_command")
    return found_at(agent.root.path, own if own and shapes.is_texts(own) else [])


def found_at(root: str, own: "List[str]") -> "Answer":
    """Return the places where the user may store files, what their quotas are, and how much of
    them is dray's. ``own`` is a command of the site's."""
    me = bootstrap.name_of(os.getuid())
    files.make_folder(root)
    questions = {"quota": ["quota", "-w", "-p"], "beegfs": beegfs(me)}
    if own:
        questions["site"] = own
    places = places_of(root)
    for place in places:
        if place["kind"] == "lustre":
            questions["lustre " + place["path"]] = ["lfs", "quota", "-q", "-u", me, place["path"]]
    return {
        "places": places,
        "answers": {name: said(words) for name, words in questions.items()},
        "own": {name: count(os.path.join(root, name)) for name in OWN},
        "user": me,
        "uid": os.getuid(),
    }


def beegfs(me: str) -> "List[str]":
    return ["beegfs-ctl", "--getquota", "--csv", "--uid", me]


def said(words: "List[str]") -> "KnownAnswer":
    """Run a program. Most sites have few of them, and one that is missing is no error."""
    text, error = "", ""
    try:
        text = scheduler.call(*words, fine=(1,), patience=PATIENCE)[:LONGEST]
    except SchedulerError as problem:
        error = str(problem)[:4000]
    except OSError as problem:
        error = str(problem)
    return {"time": time.time(), "text": text, "error": error}


def places_of(root: str) -> "List[PlaceUsage]":
    from ..formats import leases  # only here

    found = []  # type: List[PlaceUsage]
    wanted = [("root", root)] + [(name, os.environ.get(key, "")) for name, key in PLACES]
    for name, path in wanted:
        if not os.path.isabs(path) or path in [one["path"] for one in found]:
            continue
        try:
            usage = os.statvfs(path)
            kind = leases.mount_of(path)["kind"]
        except OSError:
            continue
        found.append(
            {
                "name": name,
                "path": path,
                "kind": kind,
                "total": usage.f_blocks * usage.f_frsize,
                "free": usage.f_bavail * usage.f_frsize,
                "files": usage.f_files or None,
                "files_free": usage.f_favail if usage.f_files else None,
            }
        )
    return found


def count(folder: str) -> "List[int]":
    """Return how many bytes and files lie below a folder, and 1 if there was time to count all. A
    file with several names counts once."""
    until = time.monotonic() + COUNTING / len(OWN)
    size = number = 0
    seen = set()
    folders = [folder]
    while folders:
        if time.monotonic() > until:
            return [size, number, 0]
        try:
            listed = list(os.scandir(folders.pop()))
        except OSError:  # removed this moment, or not ours
            continue
        for entry in listed:
            try:
                about = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
            except OSError:
                continue
            if about.st_nlink == 1 or about.st_ino not in seen:
                size, number = size + about.st_blocks * 512, number + 1
                seen.add(about.st_ino if about.st_nlink > 1 else 0)
    return [size, number, 1]
