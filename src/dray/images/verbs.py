"""The verbs for images: bring one to a cluster, list them, remove one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from dray.clusters.protocol import END, Cluster, ImageState
from dray.description.describing import new_id
from dray.errors import ClusterError, NotFound, Refused, StorageError, nearest
from dray.images.conversion import ConversionSite, choose_builder
from dray.job.model import Container, JobSpec, JobState, JobView, Resources
from dray.job.quantities import show_size
from dray.node.containers.runtimes import installed
from dray.records import replace
from dray.reporter import Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from dray.images.push import Source

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# For making the file that containers start from: mostly compression.
CPUS, MEMORY, SECONDS = 2, 4 << 30, 3600.0


class PushedImage(NamedTuple):
    """What was done to have an image on a cluster. ``job`` converts it, if one does."""

    id: str
    name: str
    job: str = ""
    layers: int = 0
    bytes: int = 0


class ImageVerbs:
    """``submit`` and ``wait`` are those for any job."""

    def __init__(
        self,
        cache: Path,
        reporter: Reporter,
        submit: Callable[[JobSpec, Cluster], str],
        wait: Callable[[str, Cluster], JobView],
    ) -> None:
        self.cache = cache
        self.reporter = reporter
        self._submit = submit
        self._wait = wait
        self._sources: dict[str, Source] = {}

    def resolve(self, container: Container) -> Container:
        """Fill in the id of the image that its name means on this machine."""
        if is_on_cluster(container.image):
            return container
        found = self._find(container.image)
        return replace(container, image=found.id, name=found.name)

    def _find(self, reference: str) -> Source:
        from dray.images import source

        found = source.find(reference, self.cache)
        self._sources[found.id] = found
        return found

    def bring(self, container: Container, cluster: Cluster) -> None:
        """Bring the image of a job that is about to be submitted. On a batch system the job waits
        for its image in the queue; elsewhere this function waits."""
        source = self._sources.get(container.image)
        if source is None:
            raise Refused(
                f"the image {container.name} is not on {cluster.name} any more",
                hint=f"Bring it there: dray image push {container.name} --on {cluster.name}",
            )
        pushed = self._bring(source, cluster)
        if pushed.job:
            waits = (
                ""
                if not cluster.capabilities.awaits_images
                else "; this one waits for it in the queue"
            )
            self.reporter.say(f"the job {pushed.job} makes {pushed.name} ready to run{waits}")
        if not cluster.capabilities.awaits_images:
            self.require(pushed, cluster)

    def push(self, reference: str, cluster: Cluster) -> PushedImage:
        """Bring an image; return once its layers are there. If it is not ready to run, a job
        converts it."""
        return self._bring(self._find(reference), cluster)

    def _bring(self, source: Source, cluster: Cluster) -> PushedImage:
        images = cluster.images
        state = images.look(source.id, source.layers)
        if not (state.ready or state.job):
            check_machine(source, state.machine, cluster.name)
            source = self._with_builder(source, site_of(cluster, state))
            job = conversion_job(source, cluster)
            cluster.check(job)
            images.announce(source.record("", keep_layers=not cluster.capabilities.is_local))
            # Now its layers stay. Somebody else may have been quicker.
            state = images.look(source.id, source.layers)
        if state.ready or state.job:
            return PushedImage(source.id, source.name, state.job)
        sent = self._send(source, state, cluster)
        images.announce(source.record(job.id, keep_layers=not cluster.capabilities.is_local))
        return PushedImage(source.id, source.name, self._submit(job, cluster), *sent)

    def _with_builder(self, source: Source, site: ConversionSite) -> Source:
        """Choose the format of an image's file; make it here if the cluster cannot."""
        if source.kind == "file":
            return source
        here = [runtime.name for runtime in installed()]
        builder = choose_builder(source.kind, site, here)
        if not builder.here:
            return source._replace(format=builder.format)
        from dray.images import local_conversion

        self.reporter.say(f"making {source.name} ready with {builder.name} on this machine")
        return local_conversion.make(source, builder, self.cache)

    def _send(self, source: Source, state: ImageState, cluster: Cluster) -> tuple[int, int]:
        from dray.images.push import QUICK, send

        if not state.lacking:
            return 0, 0
        if source.kind == "layers":
            what = f"{len(state.lacking)} of {len(source.layers)} layers"
        else:
            what = show_size(source.size)
        self.reporter.say(f"sending {source.name} to {cluster.name}: {what}")
        progress = self.reporter.progress("sending image")
        level = 0 if cluster.capabilities.is_local or source.kind == "file" else QUICK
        try:
            return send(source, state.lacking, cluster.images, progress, level)
        except StorageError as error:
            hint = f"Free some space there; dray image rm {source.name} --on {cluster.name} removes"
            raise StorageError(error.message, hint=f"{hint} what has arrived.") from error

    def require(self, pushed: PushedImage, cluster: Cluster) -> None:
        """Wait until the image is ready."""
        view = self._wait(pushed.job, cluster) if pushed.job else None
        if view is not None and view.state is not JobState.DONE:
            raise ClusterError(
                f"{pushed.name} could not be made ready on {cluster.name}: "
                f"{last_output(view, cluster) or view.reason}",
                hint=f"dray logs {view.id} tells more.",
            )

    def remove(self, reference: str, cluster: Cluster) -> dict[str, Any]:
        """Remove an image by its name, or the beginning of its id."""
        record = pick(reference, cluster.images.listing(), cluster.name)
        if record["jobs"]:
            raise Refused(
                f"{record['name']} is used by {record['jobs'][0]}, which has not ended",
                hint=f"Wait for it, or stop it: dray stop {record['jobs'][0]}",
            )
        cluster.images.remove(record["id"])
        return record


def is_on_cluster(reference: str) -> bool:
    """Return whether it is on the cluster: an absolute path is there; an image on this machine is
    named, or given as a relative path."""
    return reference.startswith("/")


def last_output(view: JobView, cluster: Cluster) -> str:
    if not view.attempts:
        return ""
    number = view.attempts[-1].number
    start = max(cluster.files.read_log(view.id, number, END).size - 2000, 0)
    lines = (
        cluster.files.read_log(view.id, number, start).data.decode("utf-8", "replace").splitlines()
    )
    return lines[-1].strip() if lines else ""


def site_of(cluster: Cluster, state: ImageState) -> ConversionSite:
    how = cluster.images.conversion
    return ConversionSite(
        name=cluster.name,
        runtime=how.runtime,
        convert=how.convert,
        builders=state.builders,
        modules=how.modules,
    )


def check_machine(source: Source, machine: str, cluster: str) -> None:
    there = MACHINES.get(machine, machine)
    if source.architecture and there and source.architecture != there:
        raise Refused(
            f"{source.name} is made for {source.architecture}, and {cluster} is {there}",
            hint=f"Build it for that: dray image build --platform linux/{there} …",
        )


def conversion_job(source: Source, cluster: Cluster) -> JobSpec:
    name = "image-" + re.sub(r"[^a-z0-9]+", "-", source.name.lower()).strip("-")[-30:].strip("-")
    return JobSpec(
        id=new_id(name),
        name=name,
        command=(cluster.images.conversion.python, "-m", "dray_node", "convert", source.id),
        resources=Resources(cpus=CPUS, memory=MEMORY, time=SECONDS),
        env=dict(cluster.environment()),
        created=time.time(),
    )


def pick(reference: str, records: list[dict[str, Any]], on: str) -> dict[str, Any]:
    wanted = reference.removeprefix("sha256:")
    found = [
        record
        for record in records
        if reference in (record["name"], record["name"].rpartition(":")[0])
        or (len(wanted) >= 4 and record["id"].removeprefix("sha256:").startswith(wanted))
    ]
    if not found:
        names = [record["name"] for record in records]
        raise NotFound(
            f"{on} has no image '{reference}'.{nearest(reference, names)}",
            hint=f"dray image list --on {on} shows them.",
        )
    if len(found) > 1:
        ids = ", ".join(record["id"][7:19] for record in found)
        raise Refused(f"'{reference}' means several images: {ids}", hint="Write the id instead.")
    return found[0]
