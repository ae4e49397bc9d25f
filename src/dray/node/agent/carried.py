"""A submission that came along with its Job, because nobody was there to take it.

Where a namespace has no room for the helper, the job's Secret holds what the laptop would have sent
to the agent. The pod carries that request out itself, as the agent would have, and goes on as any
other. A pod that takes over from another, or runs beside it, finds that it is done.
"""

import gzip
import io
import json
import os
import signal

from ..attempt import outcomes, pod
from ..attempt.command import HANDLED_SIGNALS
from ..formats import bootstrap, files
from ..formats.messages import print_message
from ..formats.wire import Refusal
from ..jobs import arrays, policy, trouble
from ..jobs.jobdir import JobDir
from ..root.submission import Submission
from ..schedulers.gathered import CODES, INTERRUPTED, OWN_FAULT
from ..schedulers.kubernetes import PACK, REQUEST, Kubernetes
from .agent import Agent
from .jobs import contents_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..formats.records import Carried  # noqa: F401


def main(folder: str, path: str) -> int:
    """Return the pod's exit code. ``folder`` is where the Secret is mounted, ``path`` the job's
    directory, which need not be there yet."""
    # At once, as in pod.run: this is the first process of its pod.
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    os.umask(0o077)
    try:
        refused = trouble.with_retries(lambda: stage(folder, path))
    except Exception as error:
        if trouble.is_of_node(error):
            print_message("its node could not store it: {}".format(error))
            return INTERRUPTED
        return end(OWN_FAULT, "the volume does not take it: {}".format(error))
    return end(CODES["failed"], refused) if refused else pod.run(path)


def end(code: int, reason: str) -> int:
    print_message(reason)
    pod.leave_message("failed", reason)
    return code


def stage(folder: str, path: str) -> str:
    """Write code and description to the volume; return why that cannot be, which is the job's end.
    The code is what can be missing: the laptop had sent it before, and it is no longer there."""
    with open(os.path.join(folder, REQUEST)) as file:
        request = json.load(file)  # type: Carried
    job_dir = JobDir(path)
    known = files.read_record(job_dir.job) or {}
    if known.get("created") == request["job"]["created"]:  # another pod has, and more may follow
        return ""
    bootstrap.make_folder(job_dir.root)
    bootstrap.check_folder(job_dir.root, may_be_link=True)
    with contents(folder, request["size"]) as pack:
        agent = Agent(job_dir.root, Kubernetes(), pack, io.BytesIO())
        agent.payload = request["size"]
        try:
            answer = agent.carry_out(request)  # type: Any
            refused = "its code is no longer there" if answer.get("missing") else ""
        except Refusal as error:
            refused = str(error)
    if refused and not files.exists(job_dir.job):
        refused = "what was sent before is missing on the volume ({}): submit it again".format(
            refused
        )
        with Submission(job_dir):
            arrays.write_directory(job_dir, contents_of(agent, request)[0], None)
            outcomes.end_job(job_dir, policy.Decision("failed", refused))
    return refused


def contents(folder: str, size: int) -> "Any":
    """Open the pack; there is none where all of the code is known to be there."""
    return gzip.open(os.path.join(folder, PACK)) if size else io.BytesIO()
