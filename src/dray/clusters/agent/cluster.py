"""A cluster behind a login node: an agent there, over SSH, and a batch system that has the jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from dray import background
from dray.clusters import container_findings
from dray.clusters.agent import answers
from dray.clusters.agent.download import receive
from dray.clusters.agent.facts import Problem
from dray.clusters.agent.images import AgentImages
from dray.clusters.agent.upload import Change, change_of, pack_of
from dray.clusters.protocol import Found, Selection, Unsent
from dray.errors import ClusterError, Refused, StorageError
from dray.job import options
from dray.job.model import Finding, JobArray, JobSpec, JobView, Plan, Private, Series, Snapshot
from dray.job.quantities import show_size
from dray.landing import Landing
from dray.node.code.packs import Entry, entries, hash_of
from dray.node.formats import files
from dray.node.jobs.arrays import fold
from dray.reporter import Progress
from dray.transport.channel import Here
from dray.transport.link import AgentLink, Answer, BaseMissing
from dray.transport.ssh import Ssh

LITTLE_SPACE = 1 << 30
ARRAY_SIZE = 1000  # what a scheduler takes in one go, unless its admins have set less
FACTS_AGE = 86400.0  # what was seen longer ago says nothing of today


class BatchCluster:
    """What is the same for every batch system; the planning of jobs and the reading of what the
    scheduler says are each kind's own."""

    kind = ""
    is_here = False

    @property
    def array_size(self) -> int:
        return ARRAY_SIZE

    def __init__(self, name: str, settings: Mapping[str, Any], _: Path, cache: Path) -> None:
        self.name = name
        self.settings = settings
        self.host = settings.get("host", "")
        self.agent = AgentLink(
            Ssh(self.host) if self.host else Here(),
            settings.get("root", options.ROOT.default),
            settings.get("python", "python3"),
            self.kind,
            on_answer=self._note_answer,
        )
        self.python = self.agent.python
        self.images = AgentImages(name, self.agent)
        place = hash_of(f"{name}\0{self.host}\0{self.agent.root}".encode())
        self.known_file = cache / "sent" / place
        self.facts_file = cache / "facts" / place
        self.answered_file = cache / "answered" / place
        self._unsent: Sequence[Unsent] = ()

    @property
    def may_have_got(self) -> bool:
        return self.agent.may_have_submitted

    @property
    def may_ask(self) -> bool:
        return self.agent.may_ask

    @may_ask.setter
    def may_ask(self, may: bool) -> None:
        self.agent.may_ask = may

    def hang_up(self) -> None:
        self.agent.hang_up()

    def environment(self) -> Mapping[str, str]:
        return {}  # the cluster's own, as the batch script finds it

    def check(self, job: JobSpec) -> None:
        """By what was last seen of the cluster; before a job is refused, that is seen anew."""
        found = self.problem(job, self._known_facts())
        if found is not None:
            with suppress(ClusterError):  # offline, a plan can still be told what is wrong
                found = self.problem(job, self.facts())
        if found is not None:
            raise Refused(f"{self.name}: {found.what}", hint=found.advice)

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        """What would be refused, by what the agent found; nothing may be known of that."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """What the agent finds there, asked anew."""
        with answers.reading(self.name):
            found = answers.facts(self.agent.ask("hello"))
        self._remember_facts(found)
        return found

    def _known_facts(self) -> dict[str, Any]:
        found: dict[str, Any] | None = files.read_json(str(self.facts_file))
        return found if found and time.time() - found["seen"] < FACTS_AGE else {}

    def _remember_facts(self, found: Mapping[str, Any]) -> None:
        files.make_folder(str(self.facts_file.parent))
        seen = {**found, "seen": time.time()}
        files.write_json(str(self.facts_file), seen, durable=False)

    def partitions(self) -> Sequence[str]:
        raise NotImplementedError

    def plan(self, work: JobSpec | JobArray) -> Plan:
        raise NotImplementedError

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        """Why a job is not running yet, and when it may, in plain words."""
        raise NotImplementedError

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        """What ``doctor`` says of the scheduler, from what the agent found."""
        raise NotImplementedError

    def prepared(self) -> AbstractContextManager[None]:
        return self.agent.prepared()

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        for one in plan.each or (plan,):
            self._send("submit", one, secrets, code, progress)

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        self._send("resume", plan, secrets, code, progress)

    def _send(
        self,
        verb: str,
        plan: Plan,
        secrets: Private,
        code: Snapshot | None,
        progress: Progress,
    ) -> None:
        """Code that the cluster lacks, the plan's files and its command, in one stream.

        What it lacks is told from memory; where that is wrong the agent says so, and a second
        stream brings the rest.
        """
        contents = dict(plan.files)
        contents.update((name, one.decode()) for name, one in secrets.files().items())
        job = plan.job
        keys = ("id", "created", "snapshot", "resumed_after", "start_from")
        about = {key: getattr(job, key) for key in keys}
        if job.origin:
            about["origin"] = dict(job.origin)
        request: dict[str, Any] = {"job": about, "files": contents, "command": plan.command}
        if plan.is_array:
            request["array"] = True
        request["facts"] = self._known_facts().get("time")
        request["image"] = job.container.image if job.container else None
        if code is None:
            with self.agent.call(verb, request) as answer:
                self._take_news(answer)
            return
        change = change_of(self._last_manifest(), code.manifest)
        lacking = list(entries(change.middle))  # the rest is there, as far as we know
        self._send_contents(verb, request, code, change, lacking, progress)
        background.later(lambda: self._remember(code))

    def _send_contents(
        self,
        verb: str,
        request: dict[str, Any],
        code: Snapshot,
        change: Change,
        lacking: list[Entry],
        progress: Progress,
    ) -> None:
        for _ in range(3):  # from memory; with all that was thought known; with what is missing
            request["manifest"] = change.to_dict()
            try:
                missing = self._send_pack(verb, request, code, lacking, progress)
            except BaseMissing:
                change = change_of(b"", code.manifest)
                lacking = list(entries(code.manifest))
                continue
            if not missing:
                return
            lacking = [entry for entry in entries(code.manifest) if entry.hash in missing]
        raise ClusterError(f"{self.name}: contents arrived and are missing all the same")

    def _send_pack(
        self,
        verb: str,
        request: dict[str, Any],
        code: Snapshot,
        lacking: list[Entry],
        progress: Progress,
    ) -> set[str]:
        """Returns what the cluster still lacks."""
        pack = pack_of(code, lacking, progress)
        request["pack"] = pack.name if pack else None
        with self.agent.call(verb, request, pack) as answer:
            self._take_news(answer)
            with answers.reading(self.name):
                return answers.missing_contents(answer.record)

    def _take_news(self, answer: Answer) -> None:
        if "facts" in answer.record:
            with answers.reading(self.name):
                self._remember_facts(answers.facts(answer.record["facts"]))

    def _last_manifest(self) -> bytes:
        """What was last sent there."""
        try:
            return self.known_file.read_bytes()
        except FileNotFoundError:
            return b""

    def _remember(self, code: Snapshot) -> None:
        files.make_folder(str(self.known_file.parent))
        files.write_bytes(str(self.known_file), code.manifest, durable=False)

    def unsent(self) -> Sequence[Unsent]:
        return self._unsent

    def settle(self, message: Unsent) -> None:
        self.agent.ask("settle", ids=[message.id], over=message.over)

    def status(self, ids: Sequence[str]) -> dict[str, JobView]:
        return self._views(self.agent.ask("status", ids=fold(ids)), set(ids)) if ids else {}

    def glance(self, ids: Sequence[str]) -> tuple[dict[str, JobView], dict[str, str]]:
        if not ids:
            return {}, {}
        asked = set(ids)
        answer = self.agent.ask("status", ids=fold(ids), brief=True)
        waiting: dict[str, str] = {}
        with answers.reading(self.name):
            for group, row in answers.waiting_groups(answer, asked):
                waiting.update(dict.fromkeys(group, self.waiting_reason(row)))
        return self._views(answer, asked), waiting

    def _views(self, answer: Mapping[str, Any], asked: set[str]) -> dict[str, JobView]:
        with answers.reading(self.name):
            self._unsent = answers.unsent(answer)
            return answers.job_views(answer, self.name, asked, self.waiting_reason)

    def place(self, job_id: str) -> str:
        path = f"{self.agent.root}/jobs/{job_id}"
        return f"{self.host}:{path}" if self.host else path

    def ids(self) -> Iterator[str]:
        with answers.reading(self.name):
            yield from answers.job_ids(self.agent.ask("ids"))

    def log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> bytes:
        request = {"id": job_id, "attempt": attempt, "offset": offset, "rank": rank}
        with self.agent.call("log", request) as answer, answers.reading(self.name):
            answers.log_piece(answer.record)
            return answer.payload()

    def log_size(self, job_id: str, attempt: int, rank: int = 0) -> int:
        answer = self.agent.ask("log", id=job_id, attempt=attempt, offset=1 << 62, rank=rank)
        with answers.reading(self.name):
            return answers.log_piece(answer)[0]

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        answer = self.agent.ask("log-times", id=job_id, attempt=attempt)
        with answers.reading(self.name):
            return answers.log_times(answer)

    def metrics(self, job_id: str) -> Series:
        return Series.from_dict(self.agent.ask("metrics", id=job_id))

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        self.agent.ask("stop", ids=fold(ids), now=now)

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        """List the outputs, then request the files that are wanted. The cluster learns nothing else
        about the local folder."""
        with answers.reading(self.name):
            globs, latest = list(wanted.globs), wanted.latest_checkpoint
            told = self.agent.ask("outputs", id=job_id, globs=globs, latest_checkpoint=latest)
            may_be = wanted.takes()
            found = [file for file in answers.output_files(told) if may_be(file.path)]
            asked = [file.path for file in found if landing.wants(file)]
        if not asked:
            return 0, len(found)
        with (
            self.agent.call("pull", {"id": job_id, "paths": asked}) as answer,
            answers.reading(self.name),
        ):
            coming = answers.promised_files(answer.record, set(asked))
            broken = receive(answer.stream, coming, landing, progress)
        if broken:
            raise StorageError(
                f"{self.name}: {len(broken)} files could not be read there, such as {broken[0]}",
                hint="Check their permissions; if the job was writing them, pull again.",
            )
        return len(coming), len(found)

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:
        answer = self.agent.ask("checkpoint", id=job_id, name=name, rules=dict(rules))
        with answers.reading(self.name):
            return answers.checkpoint(answer)

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:
        wanted = [file.path for file in found.files]
        with (
            self.agent.call("pull", {"id": job_id, "paths": wanted}) as answer,
            answers.reading(self.name),
        ):
            coming = answers.promised_files(answer.record, set(wanted))
            broken = receive(answer.stream, coming, landing, progress)
        if broken or len(coming) < len(wanted):
            raise StorageError(
                f"{self.name}: {found.path} of {job_id} changed while it was fetched",
                hint="Try again, or name an older checkpoint.",
            )

    def bring(self, given: Snapshot, progress: Progress) -> None:
        """What is there already is not sent: so nothing is, until that is known."""
        request: dict[str, Any] = {"job": {"snapshot": given.id}}
        change = change_of(b"", given.manifest)
        self._send_contents("bring", request, given, change, [], progress)

    def remove(self, ids: Sequence[str]) -> None:
        answer = self.agent.ask("remove", ids=fold(ids))
        with answers.reading(self.name):
            left = answers.left_behind(answer)
        if left:
            raise StorageError(f"{self.name}: {left[0]} could not be removed")

    def last_answer(self) -> float | None:
        try:
            return self.answered_file.stat().st_mtime
        except FileNotFoundError:
            return None

    def reach(self, seconds: float) -> str:
        from dray.transport import login  # not for a listing of jobs

        why = login.reach(self.host, seconds) if self.host else ""
        if not why:
            self._note_answer()
        return why

    def _note_answer(self) -> None:
        with suppress(OSError):  # it only serves a listing
            files.make_folder(str(self.answered_file.parent))
            self.answered_file.touch()

    def doctor(self) -> list[Finding]:
        try:
            hello = self.facts()
        except ClusterError as error:
            return [Finding(ok=False, what="login", detail=error.message, advice=error.hint)]
        free = hello["free"]
        return [
            Finding(ok=True, what="login", detail=f"{self.agent.channel.place} answers"),
            Finding(ok=True, what="python", detail=hello["python"]),
            Finding(
                ok=free > LITTLE_SPACE,
                what="root",
                detail=f"{hello['root']}, {show_size(free)} free"
                + (f", {hello['files']:,} files" if hello["files"] else ""),
            ),
            *lock_findings(hello.get("locks")),
            *container_findings.findings(hello.get("container_facts", {})),
            *self.findings(hello),
        ]


def lock_findings(facts: Mapping[str, Any] | None) -> list[Finding]:
    """Whether locks keep a second attempt out, by what the login node found out."""
    if facts is None:
        return []
    kind = ", ".join([facts["file_system"], *facts["options"]])
    if facts["work"] and not facts["only_here"]:
        return [Finding(ok=True, what="locks", detail=f"files can be locked ({kind})")]
    how = "between nodes" if facts["work"] else "at all"
    detail = f"files cannot be locked {how} ({kind}): leases are used instead"
    return [Finding(ok=True, what="locks", detail=detail)]
