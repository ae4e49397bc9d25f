"""Runs a tiny job that shows whether a cluster runs jobs at all."""

from __future__ import annotations

import time

from dray.cli.terminal import say, visible
from dray.cli.wait import tell_end, tell_failure
from dray.clusters.protocol import Cluster
from dray.description.describing import new_id
from dray.job.model import Container, JobSpec, JobState, JobView, Resources
from dray.job.quantities import show_duration
from dray.launcher import Launcher

NAME = "dray-test"
COMMAND = ("sh", "-c", "echo it works")
SECONDS = 120.0  # enough for modules and an environment to load; no site allows less


def trial_job(cluster: Cluster) -> JobSpec:
    """Describe a job that runs everywhere: it has nothing of a project, its recipe or its
    resources."""
    image = cluster.plain_image()
    return JobSpec(
        id=new_id(NAME),
        name=NAME,
        command=COMMAND,
        resources=Resources(cpus=1, time=SECONDS),
        container=Container(image=image, name=image) if image else None,
        env=dict(cluster.environment()),
        created=time.time(),
    )


def try_out(verbs: Launcher, name: str) -> int:
    """Submit the job, wait, report and remove it; a failed one is kept. Returns the exit code."""
    cluster = verbs.cluster(name)
    job = verbs.submit(trial_job(cluster), cluster)
    say(f"test job {job} is submitted")
    try:
        view = watch(verbs, job)
    except KeyboardInterrupt:
        say("")  # the terminal shows ^C
        say(f"the test job stays: dray show {job}, dray stop {job}")
        raise
    code = tell_end(view)
    if view.state is JobState.DONE:
        say(summary(view))
        verbs.remove(job)
    else:
        tell_failure(verbs, view)
        say(f"It is kept: dray show {job}, dray logs {job}, dray rm {job}")
    return code


def watch(verbs: Launcher, job: str) -> JobView:
    """Wait for the end; say why it has not started whenever that changes."""
    told, pause = "", 0.1
    while (view := verbs.show(job)).state.active:
        waits = view.reason if view.state is JobState.QUEUED else ""
        if waits and waits != told:
            say(f"queued: {visible(waits)}")
        told = waits or told
        time.sleep(pause)
        pause = min(pause * 1.3, 2.0)
    return view


def summary(view: JobView) -> str:
    """Say how long it queued and ran, and where."""
    last = view.attempts[-1]
    began, ended = last.started or view.spec.created, last.ended or view.ended or time.time()
    queued = show_duration(max(began - view.spec.created, 0))
    ran = show_duration(max(ended - began, 0))
    return f"it queued {queued} and ran {ran} on {visible(last.host or 'a node without a name')}"
