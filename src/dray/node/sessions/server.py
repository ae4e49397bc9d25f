"""The node's side of sessions: a process beside the command, which serves whoever comes.

It is started by the command's supervisor when somebody knocks at the door, with the listening
socket as its stdin, and ends by itself when nobody has been there for a while.
"""

import json
import os
import signal
import socket
import sys
import time

from ..processes import process
from . import ends, frames
from .holding import Holding
from .link import Link
from .listeners import require_own
from .listening import Listening
from .programs import KEEP_SECONDS, Program, Terminal, last_of, send_to_group
from .ready import READ, Interests
from .relay import peer_of
from .sshd import Sshd
from .surroundings import Surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401

    from .dialing import Dialing
    from .edits import Edits  # noqa: F401
    from .link import Channel

IDLE = 60.0  # seconds without anybody, after which it ends
MOST_LINKS = 64
MOST_TERMINALS = 32
HANG_UP_SECONDS = 3.0  # between SIGHUP and SIGKILL
TICK = 5.0
LONGEST_TERM = 64  # characters of a terminal's type
OVER = "the attempt has ended"


class Wrong(Exception):
    """What is asked for makes no sense."""


class Server:
    def __init__(self, listening: "socket.socket", described: "Dict[str, Any]") -> None:
        self.listening = listening
        self.folder = os.path.dirname(listening.getsockname())  # the door's: it goes with it
        self.described = described
        self.links = []  # type: List[Link]
        self.terminals = []  # type: List[Terminal]
        self.programs = {}  # type: Dict[int, Program]
        self.dying = {}  # type: Dict[int, float]  # pid: when it is killed
        self.dialing = self._answer_calls(*described.get("calls", ()))
        self.busy_at = time.monotonic()
        self.is_over = False
        session = described["session"]
        self.holding = Holding(session) if session and session["is_held"] else None
        self.edits = None  # type: Optional[Edits]
        self._woken, wake = os.pipe()
        for fd in (self._woken, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _answer_calls(self, *known: "Any") -> "Optional[Dialing]":
        if not known:
            return None
        from .calls import Calls  # not where the scheduler leads here
        from .dialing import Dialing

        return Dialing(Calls(*known), self._welcome)

    def _hear(self, number: int, _: object) -> None:
        self.is_over = self.is_over or number == signal.SIGTERM

    def run(self) -> None:
        while not self.is_over and (self.holding or not self._is_idle()):
            self._turn()
        self._end()

    def _is_idle(self) -> bool:
        """Return whether nobody was here for a while, and nothing was left running, as an editor
        does with its own server until it is connected again."""
        is_late = time.monotonic() > self.busy_at + IDLE
        if is_late and process.descendants(os.getpid()):
            self.busy_at = time.monotonic()
            return False
        return is_late

    def _turn(self) -> None:
        wanted, seconds = Interests(), min(TICK, self.holding.pause) if self.holding else TICK
        wanted.add(self._woken, READ, self._reap)
        if len(self.links) < MOST_LINKS:
            wanted.add(self.listening.fileno(), READ, self._accept)
            if self.dialing is not None:
                seconds = min(self.dialing.interests(wanted), seconds)
        for terminal in self.terminals:
            terminal.interests(wanted)
        for link in self.links:
            seconds = min(link.tick(), seconds)
            link.interests(wanted)
        for then in wanted.wait(0.1 if self.dying else seconds):
            then()
        for link in self.links:
            link.write()  # at once: most of what was read is answered
        self._look_after()

    # -- who comes and goes -----------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            connection, _ = self.listening.accept()
        except OSError:  # it has left already
            return
        if peer_of(connection) != os.getuid():
            connection.close()
            return
        self._welcome(connection.detach())

    def _welcome(self, fd: int) -> None:
        """Serve somebody who has been let in."""
        link = Link(fd, fd, 2, self._is_asked)
        link.start({}, frames.MARK)
        self.links.append(link)

    def _look_after(self) -> None:
        now = time.monotonic()
        for link in [one for one in self.links if not one.is_alive]:
            self.links.remove(link)
            os.close(link.source)
        for terminal in [one for one in self.terminals if one.is_expired()]:
            self.terminals.remove(terminal)
            terminal.hang_up()
            self._let_die(terminal.pid, terminal.status)
            self._has_left(terminal)
        for pid, program in list(self.programs.items()):
            if not program.channel.is_open:
                del self.programs[pid]
                self._let_die(pid, program.status)
        for pid, until in list(self.dying.items()):
            if now > until:
                del self.dying[pid]
                send_to_group(pid, signal.SIGKILL)
        if self.links or self.terminals or self.dying:
            self.busy_at = now
        self._look_at_session()

    def _has_left(self, terminal: Terminal) -> None:
        """End a session with its last shell."""
        if self.holding and terminal.is_kept and not any(one.is_kept for one in self.terminals):
            self.holding.end("its last shell has ended")

    def _look_at_session(self) -> None:
        if self.holding is None:
            return
        for terminal in self.terminals:
            self.holding.is_used(terminal.typed_at)
        notice = self.holding.look()
        if notice:
            for terminal in self.terminals:
                terminal.announce(notice)

    def _let_die(self, pid: int, status: "Optional[int]") -> None:
        if status is None:
            send_to_group(pid, signal.SIGHUP)
            self.dying[pid] = time.monotonic() + HANG_UP_SECONDS

    def _reap(self) -> None:
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass
        for pid, status in process.reap():
            self.dying.pop(pid, None)
            if pid in self.programs:
                self.programs[pid].status = status
            for terminal in self.terminals:
                if terminal.pid == pid:
                    terminal.status = status

    def _end(self) -> None:
        """End all that was started here, and say why."""
        for link in self.links:
            for channel in list(link.channels.values()):
                channel.tell(frames.EXIT, {"error": OVER})
            link.write()
        below = process.descendants(os.getpid())
        process.send(below, signal.SIGHUP)
        until = time.monotonic() + 0.5
        while below and time.monotonic() < until:
            time.sleep(0.02)
            process.reap()
            below = process.descendants(os.getpid())
        process.send(below, signal.SIGKILL)

    # -- what is asked for ------------------------------------------------------------------------

    def _is_asked(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        try:
            self._open(channel, record)
        except Wrong as error:
            channel.refuse("it is not understood: {}".format(error))
        except process.CannotStart as error:
            code = 126 if error.errno in CANNOT_RUN else 127
            channel.refuse(str(error), code=code)
        except (OSError, ValueError) as error:
            channel.refuse(str(error))

    def _open(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        if self.holding:
            self.holding.is_used(time.monotonic())
        what = record.get("what")
        openers = {
            "program": self._open_program,
            "ssh": self._open_ssh,
            "terminal": self._open_terminal,
            "tcp": self._open_tcp,
            "unix": self._open_unix,
            "udp": self._open_udp,
            "sync": self._open_sync,
            "listen": self._open_listening,
        }
        if not isinstance(what, str) or what not in openers:
            raise Wrong("{!r}".format(what)[:100])
        openers[what](channel, record)

    def _open_program(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        argv = argv_of(record)
        if argv is None:
            raise Wrong("no program")
        self._serve(channel, Program(channel, self._around(record), argv))

    def _open_ssh(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        self._serve(channel, Sshd(channel, self._around(record), self.folder, record))

    def _serve(self, channel: "Channel", program: Program) -> None:
        channel.end = program
        self.programs[program.pid] = program

    def _open_tcp(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        port = own_port_of(record, "tcp")
        end = ends.connect(channel, socket.AF_INET, ("127.0.0.1", port))
        channel.end = end or channel.end

    def _open_unix(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        path = self._around(record).outside_path(text_of(record, "path"))
        end = ends.connect(channel, socket.AF_UNIX, path)
        channel.end = end or channel.end

    def _open_udp(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        port = own_port_of(record, "udp")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        channel.end = ends.Datagrams(channel, sock)
        sock.connect(("127.0.0.1", port))
        channel.tell(frames.OPENED, {})

    def _open_listening(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        channel.end = Listening(channel, port_of(record))

    def _open_sync(self, channel: "Channel", _: "Dict[str, Any]") -> None:
        """Take edits. All channels share what is known of the tree."""
        session = self.described["session"]
        if not session:
            raise ValueError("it is a job: its code is as it was when it was submitted")
        from .edits import Edits  # with OpenSSL's hashes: only here
        from .receiving import Receiving

        if self.edits is None:
            self.edits = Edits(
                session["work"], session["root"], session["snapshot"], session["edits"]
            )
        channel.end = Receiving(channel, self.edits)

    def _around(self, record: "Dict[str, Any]") -> Surroundings:
        return Surroundings(self.described, record.get("host") is True)

    def _open_terminal(self, channel: "Channel", record: "Dict[str, Any]") -> None:
        """Show a terminal that is there already, by its name or because somebody left it; else a
        new one."""
        argv, size = argv_of(record), (rows_of(record, "rows"), rows_of(record, "columns"))
        name, seen = record.get("name"), record.get("seen")
        found = next((one for one in self.terminals if name and one.name == name), None)
        if name and found is None:
            raise Wrong("the shell is not there any more")
        if found is None and argv is None and record.get("again") is True:
            found = last_of(self.terminals, record.get("host") is True)
        if found is None:
            if len(self.terminals) >= MOST_TERMINALS:
                raise ValueError("there are {} terminals already".format(MOST_TERMINALS))
            term = text_of(record, "term")[:LONGEST_TERM]
            keep = None if self.holding and argv is None else KEEP_SECONDS
            found = Terminal(self._around(record), argv, size, term, keep)
            self.terminals.append(found)
        if self.holding and found.is_kept:
            self.holding.is_entered()
        found.attach(channel, seen if isinstance(seen, int) and seen >= 0 else None, size)


CANNOT_RUN = (8, 13)  # ENOEXEC, EACCES


def argv_of(record: "Dict[str, Any]") -> "Optional[List[str]]":
    argv = record.get("argv")
    if argv is None:
        return None
    if not isinstance(argv, list) or not argv or not all(isinstance(one, str) for one in argv):
        raise Wrong("argv")
    return argv


def text_of(record: "Dict[str, Any]", key: str) -> str:
    found = record.get(key)
    if not isinstance(found, str) or not found or "\0" in found:
        raise Wrong(key)
    return found


def port_of(record: "Dict[str, Any]") -> int:
    found = record.get("port")
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 65536:
        raise Wrong("port")
    return found


def own_port_of(record: "Dict[str, Any]", protocol: str) -> int:
    """Return the port; with ``own``, only if no other account of the node listens there."""
    port = port_of(record)
    if record.get("own") is True:
        require_own(port, protocol)
    return port


def rows_of(record: "Dict[str, Any]", key: str) -> int:
    found = record.get(key)
    if not isinstance(found, int) or not 0 <= found < 65536:
        raise Wrong(key)
    return found


def main(described: int) -> int:
    with os.fdopen(described, "rb") as file:
        about = json.loads(file.read().decode("ascii"))
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    process.adopt_orphans()
    Server(listening, about).run()
    sys.stderr.flush()
    os._exit(0)
