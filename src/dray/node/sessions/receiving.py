"""The channel on which a laptop sends edits into a session."""

import os

from . import frames
from .edits import Edits, Refused
from .frames import BadFrame
from .link import End
from .messages import Reader, packed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict  # noqa: F401

    from .link import Channel
    from .ready import Interests

MOST_WAITING = 4 << 20  # bytes of our answers that nobody reads


class Receiving(End):
    """Answers each message by one: what it wants, or what has to be told."""

    def __init__(self, channel: "Channel", edits: Edits) -> None:
        self.channel = channel
        self.edits = edits
        self._reader = Reader()
        self._answers = bytearray()
        channel.tell(frames.OPENED, {})

    def data(self, piece: bytes) -> None:
        for record, content in self._reader.feed(piece):
            self._answers += self._answer(record, content)
        self.channel.consumed(len(piece))
        if len(self._answers) > MOST_WAITING:
            raise BadFrame("answers are not read")

    def interests(self, wanted: "Interests") -> None:
        del wanted  # it only has something to say
        while self._answers and self.channel.room():
            piece = bytes(self._answers[: self.channel.room()])
            del self._answers[: len(piece)]
            self.channel.send(piece)

    def ended(self) -> None:
        self.channel.close()

    def closed(self) -> None:
        self._write_down()

    def _write_down(self) -> None:
        try:
            self.edits.write_down()
        except OSError:  # what is not written down counts as the session's own later
            pass

    def _answer(self, record: "Dict[str, Any]", content: bytes) -> bytes:
        what = record.get("do")
        if what == "begin":
            return packed({"same": self.edits.is_at(str(record.get("snapshot")))})
        if what == "compare":
            return self._compare(content)
        path = path_of(record)
        return packed({"path": os.fsdecode(path), "note": self._edit(record, path, content)})

    def _edit(self, record: "Dict[str, Any]", path: bytes, content: bytes) -> str:
        what = record.get("do")
        try:
            if what == "put":
                return self.edits.put(path, str(record.get("kind")), content)
            if what == "remove":
                return self.edits.remove(path)
        except Refused as error:
            return "not sent: {}".format(error)
        except OSError as error:
            return "not sent: {}".format(error.strerror or error)
        raise BadFrame("it is not known how to {!r}".format(what)[:100])

    def _compare(self, manifest: bytes) -> bytes:
        """Answer with the paths that are wanted here, and those that are to be removed."""
        try:
            wanted, gone = self.edits.differing(manifest)
        except ValueError:
            raise BadFrame("a manifest that cannot be read")
        listed = b"".join([b"+%s\0" % path for path in wanted] + [b"-%s\0" % path for path in gone])
        return packed({"differing": len(wanted) + len(gone)}, listed)


def path_of(record: "Dict[str, Any]") -> bytes:
    found = record.get("path")
    if not isinstance(found, str):
        raise BadFrame("an edit without a path")
    try:
        return os.fsencode(found)
    except UnicodeEncodeError:
        raise BadFrame("an edit without a path")
