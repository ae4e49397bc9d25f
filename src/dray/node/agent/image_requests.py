"""What the laptop asks of the agent about images."""

import os

from ..containers.images import Images
from ..formats import files
from ..formats.wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from .agent import Agent

    Record = Dict[str, Any]


NOT_HERE = (
    "there is no image {} here (an absolute path is one on the cluster; a file of your own machine "
    "is named by a relative one, such as ./train.sif)"
)


BEING_MADE = "the image is being made ready by {}: wait for that, or stop it"


def look(agent: "Agent", request: "Record") -> "Record":
    """Whether the image can be run or will be soon; and if not, what it lacks."""
    images = Images(agent.root)
    if images.file(request["id"]) is not None:
        return {"ready": True}
    maker = images.maker(request["id"], agent.scheduler.queue)
    if maker is not None:
        return {"ready": False, "job": maker.job}
    return dict(images.needs(request["layers"]), ready=False)


def awaited(agent: "Agent", request: "Record") -> str:
    """The number of the batch job that a job with an image has to wait for, if any."""
    image, images = request.get("image") or "", Images(agent.root)
    if image.startswith("/") and not os.path.exists(image):
        raise Refusal("Refused", NOT_HERE.format(image))
    if not images.lacks(image):
        return ""
    maker = images.maker(image, agent.scheduler.queue)
    if maker is not None:
        return str(maker.number)
    if not images.lacks(image):  # its job has ended just now
        return ""
    raise Refusal("ImageMissing", "the image {} is not there".format(image))


def announce(agent: "Agent", request: "Record") -> "Record":
    """Unless a job is about to make it: what that one goes by must not change."""
    images, record = Images(agent.root), request["record"]
    if images.maker(record["id"], agent.scheduler.queue) is None:
        images.announce(record)
    return {}


def take_part(agent: "Agent", request: "Record") -> "Record":
    images = Images(agent.root)
    files.make_folder(images.layer(request["layer"]))
    part = (request["layer"], request["offset"], request["length"], request["last"])
    agent.receive(images.part_file(*part), request["sha256"])
    return {}


def listing(agent: "Agent", _: "Record") -> "Record":
    """With those of its jobs that the scheduler still has; an array's are named after it."""
    queued = agent.scheduler.queue()
    in_queue = set(queued) | {name.partition(".")[0] for name in queued}
    records = Images(agent.root).records()
    for record in records:
        record["jobs"] = [name for name in record["jobs"] if name in in_queue]
    return {"images": records}


def remove(agent: "Agent", request: "Record") -> "Record":
    images = Images(agent.root)
    maker = images.maker(request["id"], agent.scheduler.queue)
    if maker is not None:
        raise Refusal("Refused", BEING_MADE.format(maker.job))
    if not images.remove(request["id"]):
        raise Refusal("Refused", BEING_MADE.format("a job"))
    return {}
