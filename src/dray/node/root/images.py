"""The images of one root, and the jobs in its queue that make or need them."""

import os

from ..containers.images import Images
from ..formats import files
from ..formats.wire import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List  # noqa: F401

    from ..formats.records import ImageLook, ImageRecord, ListedImage, Row

NOT_HERE = (
    "there is no image {} here (an absolute path is one on the cluster; a file of your own machine "
    "is named by a relative one, such as ./train.sif)"
)
BEING_MADE = "the image is being made ready by {}: wait for that, or stop it"


class RootImages:
    """``queue`` tells the jobs that wait or run: see Scheduler.parse_queue."""

    def __init__(self, path: str, queue: "Callable[[], Dict[str, Row]]") -> None:
        self.store = Images(path)
        self.queue = queue

    def look(self, image: str, layers: "List[str]") -> "ImageLook":
        """Tell whether the image can be run or will be soon; and if not, what it lacks."""
        if self.store.file(image) is not None:
            return {"ready": True}
        maker = self.store.maker(image, self.queue)
        if maker is not None:
            return {"ready": False, "job": maker.job}
        needs = self.store.needs(layers)
        return {
            "ready": False,
            "machine": needs["machine"],
            "builders": needs["builders"],
            "lacking": needs["lacking"],
        }

    def awaited(self, image: str) -> str:
        """Return the number of the batch job that a job with this image has to wait for, if any."""
        if image.startswith("/") and not os.path.exists(image):
            raise Refusal("Refused", NOT_HERE.format(image))
        if not self.store.lacks(image):
            return ""
        maker = self.store.maker(image, self.queue)
        if maker is not None:
            return str(maker.number)
        if not self.store.lacks(image):  # its job has ended just now
            return ""
        raise Refusal("ImageMissing", "the image {} is not there".format(image))

    def announce(self, record: "ImageRecord") -> None:
        """Write down what it is, unless a job is about to make it: what that one goes by must not
        change."""
        if self.store.maker(record["id"], self.queue) is None:
            self.store.announce(record)

    def part(self, layer: str, offset: int, length: int, is_last: bool) -> str:
        """Return the file that a part of a layer is written to."""
        files.make_folder(self.store.layer(layer))
        return self.store.part_file(layer, offset, length, is_last)

    def listing(self) -> "List[ListedImage]":
        """List them with those of their jobs that the queue still has; an array's are named after
        it."""
        queued = self.queue()
        in_queue = set(queued) | {name.partition(".")[0] for name in queued}
        records = self.store.records()
        for record in records:
            record["jobs"] = [name for name in record["jobs"] if name in in_queue]
        return records

    def remove(self, image: str) -> None:
        """Remove it with the layers that no other image has."""
        maker = self.store.maker(image, self.queue)
        if maker is not None:
            raise Refusal("Refused", BEING_MADE.format(maker.job))
        if not self.store.remove(image):
            raise Refusal("Refused", BEING_MADE.format("a job"))
