"""Runs several commands as one job's command: ``python -m dray_node side-by-side DESCRIBED``.

DESCRIBED is JSON: ``commands``, each with ``name``, ``words``, and perhaps ``env`` and ``gpus``;
whether they are ``together``, so that the failure of one ends the others; and the name of a
``lead``, if the end of that one ends the others. Each has a folder of its own in the outputs, as
$DRAY_OUTPUTS, and each line of its output begins with its name.

Commands that only share the job and are done are not started again by the next attempt.
"""

import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time

from ..formats import files
from ..processes import dividing
from . import together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional  # noqa: F401

MISSING = 127
DONE = ".done-side-by-side"  # in the outputs
TICK = 0.1
GRACE = 30.0  # seconds for those that are ended because another one has


class Member:
    """One of the commands."""

    def __init__(self, described: "Dict[str, Any]", outputs: str, env: "Dict[str, str]") -> None:
        self.name = str(described["name"])
        self.words = [str(one) for one in described["words"]]
        self.outputs = os.path.join(outputs, self.name)
        self.mark = os.path.join(outputs, DONE, self.name)
        self.env = dict(env, DRAY_OUTPUTS=self.outputs, **described.get("env", {}))
        self.env.pop("DRAY_CHECKPOINT", None)  # the newest of all of them: not this one's own
        self.process = None  # type: Optional[subprocess.Popen[bytes]]
        self.code = None  # type: Optional[int]
        self.copying = None  # type: Optional[threading.Thread]

    def start(self, write: "threading.Lock") -> None:
        files.make_folder(self.outputs, durable=False)
        try:
            self.process = subprocess.Popen(
                self.words,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            say("{} could not be started: {}".format(self.name, error))
            self.code = MISSING
            return
        self.copying = threading.Thread(target=self._copy, args=(write,), daemon=True)
        self.copying.start()

    def _copy(self, write: "threading.Lock") -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        lead = self.name.encode("utf-8", "replace") + b" | "
        for line in self.process.stdout:
            with write:
                sys.stdout.buffer.write(lead + line.rstrip(b"\n") + b"\n")
                sys.stdout.buffer.flush()

    def look(self) -> bool:
        """Return whether it has ended."""
        if self.code is None and self.process is not None:
            code = self.process.poll()
            if code is not None:
                self.code = code if code >= 0 else 128 - code
                if self.copying is not None:
                    self.copying.join(GRACE)
        return self.code is not None

    def send(self, number: int) -> None:
        if not self.look() and self.process is not None:
            self.process.send_signal(number)


class Runner:
    def __init__(self, described: "Dict[str, Any]") -> None:
        env, outputs = dict(os.environ), os.environ["DRAY_OUTPUTS"]
        self.together = bool(described.get("together"))
        self.lead = str(described.get("lead", ""))
        commands = described["commands"]
        if self.together:
            env.update(together.peers([str(one["name"]) for one in commands]))
        self.members = [Member(one, outputs, env) for one in commands]
        self.codes = collections.OrderedDict()  # type: Dict[str, int]  # of those that have ended
        self.write = threading.Lock()
        self._divide([one.get("gpus") for one in commands])

    def _divide(self, wanted: "List[Optional[int]]") -> None:
        visible = dividing.visible_gpus(dict(os.environ))
        if visible is None:
            return
        divided = dividing.divide_gpus(visible, wanted)
        for at, member in enumerate(self.members):
            member.env[dividing.GPUS] = ",".join(divided[at])

    def run(self) -> int:
        """Run all that are not done; return the code for all."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        for member in self.members:
            if not self.together and files.exists(member.mark):
                say("{} is done already".format(member.name))
                member.code = self.codes[member.name] = 0
        for member in self.members:
            if member.code is None:
                member.start(self.write)
        while not self._all_ended():
            self._note_ends()
            if self._is_over():
                self._end_rest()
            time.sleep(TICK)
        self._note_ends()
        return together.exit_code(self.codes, self.lead)

    def _all_ended(self) -> bool:
        return len([one for one in self.members if one.look()]) == len(self.members)

    def _note_ends(self) -> None:
        """Say which have ended since the last look; remember in which order they did."""
        for one in self.members:
            if one.code is None or one.name in self.codes:
                continue
            self.codes[one.name] = one.code
            say("{} ended with {}".format(one.name, one.code))
            if one.code == 0 and not self.together:
                files.make_folder(os.path.dirname(one.mark), durable=False)
                files.write_bytes(one.mark, b"")

    def _is_over(self) -> bool:
        """Return whether one has ended whose end is that of all."""
        if self.lead:
            return any(one.code is not None for one in self.members if one.name == self.lead)
        return self.together and any(one.code for one in self.members)

    def _end_rest(self) -> None:
        until = time.monotonic() + GRACE
        self._pass_on(signal.SIGTERM, None)
        while time.monotonic() < until and not self._all_ended():
            time.sleep(TICK)
        self._pass_on(signal.SIGKILL, None)

    def _pass_on(self, number: int, _: object) -> None:
        for one in self.members:
            one.send(number)


def main(described: str) -> int:
    return Runner(json.loads(described)).run()


def say(text: str) -> None:
    sys.stderr.write("dray: {}\n".format(text))
    sys.stderr.flush()
