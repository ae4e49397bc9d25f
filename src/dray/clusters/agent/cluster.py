"""A cluster behind a login node: an agent there, over SSH, and a batch system that has the jobs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dray import background
from dray.clusters import container_findings
from dray.clusters.agent import answers
from dray.clusters.agent.facts import Problem
from dray.clusters.agent.files import AgentFiles
from dray.clusters.agent.images import AgentImages
from dray.clusters.agent.upload import Change, change_of, pack_of
from dray.clusters.protocol import Sessions, Situation, Statuses, Unsent
from dray.errors import ClusterError, Refused, StorageError
from dray.job.model import (
    Capabilities,
    Equipment,
    Finding,
    JobArray,
    JobSpec,
    JobView,
    Plan,
    Private,
    Snapshot,
)
from dray.job.options import shared
from dray.job.quantities import show_size
from dray.node.code.packs import Entry, entries, hash_of
from dray.node.formats import files
from dray.node.jobs.arrays import fold
from dray.reporter import Progress
from dray.transport.channel import Here
from dray.transport.link import AgentLink, Answer, BaseMissing
from dray.transport.ssh import Ssh

if TYPE_CHECKING:
    from dray.node.formats.records import Asked, Input, Origin, RequestedJob

LITTLE_SPACE = 1 << 30
ARRAY_SIZE = 1000  # what a scheduler takes in one go, unless its admins have set less
FACTS_AGE = 86400.0  # what was seen longer ago says nothing of today


class BatchCluster:
    """What all batch systems share. Each kind plans its own jobs, and reads what its scheduler
    says."""

    kind = ""
    capabilities = Capabilities(has_host=True, awaits_images=True, awaits_jobs=True)

    @property
    def array_size(self) -> int:
        return ARRAY_SIZE

    def __init__(self, name: str, settings: Mapping[str, Any], _: Path, cache: Path) -> None:
        self.name = name
        self.settings = settings
        self.host = settings.get("host", "")
        self.agent = self.make_link()
        self.images = AgentImages(name, self.agent, settings)
        place = hash_of(f"{name}\0{self.host}\0{self.agent.root}".encode())
        self.known_file = cache / "sent" / place
        self.facts_file = cache / "facts" / place
        self.answered_file = cache / "answered" / place
        self.queue = self.make_queue()
        jobs = f"{self.agent.root}/jobs/"
        self.files = AgentFiles(
            name, self.agent, f"{self.host}:{jobs}" if self.host else jobs, self.queue.send_contents
        )

    @property
    def sessions(self) -> Sessions:
        from dray.clusters.agent.sessions import AgentSessions  # not for a listing of jobs

        return AgentSessions(self.agent)

    def make_link(self) -> AgentLink:
        """Return the way to the agent."""
        return AgentLink(
            Ssh(self.host) if self.host else Here(),
            shared.ROOT.of(self.settings),
            shared.PYTHON.of(self.settings),
            self.kind,
            on_answer=self._remember_answer,
        )

    def make_queue(self) -> AgentQueue:
        return AgentQueue(self)

    @staticmethod
    def root_here(_: str, settings: Mapping[str, Any], __: Path) -> str | None:
        if settings.get("host"):
            return None
        return str(shared.ROOT.of(settings))

    @property
    def may_ask(self) -> bool:
        return self.agent.may_ask

    @may_ask.setter
    def may_ask(self, may: bool) -> None:
        self.agent.may_ask = may

    def hang_up(self) -> None:
        self.agent.hang_up()

    def plain_image(self) -> str:
        return ""

    def environment(self) -> Mapping[str, str]:
        return {}  # the cluster's own, as the batch script finds it

    def check(self, job: JobSpec) -> None:
        """Check the job by the facts last seen; before it is refused, ask the cluster again."""
        found = self.problem(job, self.known_facts())
        if found is not None:
            with suppress(ClusterError):  # offline, a plan can still be told what is wrong
                found = self.problem(job, self.facts())
        if found is not None:
            raise Refused(f"{self.name}: {found.what}", hint=found.advice)

    def equipment(self) -> Equipment:
        raise NotImplementedError

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        """Return what the cluster would refuse, by what the agent found. ``facts`` may be empty."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Ask the agent for what it finds there, and remember it."""
        with answers.reading(self.name):
            found = answers.facts(self.agent.ask("hello", **self.probed_settings()))
        self.remember_facts(found)
        return found

    def probed_settings(self) -> dict[str, Any]:
        """Return the settings that the agent is to check when it looks at its site."""
        return {}

    def known_facts(self) -> dict[str, Any]:
        found = self.last_facts()
        return found if found and time.time() - found["seen"] < FACTS_AGE else {}

    def last_facts(self) -> dict[str, Any]:
        """Return what was seen last, however long ago."""
        found: dict[str, Any] | None = files.read_json(str(self.facts_file))
        return found or {}

    def remember_facts(self, found: Mapping[str, Any]) -> None:
        files.make_folder(str(self.facts_file.parent))
        seen = {**found, "seen": time.time()}
        files.write_json(str(self.facts_file), seen, durable=False)

    def partitions(self) -> Sequence[str]:
        raise NotImplementedError

    def plan(self, work: JobSpec | JobArray) -> Plan:
        raise NotImplementedError

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        """Return in plain words why a job is not running yet, and when it may."""
        raise NotImplementedError

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        """Return what ``doctor`` says of the scheduler, from what the agent found."""
        raise NotImplementedError

    @property
    def situation(self) -> Situation:
        """Return what tells of the queue; each kind reads its scheduler's answers."""
        from dray.clusters.agent.situation import AgentSituation  # not for a listing

        return AgentSituation(self)

    def last_answer(self) -> float | None:
        try:
            return self.answered_file.stat().st_mtime
        except FileNotFoundError:
            return None

    def reach(self, seconds: float) -> str:
        from dray.transport import login  # not for a listing of jobs

        why = login.reach(self.host, seconds) if self.host else ""
        if not why:
            self._remember_answer()
        return why

    def _remember_answer(self) -> None:
        with suppress(OSError):  # it only serves a listing
            files.make_folder(str(self.answered_file.parent))
            self.answered_file.touch()

    def doctor(self) -> list[Finding]:
        try:
            facts = self.facts()
        except ClusterError as error:
            return [Finding(ok=False, what="login", detail=error.message, advice=error.hint)]
        except StorageError as error:
            return [Finding(ok=False, what="root", detail=error.message, advice=error.hint)]
        free = facts["free"]
        return [
            Finding(ok=True, what="login", detail=f"{self.agent.channel.place} answers"),
            Finding(ok=True, what="python", detail=facts["python"]),
            Finding(
                ok=free > LITTLE_SPACE,
                what="root",
                detail=f"{facts['root']}, {show_size(free)} free"
                + (f", {facts['files']:,} files" if facts["files"] else ""),
                advice="" if free > LITTLE_SPACE else "Free some space; dray rm removes old jobs.",
            ),
            *lock_findings(facts.get("locks")),
            *link_findings(facts),
            *self.container_findings(facts),
            *self.findings(facts),
        ]

    def container_findings(self, facts: Mapping[str, Any]) -> list[Finding]:
        if self.capabilities.registry_images:  # a job is in its container when it starts
            return []
        return container_findings.findings(facts.get("container_facts", {}))


class AgentQueue:
    """The jobs of a batch system, through the agent beside it."""

    def __init__(self, cluster: BatchCluster) -> None:
        self.cluster = cluster
        self._unsent: Sequence[Unsent] = ()

    @property
    def may_have_got(self) -> bool:
        return self.cluster.agent.may_have_submitted

    @property
    def array_size(self) -> int:
        return self.cluster.array_size

    def prepared(self) -> AbstractContextManager[None]:
        return self.cluster.agent.prepared()

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
        """Send the code that the cluster lacks, the plan's files and its command, in one stream.

        What the cluster lacks is known from memory. If that is out of date, the agent says so, and
        a second stream brings the rest."""
        request = self.request_of(plan, secrets)
        if verb == "resume":
            request.update(self.news(plan.job.id))
        if code is None:
            with self.cluster.agent.call(verb, request, None, self.meanwhile) as answer:
                self._take_news(answer)
            return
        change = change_of(self._last_manifest(), code.manifest)
        lacking = list(entries(change.middle))  # the rest is there, as far as we know
        self.send_contents(verb, request, code, change, lacking, progress)
        background.after_reply(lambda: self._remember(code))

    def request_of(self, plan: Plan, secrets: Private) -> Asked:
        """Return what the agent is told of a job, apart from its code."""
        contents = dict(plan.files)
        contents.update((name, one.decode()) for name, one in secrets.files().items())
        job = plan.job
        about: RequestedJob = {
            "id": job.id,
            "created": job.created,
            "snapshot": job.snapshot,
            "resumed_after": job.resumed_after,
            "start_from": job.start_from,
        }
        if job.origin:
            about["origin"] = cast("Origin", dict(job.origin))
        if job.after:
            about["after"] = dict(job.after)
        if job.inputs:
            about["inputs"] = cast("dict[str, Input]", {**job.inputs})
        request: Asked = {"job": about, "files": contents, "command": list(plan.command)}
        if plan.is_array:
            request["array"] = True
        request["facts"] = self.cluster.known_facts().get("time")
        container = None if self.cluster.capabilities.registry_images else job.container
        request["image"] = container.image if container else None
        return request

    def send_contents(
        self,
        verb: str,
        request: Asked,
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
            else:
                if not missing:
                    return
                lacking = [entry for entry in entries(code.manifest) if entry.hash in missing]
            self.before_more()
        raise ClusterError(f"{self.cluster.name}: contents arrived and are missing all the same")

    def _send_pack(
        self,
        verb: str,
        request: Asked,
        code: Snapshot,
        lacking: list[Entry],
        progress: Progress,
    ) -> set[str]:
        """Send the code and the request; return what the cluster still lacks."""
        pack = pack_of(code, lacking, progress)
        request["pack"] = pack.name if pack else None
        with self.cluster.agent.call(verb, request, pack, self.meanwhile) as answer:
            self._take_news(answer)
            with answers.reading(self.cluster.name):
                return answers.missing_contents(answer.record)

    def meanwhile(self) -> None:
        """Do what can be done while the answer to a submission is on its way."""

    def before_more(self) -> None:
        """Do what has to be done before more contents are sent, which may take long."""

    def _take_news(self, answer: Answer) -> None:
        if "facts" in answer.record:
            with answers.reading(self.cluster.name):
                self.cluster.remember_facts(answers.facts(answer.record["facts"]))

    def _last_manifest(self) -> bytes:
        """Read the manifest that was last sent there."""
        try:
            return self.cluster.known_file.read_bytes()
        except FileNotFoundError:
            return b""

    def _remember(self, code: Snapshot) -> None:
        files.make_folder(str(self.cluster.known_file.parent))
        files.write_bytes(str(self.cluster.known_file), code.manifest, durable=False)

    def unsent(self) -> Sequence[Unsent]:
        return self._unsent

    def settle(self, message: Unsent) -> None:
        self.cluster.agent.ask("settle", ids=[message.id], over=message.over)

    def news(self, *ids: str) -> Asked:
        """Return what the agent has to be told of these jobs; nothing where it can ask for itself
        what the scheduler says."""
        del ids
        return {}

    def heed(self, answer: Mapping[str, Any], asked: Collection[str]) -> None:
        """Do in the scheduler what the agent asks for, where it cannot do that itself: with the
        jobs that it was asked about, and no others."""

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        if not ids:
            return Statuses({})
        asked = set(ids)
        request: Asked = {"ids": fold(ids), **self.news(*ids)}
        if brief:
            request["brief"] = True
        answer = self.cluster.agent.ask("status", **request)
        self.heed(answer, asked)
        waiting: dict[str, str] = {}
        with answers.reading(self.cluster.name):
            for group, row in answers.waiting_groups(answer, asked) if brief else ():
                waiting.update(dict.fromkeys(group, self.cluster.waiting_reason(row)))
        return Statuses(self._views(answer, asked), waiting)

    def _views(self, answer: Mapping[str, Any], asked: set[str]) -> dict[str, JobView]:
        with answers.reading(self.cluster.name):
            self._unsent = answers.unsent(answer)
            return answers.job_views(answer, self.cluster.name, asked, self.cluster.waiting_reason)

    def ids(self) -> Iterator[str]:
        with answers.reading(self.cluster.name):
            yield from answers.job_ids(self.cluster.agent.ask("ids"))

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        request: Asked = {"ids": fold(ids), "now": now, **self.news(*ids)}
        self.heed(self.cluster.agent.ask("stop", **request), set(ids))

    def remove(self, ids: Sequence[str]) -> None:
        answer = self.cluster.agent.ask("remove", ids=fold(ids))
        with answers.reading(self.cluster.name):
            left = answers.left_behind(answer)
        if left:
            raise StorageError(f"{self.cluster.name}: {left[0]} could not be removed")


def lock_findings(facts: Mapping[str, Any] | None) -> list[Finding]:
    """Report whether locks keep a second attempt out, by what the login node found."""
    if facts is None:
        return []
    kind = ", ".join([facts["file_system"], *facts["options"]])
    if facts["work"] and not facts["only_here"]:
        return [Finding(ok=True, what="locks", detail=f"files can be locked ({kind})")]
    how = "between nodes" if facts["work"] else "at all"
    detail = f"files cannot be locked {how} ({kind}): leases are used instead"
    return [Finding(ok=True, what="locks", detail=detail)]


def link_findings(facts: Mapping[str, Any]) -> list[Finding]:
    """Report a root whose files cannot have two names, as a job keeps its code by that."""
    if facts.get("links") is not False:
        return []
    kind = facts["locks"]["file_system"] if "locks" in facts else "its file system"
    return [
        Finding(
            ok=False,
            what="links",
            detail=f"files in {facts['root']} cannot be linked ({kind})",
            advice="Choose a root on another file system: jobs keep their code by hard links.",
        )
    ]
