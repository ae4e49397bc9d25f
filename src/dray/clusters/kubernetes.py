"""Kubernetes, from a laptop through the user's own kubectl: a Job for each job.

The laptop speaks to the API server. An agent in a small helper pod, on the same volume as the jobs,
keeps their files. See dray.clusters.kube for the objects.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dray.clusters.agent import answers
from dray.clusters.agent.cluster import AgentQueue, BatchCluster
from dray.clusters.agent.facts import Problem
from dray.clusters.kube import (
    carrying,
    lost_nodes,
    manifest,
    names,
    queue,
    schedulers,
    volumes,
    without_files,
)
from dray.clusters.kube.api import NAMED, Look, Replaces
from dray.clusters.kube.api import Cluster as KubeCluster
from dray.clusters.kube.early import EarlyJob
from dray.clusters.kube.helper import Helper, NoRoom
from dray.clusters.kube.manifest import Place
from dray.clusters.kube.without_files import Told
from dray.clusters.options import kubernetes as options
from dray.clusters.protocol import Sessions, Situation, Statuses
from dray.errors import ClusterError, DrayError, Refused
from dray.job.model import (
    Capabilities,
    Equipment,
    Finding,
    JobArray,
    JobSpec,
    JobState,
    Plan,
    Private,
    Snapshot,
)
from dray.node.code.packs import Entry
from dray.node.formats import faults, files
from dray.node.jobs.arrays import fold, size_of
from dray.reporter import Progress
from dray.transport.channel import LinkLost
from dray.transport.kube_api import Api
from dray.transport.kubectl import Kubectl, PodExec
from dray.transport.link import AgentLink, Answer, BaseMissing

if TYPE_CHECKING:
    from dray.clusters.suggestion import Suggestion
    from dray.node.formats.records import Asked, Description, End, QueueGroup, RequestedJob

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # uname → what Kubernetes calls it
OLDEST = (1, 31)  # successPolicy: without it, a Job would never be complete


# -- pure ---------------------------------------------------------------------------------------


def description(job: JobSpec) -> Description:
    """Return what is in job.json. The pod is the container: nothing more is started in it."""
    return {**job.to_dict(), "container": None, "scheduler": {"kind": "kubernetes"}}


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any], place: Place) -> Plan:
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description(job)).decode(),
            "manifest.json": json.dumps(manifest.job_manifest(job, settings, place), indent=2),
        },
        command=create_words(place, f"{place.root}/jobs/{job.id}/manifest.json"),
        notes=plan_notes(job, place),
    )


def make_array_plan(
    array: JobArray, cluster: str, settings: Mapping[str, Any], place: Place
) -> Plan:
    """One directory for all, and a Job for each: a queue may admit them one by one, and each is
    resumed by itself. The manifest is that of the first one."""
    common = {**description(array.common), **array.to_dict()}
    first = manifest.job_manifest(array.common, settings, place, index=0)
    plan = Plan(
        job=array.common,
        cluster=cluster,
        files={"job.json": json.dumps(common), "manifest.json": json.dumps(first, indent=2)},
        command=create_words(place, f"{place.root}/arrays/{array.id}/manifest.json"),
        notes=plan_notes(array.common, place),
        is_array=True,
    )
    return plan.of_sweep(array)


def create_words(place: Place, path: str) -> tuple[str, ...]:
    where = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
    return ("kubectl", "create", "--raw", where, "--filename", path)


def plan_notes(job: JobSpec, place: Place) -> tuple[str, ...]:
    notes = [f"secret {name}: its value goes into a Secret of the job" for name in job.secrets]
    if job.resources.nodes > 1 and place.scheduler != "kueue":
        notes.append(
            "pods are started one by one there, not all or none: those that have a node wait for "
            "the others, and keep their GPUs meanwhile"
        )
    return tuple(notes)


def find_problem(
    job: JobSpec, settings: Mapping[str, Any], facts: Mapping[str, Any]
) -> Problem | None:
    kube = facts.get("kube", {})
    version = tuple(kube.get("version", OLDEST))
    if version < OLDEST:
        shown, least = (".".join(map(str, one)) for one in (version, OLDEST))
        return Problem(f"its Kubernetes is {shown}, and dray needs {least} or newer")
    if not job.container and not options.IMAGE.of(settings):
        advice = "Write --image NAME, or set image in the cluster's settings."
        return Problem("a pod needs an image, and none is named", advice)
    if job.container and job.container.image.startswith(("/", "sha256:")):
        advice = "Push it to a registry (dray image push), and write --image REGISTRY/NAME:TAG."
        return Problem("its images come from a registry, by name", advice)
    if job.container and job.container.binds:
        advice = 'Name what pods mount in the cluster\'s settings: volumes = ["pvc:CLAIM:/path"].'
        return Problem("pods mount volumes, not folders of a node", advice)
    if job.resources.gpus % 1 and schedulers.chosen(settings, kube) != "kai":
        advice = "Ask for a whole number; KAI and Run:ai can share a GPU (setting scheduler)."
        return Problem("it gives whole GPUs only", advice)
    if job.resources.nodes > 1 and job.launch == "none":
        advice = "Write --launch srun or --launch torchrun, or leave out --nodes."
        return Problem("a command that is started once has no way to its other pods", advice)
    modes = kube.get("modes", ())
    if job.resources.nodes > 1 and volumes.is_for_one_node(modes):
        advice = "Name a claim that is ReadWriteMany in volumes, or leave out --nodes."
        return Problem("its volume can be used on one node at a time", advice)
    if facts.get("links") is False:
        advice = "Name another volume: dray keeps the code of jobs by hard links."
        return Problem("files on its volume cannot be linked", advice)
    return volumes.find_problem(modes) or schedulers.find_problem(settings, kube)


def is_waiting(row: queue.Row | None) -> bool:
    return row is not None and row.state == "waiting"


def secret_files(secrets: Private) -> dict[str, bytes]:
    """Return what goes into the job's Secret; where to notify is kept with its files."""
    return secrets._replace(notify={}).files()


# -- acting -------------------------------------------------------------------------------------


class KubernetesCluster(BatchCluster):
    kind = "kubernetes"
    capabilities = Capabilities(arrays=True, registry_images=True, found_by="kubectl")
    _helper = ""  # its pod, as it was last started or found here

    def __init__(self, name: str, settings: Mapping[str, Any], _: Path, cache: Path) -> None:
        super().__init__(name, settings, _, cache)
        self._asked_pods: set[str] = set()  # of jobs, in the helper's place

    @staticmethod
    def root_here(_: str, settings: Mapping[str, Any], __: Path) -> str | None:
        del settings
        return None

    @staticmethod
    def suggest(settings: Mapping[str, Any], *, asks: bool) -> Suggestion:
        from dray.clusters.kube.suggesting import suggest  # only for a new cluster

        return suggest(settings, asks=asks)

    def make_link(self) -> AgentLink:
        root, user = volumes.root_of(self.settings), self.user
        self.kubectl = Kubectl(
            options.NAMESPACE.of(self.settings) or "",
            options.CONTEXT.of(self.settings) or "",
            str(Path(options.KUBECONFIG.of(self.settings)).expanduser())
            if options.KUBECONFIG.of(self.settings)
            else "",
        )
        channel = PodExec(self.kubectl, f"job/{names.helper_name(root, user)}", ["python3"])
        return AgentLink(
            channel,
            root,
            "python3",
            self.kind,
            on_answer=self._remember_answer,
            revive=self._revive,
            stays=self._may_stay,
        )

    def _may_stay(self) -> bool:
        """Return whether somebody may hold a connection to the helper, which keeps it alive: not
        where a job may need the volume on another node."""
        return self.agent.detour is not None or not self.place().one_node

    def _revive(self) -> PodExec | None:
        """Find the pod of a job that runs, or start the helper. One that was running a moment ago,
        and still is not reached, is on a node that does not answer."""
        for name, words in self.kube.job_pods(self.place()):
            if name not in self._asked_pods:  # else it could not be reached either
                self._asked_pods.add(name)
                return PodExec(self.kubectl, f"pod/{name}", words)
        helper = Helper(self.kube, self.settings, self.place())
        self._helper = helper.start(but=self._helper)
        return None

    def end_helper(self) -> None:
        """Let the helper make way for a job: the volume can be on one node only, and it may have to
        be another one."""
        Helper(self.kube, self.settings, self.place()).end()

    def make_queue(self) -> AgentQueue:
        return KubernetesQueue(self)

    @property
    def sessions(self) -> Sessions:
        from dray.clusters.kube.sessions import PodSessions  # not for a listing of jobs

        return PodSessions(self.name, self.agent, self.kube, self.kubectl, self.place)

    @cached_property
    def user(self) -> str:
        import getpass  # not for a listing

        return str(options.USER.of(self.settings) or getpass.getuser())

    @cached_property
    def api(self) -> Api:
        return Api(self.kubectl, self.agent.companion_socket())

    @cached_property
    def kube(self) -> KubeCluster:
        return KubeCluster(self.api)

    def place(self) -> Place:
        """Say where objects go, by what was last seen there."""
        kube = self.kube_facts()
        facts = self.known_facts()
        machine = "" if options.POD_PYTHON.of(self.settings) else facts.get("machine", "")
        return Place(
            namespace=self.kube.namespace,
            root=self.agent.root,
            user=self.user,
            scheduler=schedulers.chosen(self.settings, kube),
            queue=str(options.QUEUE.of(self.settings) or ""),
            versions=kube.get("versions", {}),
            limits_cpu=bool(kube.get("limits_cpu")),
            machine=MACHINES.get(machine, ""),
            one_node=volumes.is_for_one_node(kube.get("modes", ())),
        )

    def facts(self) -> dict[str, Any]:
        kube = self.kube.facts(volumes.claim_of_root(self.settings))
        self.remember_facts({**self.known_facts(), "kube": kube})
        return {**super().facts(), "kube": kube}

    def kube_facts(self) -> dict[str, Any]:
        """Return what was last seen of Kubernetes itself. Where that decides whose queue is meant,
        and is not known, look: a job must neither go past its queue nor wait for nobody."""
        kube: dict[str, Any] = self.known_facts().get("kube", {})
        if not kube and schedulers.depends_on_facts(self.settings):
            kube = self.kube.facts(volumes.claim_of_root(self.settings))
            self.remember_facts({**self.known_facts(), "kube": kube})
        return kube

    def remember_facts(self, found: Mapping[str, Any]) -> None:
        """Keep what the API server said: the agent's news do not tell of it."""
        kube = found.get("kube") or self.known_facts().get("kube", {})
        super().remember_facts({**found, "kube": kube})

    def python_words(self) -> list[str]:
        """Return the words that start dray's Python in any pod."""
        own = options.POD_PYTHON.of(self.settings)
        if own:
            return [own]
        facts = self.known_facts()
        if not facts.get("pod_python"):
            facts = self.facts()
        if not facts.get("pod_python"):
            raise ClusterError(
                f"{self.name}: the helper's Python cannot be used by jobs: "
                f"{facts.get('pod_python_error', 'it does not say why')}",
                hint="Choose another agent_image, or set python to one that all images have.",
            )
        return list(facts["pod_python"])

    def python_words_unasked(self) -> list[str]:
        """Return the words that start a Python in a pod where nobody can be asked: the one that a
        helper brought once, or else what the image has."""
        own = options.POD_PYTHON.of(self.settings)
        known = self.last_facts().get("pod_python")
        return [own] if own else list(known or ["python3"])

    def plain_image(self) -> str:
        return str(options.IMAGE.of(self.settings) or options.AGENT_IMAGE.of(self.settings))

    def equipment(self) -> Equipment:
        return self.kube.largest_node(options.GPU_RESOURCE.of(self.settings))

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        kube = facts.get("kube") or self.kube_facts()
        return find_problem(job, self.settings, {**facts, "kube": kube})

    def partitions(self) -> Sequence[str]:
        return ()

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return make_array_plan(work, self.name, self.settings, self.place())
        return make_plan(work, self.name, self.settings, self.place())

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        return queued["why"]

    def reach(self, seconds: float) -> str:
        del seconds  # kubectl has its own patience
        try:
            self.api.get("/version")
        except ClusterError as error:
            return error.message
        self._remember_answer()
        return ""

    def doctor(self) -> list[Finding]:
        from dray.clusters.kube.doctor import findings  # only here

        own = findings(self.kube, self.settings, self.place())
        return own if any(not one.ok for one in own) else [*own, *super().doctor()]

    @property
    def situation(self) -> Situation:
        from dray.clusters.kube.situation import KubernetesSituation  # not for a listing

        return KubernetesSituation(self.kube, self.settings, self.place())

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        words = about.get("pod_python")
        detail = about.get("pod_python_error", "") if not words else f"in {words[-1]}"
        return [Finding(ok=bool(words), what="python of jobs", detail=str(detail))]


class KubernetesQueue(AgentQueue):
    """Jobs as Job objects: the agent has their files, the API server says what becomes of them."""

    cluster: KubernetesCluster

    def __init__(self, cluster: KubernetesCluster) -> None:
        super().__init__(cluster)
        self._is_unclear = False  # whether a Job may be there that was being created
        self._end_before: End | None = None  # of the job that was resumed last
        self._has_gone_on = False  # whether somebody else had resumed it before
        self._seen = Look({}, {}, {}, {})  # what the API server said last
        self._fresh: Look | None = None  # the same, where nobody has used it yet
        self._early: EarlyJob | None = None  # of the submission that is under way, or is unclear
        self._stopped: set[str] = set()  # that had nothing but their Jobs

    @property
    def _told(self) -> Told:
        return Told(self.cluster.kube, self.cluster.name, self._seen)

    @property
    def may_have_got(self) -> bool:
        return super().may_have_got or self._is_unclear

    def submit(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        try:
            words = self.cluster.python_words()
            self._require_volume()
            self._early = self._early_job(plan, words, secrets)
            self._send("submit", plan, secrets._replace(secrets={}), code, progress)
        except NoRoom as error:
            self._take_back()
            self._create_carrying(plan, secrets, code, progress, error)
            return
        except LinkLost:  # the directory may be there: its pod, or the next status, finds out
            raise
        except DrayError:
            self._take_back()
            raise
        if self._early is None or not self._early.is_in_time():
            self._take_back()
            self._create(plan, words, secrets, resumes=False)
        self._early = None
        faults.reach("run:job-created")

    def _early_job(self, plan: Plan, words: Sequence[str], secrets: Private) -> EarlyJob | None:
        """Return a Job that can be created at once. Where the volume is on one node, the helper has
        to make way first."""
        if plan.is_array or self.cluster.place().one_node:
            return None
        (described,) = self._described(plan, words)
        return EarlyJob(self.cluster.kube, plan.job.id, described, secret_files(secrets))

    def meanwhile(self) -> None:
        if self._early is not None:
            self._is_unclear = True
            self._early.create()

    def _take_back(self) -> None:
        if self._early is not None:
            self._early.take_back()
            self._early, self._is_unclear = None, False

    def _send_pack(
        self,
        verb: str,
        request: Asked,
        code: Snapshot,
        lacking: list[Entry],
        progress: Progress,
    ) -> set[str]:
        """Send it; while more has to be sent, there is no Job."""
        try:
            missing = super()._send_pack(verb, request, code, lacking, progress)
        except BaseMissing:
            self._take_back()
            raise
        if missing:
            self._take_back()
        return missing

    def resume(
        self, plan: Plan, secrets: Private, code: Snapshot | None, progress: Progress
    ) -> None:
        words = self.cluster.python_words()
        self._early = None  # whether there is a Job to create is known from the answer
        self._send("resume", plan, secrets._replace(secrets={}), code, progress)
        if not self._has_gone_on:
            self._create(plan, words, secrets, resumes=True)
            faults.reach("run:job-created")

    def _create(self, plan: Plan, words: Sequence[str], secrets: Private, *, resumes: bool) -> None:
        """Create the Jobs of a plan whose directory is there; take that back where one is
        refused."""
        self._is_unclear = True
        faults.reach("run:directory-sent")
        described = self._described(plan, words)
        try:
            had_ended = resumes and self._end_before is not None
            replaces = Replaces(any=had_ended, ended=resumes)
            self.cluster.kube.create_jobs(described, secret_files(secrets), replaces)
        except LinkLost:
            raise
        except (ClusterError, Refused):
            about: RequestedJob = {"id": plan.job.id, "created": plan.job.created}
            end = self._end_before if resumes else None
            self.cluster.agent.ask("discard", job=about, array=plan.is_array, end=end)
            self._is_unclear = False
            raise
        if self.cluster.place().one_node:
            self.cluster.end_helper()

    def _require_volume(self) -> None:
        """Refuse what cannot work, which is known once somebody has looked: the first job finds
        nothing that was known before."""
        problem = volumes.find_problem(self.cluster.kube_facts().get("modes", ()))
        if problem is not None:
            raise Refused(f"{self.cluster.name}: {problem.what}", hint=problem.advice)

    def _create_carrying(
        self,
        plan: Plan,
        secrets: Private,
        code: Snapshot | None,
        progress: Progress,
        why: NoRoom,
    ) -> None:
        """Create a Job that brings its submission along, since nobody is there to take it."""
        if plan.is_array:
            raise Refused(
                f"{why.message}. Without it, several jobs cannot be submitted together",
                hint="Free room in the quota, or submit them one by one.",
            )
        request = self.request_of(plan, secrets._replace(secrets={}))
        content = carrying.parcel(request, code, self._last_manifest(), progress, why.message)
        content = {**content, **secret_files(secrets)}
        self._is_unclear = True
        described = manifest.carrying(json.loads(plan.files["manifest.json"]))
        described = manifest.with_python(described, self.cluster.python_words_unasked())
        self.cluster.kube.create_jobs([described], content, Replaces())
        faults.reach("run:job-created")

    def _described(self, plan: Plan, words: Sequence[str]) -> list[manifest.Object]:
        return [manifest.with_python(one, words) for one in self._manifests(plan)]

    def _manifests(self, plan: Plan) -> list[manifest.Object]:
        if not plan.is_array:
            return [json.loads(plan.files["manifest.json"])]
        jobs = size_of(json.loads(plan.files["job.json"]))
        settings, place = self.cluster.settings, self.cluster.place()
        return [
            manifest.job_manifest(plan.job, settings, place, index=index) for index in range(jobs)
        ]

    def _take_news(self, answer: Answer) -> None:
        super()._take_news(answer)
        self._has_gone_on = answer.record.get("gone_on") is True
        end = answer.record.get("end")
        self._end_before = cast("End", end) if isinstance(end, dict) else None

    def _look(self, ids: Sequence[str]) -> Look:
        self._seen = self.cluster.kube.look(self.cluster.place(), ids)
        return self._seen

    def news(self, *ids: str) -> Asked:
        seen = self._fresh or self._look(ids)
        self._fresh = None
        told: Asked = {"queue": queue.grouped(seen.rows), "ends": seen.ends}
        if seen.overdue:
            told["overdue"] = fold(list(seen.overdue))
        return told

    def heed(self, answer: Mapping[str, Any], asked: Collection[str]) -> None:
        """Delete the Jobs of those that wait and are to be stopped; the pods of those that run are
        asked to end, so that they look for the request at once. Pods of a node that is gone are
        given up once their job gives no sign of life."""
        place = self.cluster.place()
        with answers.reading(self.cluster.name):
            cancelled = answers.unfold(answer.get("cancel", []), answers.MOST_JOBS)
            interrupted = answers.unfold(answer.get("interrupt", []), answers.MOST_JOBS)
            silent = answers.unfold(answer.get("give_up", []), answers.MOST_JOBS)
        self.cluster.kube.delete_jobs(place, [one for one in cancelled if one in asked])
        self.cluster.kube.delete_pods(place, [one for one in interrupted if one in asked])
        for job_id in silent:
            lost_nodes.give_up(self.cluster.kube, self._seen.overdue.pop(job_id, []))

    def status(self, ids: Sequence[str], *, brief: bool = False) -> Statuses:
        """Ask the agent, as everywhere; of what it has no files yet, or where nobody can be asked,
        tell what the API server says."""
        asked = [one for one in ids if one not in self._stopped]
        try:
            if self.cluster.place().one_node:
                self._make_way(asked)
            if brief and len(asked) > NAMED:
                found = self._status_of_many(asked)
            else:
                found = super().status(asked, brief=brief)
        except NoRoom as error:
            found = Statuses(self._told.of(asked, error.message))
            if all(one.is_unreadable for one in found.jobs.values()):
                raise
        unknown = [one for one in asked if one not in found.jobs and one not in found.waiting]
        if self._early is not None and self._early.job_id in unknown:  # its directory never came
            self._take_back()
        more = self._told.of_carried(unknown) if unknown else {}
        for job_id in self._stopped.intersection(ids):
            more[job_id] = self._told.view(job_id, JobState.STOPPED, without_files.STOPPED)
        return Statuses({**found.jobs, **more}, found.waiting)

    def _status_of_many(self, ids: Sequence[str]) -> Statuses:
        """Ask the API server and the agent at the same time. The agent is told that all of them
        wait, and says which have made no attempt: where Kubernetes says that those wait as well,
        that is all. It is asked again about the others, with what Kubernetes says of them."""
        from concurrent.futures import ThreadPoolExecutor  # only for many

        asked = set(ids)
        with ThreadPoolExecutor(1) as pool:
            looking = pool.submit(self._look, ids)
            folded = fold(ids)
            all_wait: list[QueueGroup] = [{"ids": folded, "state": "waiting", "why": ""}]
            answer = self.cluster.agent.ask("status", ids=folded, brief=True, queue=all_wait)
            self._fresh = looking.result()
        rows = self._fresh.rows
        self.heed(answer, asked)
        with answers.reading(self.cluster.name):
            self._unsent = answers.unsent(answer)
            untried = [job for group, _ in answers.waiting_groups(answer, asked) for job in group]
        waiting = {one: rows[one].why for one in untried if is_waiting(rows.get(one))}
        try:
            others = super().status([one for one in ids if one not in waiting], brief=True)
        finally:
            self._fresh = None
        return Statuses(others.jobs, {**waiting, **others.waiting})

    def _make_way(self, ids: Sequence[str]) -> None:
        """End the helper where a pod needs the volume on another node, maybe, and do not start one
        only to look. Raises NoRoom then."""
        rows = self._look(ids).rows
        needy = [one for one, row in rows.items() if queue.is_being_made(row.why)]
        if needy and all(row.state == "waiting" for row in rows.values()):
            self.cluster.end_helper()
            raise NoRoom(f"the volume goes to the node of {needy[0]}, and nobody can look at it")

    def stop(self, ids: Sequence[str], *, now: bool) -> None:
        """Ask the agent; jobs of which nothing is there but their Jobs are stopped by deleting
        those."""
        silence: NoRoom | None = None
        try:
            super().stop(ids, now=now)
        except NoRoom as error:
            silence = error
        self._stop_carried(without_files.waiting(self._seen.rows))
        if silence is not None and not self._stopped.issuperset(ids):
            raise silence

    def _stop_carried(self, ids: Sequence[str]) -> None:
        try:
            known = super().status(ids).jobs
        except NoRoom:
            known = {}
        unfiled = list(self._told.of_carried([one for one in ids if one not in known]))
        self.cluster.kube.delete_jobs(self.cluster.place(), unfiled)
        self._stopped.update(unfiled)

    def remove(self, ids: Sequence[str]) -> None:
        self.cluster.kube.delete_jobs(self.cluster.place(), ids)
        super().remove(ids)
