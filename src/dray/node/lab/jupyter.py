"""Asks a Jupyter server about its kernels and terminals, over its socket."""

import calendar
import http.client
import json
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional

PATIENCE = 20.0
LARGEST = 4 << 20  # bytes of an answer
# Our own questions are not activity.
QUIETLY = "?no_track_activity=1"


class Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        http.client.HTTPConnection.__init__(self, "localhost", timeout=PATIENCE)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Jupyter:
    def __init__(self, path: str, token: str) -> None:
        self.path = path
        self.token = token

    def ask(self, what: str, method: str = "GET") -> "Any":
        """Return an answer of its API; None where there is none."""
        connection = Connection(self.path)
        try:
            connection.request(method, what, headers={"Authorization": "token " + self.token})
            answer = connection.getresponse()
            text = answer.read(LARGEST)
            return json.loads(text.decode("utf-8")) if answer.status == 200 and text else None
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def is_ready(self) -> bool:
        return self.ask("/api" + QUIETLY) is not None

    def newest_activity(self) -> float:
        """Return when a kernel or a terminal last did something; 0 where there is none."""
        found = [self.ask("/api/kernels" + QUIETLY), self.ask("/api/terminals" + QUIETLY)]
        listed = [one for some in found if isinstance(some, list) for one in some]
        return max([moment(one) for one in listed] + [0.0])

    def shut_down(self) -> None:
        self.ask("/api/shutdown", "POST")


def moment(record: "Any") -> float:
    """Read when something was last active: 2026-11-17T07:30:00.123456Z."""
    text = record.get("last_activity") if isinstance(record, dict) else None
    try:
        parsed = time.strptime(str(text)[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0.0
    return float(calendar.timegm(parsed))


def find(python: str) -> "Optional[List[str]]":
    """Return how JupyterLab is started: by this Python, or by a program on the PATH; None where
    there is none."""
    import importlib.util  # only here
    import shutil

    if importlib.util.find_spec("jupyterlab") is not None:
        return [python, "-m", "jupyterlab"]
    for name in ("jupyter-lab", "jupyter-notebook"):
        found = shutil.which(name)
        if found:
            return [found]
    return None
