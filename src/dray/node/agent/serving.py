"""The conversation with the laptop: requests in, answers out, until the input ends."""

import hashlib
import json
import os
import traceback

from ..checkpoints.origin import NothingToGoOnFrom
from ..code.packs import CHUNK
from ..formats import files
from ..formats.wire import HEAD_LIMIT, MARK, Refusal, read_head
from ..schedulers.scheduler import NoAnswer, SchedulerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Optional  # noqa: F401

    from ..formats.records import Reply, Request


class Conversation:
    """Reads requests and writes answers; what a verb does is up to ``carry_out``. Whoever makes
    ``stdin`` decides whether more is read than a request: see ``agent.main``."""

    def __init__(self, stdin: "BinaryIO", stdout: "BinaryIO") -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.payload = 0  # bytes of the request's that were not read yet

    def carry_out(self, request: "Request") -> "Reply":
        raise NotImplementedError

    def serve(self) -> bool:
        """Answer one request; return False where none is left. An error is an answer too."""
        request = self.next_request()
        if request is None:
            return False
        answer = dict(self.answer(request))
        self.skip_payload()
        afterwards = answer.pop("afterwards", None)
        pieces = answer.pop("pieces", ())
        self.send(answer)
        for piece in pieces:
            self.stdout.write(piece)
        self.stdout.flush()
        if afterwards is not None:
            afterwards()
        return True

    def answer(self, request: "Request") -> "Reply":
        try:
            return self.carry_out(request)
        except Refusal as error:
            return {"error": str(error), "family": error.family}
        except NothingToGoOnFrom as error:
            return {"error": str(error), "family": "Refused"}
        except NoAnswer as error:
            return {"error": str(error), "family": "NoAnswer"}
        except SchedulerError as error:
            return {"error": str(error), "family": "ClusterError"}
        except OSError as error:
            return {"error": str(error), "family": "OSError", "errno": error.errno}
        except Exception:
            return {"error": traceback.format_exc(), "family": "ClusterError"}

    def next_request(self) -> "Optional[Request]":
        """Read a request. Returns None at the end of the input, and where the input is not a
        request, as nothing after it can be trusted."""
        lengths = read_head(self.stdin.readline(HEAD_LIMIT))
        if lengths is None:
            return None
        try:
            found = json.loads(self._read(lengths[0]).decode("ascii"))  # type: Any
        except (ValueError, RecursionError):
            return None
        self.payload = lengths[1]
        request = found  # type: Request
        return request if isinstance(found, dict) else None

    def _read(self, length: int) -> bytes:
        """Read this many bytes, or what there is."""
        found = bytearray()
        while len(found) < length:
            piece = self.stdin.read(length - len(found))
            if not piece:
                break
            found += piece
        return bytes(found)

    def skip_payload(self) -> None:
        """Discard the payload of a refused request, which must not be taken for the next
        request."""
        while self.payload:
            piece = self.stdin.read(min(self.payload, CHUNK))
            self.payload = self.payload - len(piece) if piece else 0

    def send(self, answer: "Reply") -> None:
        text = json.dumps(answer).encode("ascii")
        self.stdout.write(MARK + b"%d %d\n" % (len(text), answer.get("payload", 0)) + text)
        self.stdout.flush()

    def receive(self, path: str, digest: str = "") -> None:
        """Write the request's payload to a file that appears whole. With a digest (SHA-256), only
        if the payload matches it."""
        temporary = "{}.{}.tmp".format(path, os.urandom(6).hex())
        check = hashlib.sha256()
        try:
            with open(temporary, "wb") as file:
                os.fchmod(file.fileno(), files.PRIVATE_FILE)
                while self.payload:
                    piece = self.stdin.read(min(self.payload, CHUNK))
                    if not piece:
                        raise Refusal("ClusterError", "the upload was cut off")
                    self.payload -= len(piece)
                    if digest:
                        check.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            if digest and check.hexdigest() != digest:
                raise Refusal("Damaged", "a part of the image came damaged")
            os.replace(temporary, path)
        finally:
            files.remove(temporary)
