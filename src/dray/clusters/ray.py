"""A Ray cluster: the agent on its head, by SSH or as a job of Ray's, and a driver for each job.

Nothing of Ray is needed here. The driver (dray.node.ray.driver) waits for nodes, and has dray's own
supervisor make the attempts there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dray.clusters.agent import answers
from dray.clusters.agent.answers import Inspected
from dray.clusters.agent.cluster import BatchCluster
from dray.clusters.agent.facts import Problem
from dray.clusters.agent.script import ROOT, node_program, preparing_lines
from dray.clusters.kube.connecting import kubectl_of
from dray.clusters.protocol import Entrance
from dray.errors import ClusterError, ConfigError
from dray.job.model import Equipment, Finding, JobArray, JobSpec, Plan
from dray.job.options import shared
from dray.job.quantities import show_count, show_size
from dray.node.formats import files
from dray.node.jobs import arrays
from dray.node.schedulers.gathered import STAND_IN
from dray.programs import shipping
from dray.records import replace
from dray.transport.link import AgentLink
from dray.transport.ray_channel import KubeRayHead, RayHead

CHOICE = "Set one of address (http://…:8265), host (what ssh reaches) and kuberay (a RayCluster)."


# -- pure ---------------------------------------------------------------------------------------


def job_script(folder: str, settings: Mapping[str, Any]) -> str:
    """Write the script that Ray runs: as the driver, on the head, or on a node of the job. It
    contains nothing of the user's command, which is in job.json. On a node that does not see the
    root, another folder stands in for it."""
    python, inside = shlex.quote(shared.PYTHON.of(settings)), folder[len(ROOT) :]
    lines = [
        "#!/bin/bash",  # no login shell, which would forget where Ray finds its programs
        'if [ "$1" = drive ]; then',
        f"    exec >>'{folder}/batch.log' 2>&1",
        f"    exec {node_program(settings, '-I')} drive '{folder}'",  # it imports Ray
        "fi",
        *preparing_lines(settings),
        f"root='{ROOT}'",
        f'[ -z "${STAND_IN}" ] || root="${STAND_IN}"',
        f'exec {python} -I -S "$root/node/{shipping.name()}" node "$root{inside}"',
    ]
    return "\n".join(lines) + "\n"


def description(job: JobSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
    kind = job.resources.gpu_type or settings.get("gpu_type")
    if job.resources.gpus and kind:
        job = replace(job, resources=replace(job.resources, gpu_type=kind))
    return {**job.to_dict(), "scheduler": {"kind": "ray"}}


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any]) -> Plan:
    folder = f"{ROOT}/jobs/{job.id}"
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description(job, settings)).decode(),
            "batch.sh": job_script(folder, settings),
        },
        command=("ray", "job", f"{folder}/batch.sh"),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


def make_array_plan(array: JobArray, cluster: str, settings: Mapping[str, Any]) -> Plan:
    """Plan one directory and one driver for the whole array; job.sh is for a job of it that is
    resumed alone."""
    folder = f"{ROOT}/arrays/{array.id}"
    common = {**description(array.common, settings), **array.to_dict()}
    plan = Plan(
        job=array.common,
        cluster=cluster,
        files={
            "job.json": json.dumps(common),
            "batch.sh": job_script(folder, settings),
            "job.sh": job_script(f"{ROOT}/jobs/{arrays.JOB}", settings),
        },
        command=("ray", "job", f"{folder}/batch.sh"),
        is_array=True,
    )
    return plan.of_sweep(array)


def find_problem(job: JobSpec, found: Mapping[str, Any]) -> Problem | None:
    wanted = job.resources
    if job.container:
        what = "on Ray, a job runs in the container or environment that Ray itself runs in"
        return Problem(what, "Leave out --image, and put what is needed into Ray's own image.")
    if wanted.nodes > 1 and job.launch == "none":
        advice = "Write --launch srun or --launch torchrun, or leave out --nodes."
        return Problem("a command that is started once has no way to its other nodes", advice)
    shapes = found.get("nodes", ())
    return too_much(job, shapes) if shapes else None


def too_much(job: JobSpec, shapes: Sequence[Mapping[str, int]]) -> Problem | None:
    """Return what no node has; a cluster that grows by itself may get such a node, so the advice
    says what there is now."""
    wanted = job.resources
    for what, key, asked in (("GPU", "gpus", wanted.gpus), ("CPU", "cpus", wanted.cpus)):
        most = max(shape[key] for shape in shapes)
        if asked > most:
            text = f"{show_count(asked, what)} asked for, and no node has more than {most}"
            return Problem(text, "'dray cluster check' shows the nodes that Ray has now.")
    asked, most = wanted.memory or 0, max(shape["kilobytes"] for shape in shapes) << 10
    if asked > most:
        text = f"{show_size(asked)} asked for, and no node has more than {show_size(most)}"
        return Problem(text, "'dray cluster check' shows the nodes that Ray has now.")
    fitting = [
        shape["nodes"]
        for shape in shapes
        if shape["gpus"] >= wanted.gpus
        and shape["cpus"] >= wanted.cpus
        and shape["kilobytes"] << 10 >= asked
    ]
    if wanted.nodes > sum(fitting):
        return Problem(f"{wanted.nodes} nodes asked for, and Ray has {sum(fitting)} such nodes")
    return None


def ray_findings(about: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Finding]:
    python = shared.PYTHON.of(settings)
    if about.get("ray_error"):
        advice = "Is Ray running on the head? See the settings dashboard and address."
        return [Finding(ok=False, what="ray", detail=about["ray_error"], advice=advice)]
    version, imported = about.get("ray", ""), about.get("ray_of_python", "")
    findings = [Finding(ok=True, what="ray", detail=f"Ray {version}")]
    if imported != version:
        detail = f"{python} imports {f'Ray {imported}' if imported else 'no Ray'} on the head"
        advice = f"Set python to one with Ray {version}: jobs' drivers need it."
        findings.append(Finding(ok=False, what="python", detail=detail, advice=advice))
    return findings + [
        Finding(ok=True, what="nodes", detail=node_detail(shape)) for shape in about["nodes"]
    ]


def node_detail(shape: Mapping[str, int]) -> str:
    count = "1 node" if shape["nodes"] == 1 else f"{shape['nodes']} nodes"
    memory = show_size(shape["kilobytes"] << 10)
    cpus, gpus = show_count(shape["cpus"], "CPU"), show_count(shape["gpus"], "GPU")
    return f"{count} of {cpus}, {memory}, {gpus}"


def inspected_findings(nodes: Sequence[Inspected], version: str) -> list[Finding]:
    """Say what jobs would find on the nodes; equal ones are counted together."""
    told: dict[Finding, list[str]] = {}
    for node in nodes:
        told.setdefault(inspected_finding(node, version), []).append(node.address)
    return [
        finding._replace(detail=f"{', '.join(names[:3])}{more(names[3:])}: {finding.detail}")
        for finding, names in told.items()
    ]


def more(names: Sequence[str]) -> str:
    return f" and {len(names)} more" if names else ""


def inspected_finding(node: Inspected, version: str) -> Finding:
    if node.trouble:
        return Finding(ok=True, what="node", detail=node.trouble)
    imported, python = (*node.versions, "", "")[:2]
    if imported != version:
        detail = f"imports {f'Ray {imported}' if imported else f'no Ray: {node.complaint}'}"
        advice = f"Set python to one with Ray {version} on every node."
        return Finding(ok=False, what="node", detail=f"a job's Python {detail}", advice=advice)
    visible = [one for one in node.visible.split(",") if one]
    if node.gpus and len(visible) != 1:
        seen = f"CUDA_VISIBLE_DEVICES is {node.visible!r}"
        advice = "Look at how Ray was started there: RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES?"
        return Finding(ok=False, what="node", detail=f"a job with one GPU: {seen}", advice=advice)
    parts = [f"Ray {imported}, Python {python}"]
    if node.gpus:
        parts.append(f"a job sees one of {show_count(node.gpus, 'GPU')}")
    if node.gpus and not node.devices:
        parts.append("nvidia-smi lists none")
    parts.append("sees the root" if node.root else "does not see the root: files are carried")
    return Finding(ok=True, what="node", detail=", ".join(parts))


def address_findings(settings: Mapping[str, Any]) -> list[Finding]:
    """Warn of an address that anybody on the way can listen to."""
    address = settings.get("address", "")
    local = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")
    if not address.startswith("http://") or address.startswith(local):
        return []
    detail = f"{address} is not encrypted: secrets and code can be read on the way"
    return [Finding(ok=True, what="address", detail=detail)]


# -- acting -------------------------------------------------------------------------------------


class RayCluster(BatchCluster):
    kind = "ray"
    capabilities = BatchCluster.capabilities._replace(
        other_ways=("address", "kuberay"),
        awaits_images=False,
        own_images=False,
        arrays=True,
        limits_at_once=True,
        gpu_fractions=True,
    )

    def make_link(self) -> AgentLink:
        others = self.capabilities.other_ways
        host, address, kuberay = ways = [self.settings.get(key, "") for key in ("host", *others)]
        if sum(map(bool, ways)) != 1:
            raise ConfigError(f"the Ray cluster {self.name} needs a way to its head", hint=CHOICE)
        if host:
            link = super().make_link()
            if self.settings.get("dashboard"):
                link.scheduler = f"{self.kind}@{self.settings['dashboard']}"
            return link
        python = shared.PYTHON.of(self.settings)
        token = self.settings.get("token", "")
        channel = RayHead(address, token, python)
        if kuberay:
            channel = KubeRayHead(kubectl_of(self.settings), kuberay, token, python)
        root = shared.ROOT.of(self.settings)
        return AgentLink(channel, root, python, self.kind, on_answer=self._remember_answer)

    @staticmethod
    def root_here(*_: Any) -> str | None:
        return None

    def reach(self, seconds: float) -> str:
        if self.host:
            return super().reach(seconds)
        if self.settings.get("kuberay"):
            return self._reach_kuberay()
        from dray.errors import DrayError
        from dray.transport.ray_api import RayApi, find_token  # not for a listing of jobs

        try:
            api = RayApi(self.settings["address"], find_token(self.settings.get("token", "")))
            api.patience = seconds
            reply = api.ask("GET", "/api/version")
        except DrayError as error:
            return error.message
        if not reply.ok:
            return f"{self.settings['address']} is not Ray's dashboard: {reply.text}"
        self._remember_answer()
        return ""

    def _reach_kuberay(self) -> str:
        from dray.clusters.kuberay.looking import problem_of  # not for a listing of jobs

        why = problem_of(self.settings)
        if not why:
            self._remember_answer()
        return why

    def doctor(self) -> list[Finding]:
        """Look at Kubernetes first, where Ray is there: it tells why a head does not answer."""
        if not self.settings.get("kuberay"):
            return super().doctor()
        from dray.clusters.kuberay.doctor import findings  # only here

        own = findings(self.settings)
        return own if any(not one.ok for one in own) else [*own, *super().doctor()]

    def equipment(self) -> Equipment:
        """Return what the largest node has."""
        shapes = self.facts()["nodes"]
        return Equipment(
            cpus=max((shape["cpus"] for shape in shapes), default=0),
            memory=max((shape["kilobytes"] << 10 for shape in shapes), default=0) or None,
            gpus=max((shape["gpus"] for shape in shapes), default=0),
        )

    def problem(self, job: JobSpec, facts: Mapping[str, Any]) -> Problem | None:
        return find_problem(job, facts)

    def partitions(self) -> Sequence[str]:
        return ()

    def plan(self, work: JobSpec | JobArray) -> Plan:
        if isinstance(work, JobArray):
            return make_array_plan(work, self.name, self.settings)
        return make_plan(work, self.name, self.settings)

    def entrance(self) -> Entrance:
        return Entrance("a connection from the job's node to the head")

    def waiting_reason(self, queued: Mapping[str, str]) -> str:
        return queued["why"]

    def findings(self, about: Mapping[str, Any]) -> list[Finding]:
        found = ray_findings(about, self.settings)
        if all(one.ok for one in found):
            found += self._inspect(about["ray"])
        return [*found, *address_findings(self.settings)]

    def _inspect(self, version: str) -> list[Finding]:
        """Have a small task of Ray's look at each node with GPUs."""
        try:
            with answers.reading(self.name):
                answer = self.agent.ask("nodes", python=shared.PYTHON.of(self.settings))
                return inspected_findings(answers.inspected(answer), version)
        except ClusterError as error:
            return [Finding(ok=False, what="nodes", detail=error.message, advice=error.hint)]

    def container_findings(self, facts: Mapping[str, Any]) -> list[Finding]:
        del facts
        return []  # jobs run in Ray's own
