"""What the scheduler tells of its queue and its limits, as it says it: the laptop reads it.

Each question is put to the scheduler once for everybody within half a minute: the answers are kept
in a file of the root. Nothing here is asked for a listing of jobs."""

import os
import time

from ..formats import bootstrap, files, shapes
from ..formats.wire import Refusal
from ..root.root import checked_id
from ..schedulers.scheduler import SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List  # noqa: F401

    from ..formats.records import Answer, KnownAnswer, Request
    from .agent import Agent

AGE = 30.0  # seconds for which an answer serves everybody
LONGEST = 4 << 20  # characters of one answer
LARGEST = 64 << 20  # bytes of the file
MOST_GUESSES = 3  # of a scheduler that has to plan for each
ANSWER = {"time": shapes.is_number, "text": shapes.is_text, "error": shapes.is_text}


def look(agent: "Agent", request: "Request") -> "Answer":
    """Answer these questions, from the file where that is young enough."""
    names = request.get("names", [])
    if not shapes.is_texts(names):
        raise Refusal("Refused", "these are no questions")
    known = agent.scheduler.questions()
    cache = os.path.join(agent.root.path, "situation.json")
    files.make_folder(agent.root.path)
    with files.Lock(cache + ".lock"):
        kept = read(cache)
        asked = [name for name in names if name in known and not is_young(kept.get(name))]
        for name in asked:
            kept[name] = ask(agent, known[name])
        if asked:
            try:
                files.write_json(cache, kept, durable=False)
            except OSError:  # a full disk: the next one asks again
                pass
    answers = {name: kept[name] for name in names if name in kept}
    return {"answers": answers, "user": bootstrap.name_of(os.getuid()), "uid": os.getuid()}


def read(cache: str) -> "Dict[str, KnownAnswer]":
    found = files.read_record(cache, LARGEST) or {}  # type: Any
    return {name: one for name, one in found.items() if is_answer(one)}


def is_answer(value: "Any") -> bool:
    return isinstance(value, dict) and shapes.fits(value, ANSWER, ANSWER)


def is_young(answer: "object") -> bool:
    return isinstance(answer, dict) and 0 <= time.time() - answer["time"] < AGE


def ask(agent: "Agent", words: "List[str]") -> "KnownAnswer":
    """Put one question; the time is that of the answer, as the scheduler may take long."""
    text, error = "", ""
    try:
        text = agent.scheduler.answer(words)
    except (SchedulerError, OSError) as problem:
        error = str(problem)[:4000]
    if len(text) > LONGEST:  # whole lines only
        text, error = text[:LONGEST].rpartition("\n")[0], "the answer is too long to be read whole"
    return {"time": time.time(), "text": text, "error": error}


def explain(agent: "Agent", request: "Request") -> "Answer":
    """Describe one job as the scheduler sees it, and guess when it would start with these changes,
    three of them at most. This is not kept: it is asked for one job, by a person."""
    job_id = checked_id(request["id"])
    changes = request.get("changes", [])
    if not isinstance(changes, list) or not all(shapes.is_texts(one) for one in changes):
        raise Refusal("Refused", "these are no changes")
    row = agent.own_row(agent.queue().get(job_id), job_id)
    job_dir = agent.root.job(job_id)
    number = agent.scheduler.number_of(row, job_id) if row else job_dir.known_number() or ""
    script = job_dir.script if files.exists(job_dir.script) else ""
    told = {}  # type: Dict[str, KnownAnswer]
    if number:
        for name, words in agent.scheduler.questions_about(number).items():
            told[name] = ask(agent, words)
    guesses = []  # type: List[KnownAnswer]
    for change in changes[:MOST_GUESSES] if script else ():
        words = agent.scheduler.guess_words(script, change)
        if words:
            guesses.append(ask(agent, words))
    return {"scheduler_id": number, "answers": told, "guesses": guesses}
