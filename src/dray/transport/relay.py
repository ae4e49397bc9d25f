"""Passes requests from many clients on to a few agents, so that nobody waits for anybody else.

Each client's request is read into its own buffer. Once it is whole it gets an agent, and keeps it
until the whole answer has come; the client may read the answer when it likes. So a client that is
stopped, or dies, leaves no agent in the middle of a message. One who needs an agent for longer
borrows it: see ``lending``.
"""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf

from dray.transport.frames import PIECE, MessageBuffer, NotAMessage, answer_from_agent
from dray.transport.lending import LEND, Loan
from dray.transport.standing import SILENCE_SECONDS

IDLE_SECONDS = 600.0
SPARE_SECONDS = 30.0  # how long an idle agent beyond the first is kept
# When one was lent, so many are made ready for those who come next: after so many seconds, as the
# machines have more urgent things to do before, or once the borrower has left, if none is free.
READY_AGENTS = 2
REOPEN_SECONDS = 1.0
LOOK_SECONDS = 1.0
FIRST_WORD_SECONDS = 1.0  # for a client that only checks whether we are here
PING_SECONDS = 20.0  # a connection on which nothing is said for longer may be cut on its way
PONG_SECONDS = 15.0  # for the answer to that
PING = b'{"verb": "ping"}'
AGENTS = 4
CLIENTS = 64
REQUEST_LIMIT = 8 << 20
ANSWER_LIMIT = 64 << 20  # a client that wants more needs a session of its own
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Client:
    """A client that asks once, and gets one answer, or an agent."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.link = link
        self.request = MessageBuffer(REQUEST_LIMIT)
        self.has_asked = False
        self.loan: Loan | None = None
        self.unsent = memoryview(b"")
        self.until = time.monotonic() + FIRST_WORD_SECONDS


class Agent:
    """A running agent, which works for one client at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.pipes = (process.stdin, process.stdout, process.stderr)
        self.input, self.output, self.errors = (pipe.fileno() for pipe in self.pipes)
        for fd in (self.input, self.output, self.errors):
            os.set_blocking(fd, False)
        self.client: Client | None = None
        self.unsent = memoryview(b"")
        self.until = inf
        self.is_pinged = False
        self.rest()

    def rest(self) -> None:
        """Make the agent free for the next client. What it prints before it is asked is a login
        shell's banner."""
        self.client = None
        self.is_pinged = False
        self.answer = answer_from_agent(ANSWER_LIMIT)
        self.until = time.monotonic() + SPARE_SECONDS
        self.ping_at = time.monotonic() + PING_SECONDS

    @property
    def is_free(self) -> bool:
        return self.client is None and not self.is_pinged

    def ping(self) -> None:
        """Ask for a sign of life, for nobody."""
        self.is_pinged = True
        self.unsent = memoryview(b"%d 0\n" % len(PING) + PING)
        self.until = time.monotonic() + PONG_SECONDS

    def begin(self, client: Client) -> None:
        self.client = client
        self.unsent = memoryview(client.request.whole())
        self.answer = answer_from_agent(ANSWER_LIMIT)
        self.until = time.monotonic() + SILENCE_SECONDS


class Relay:
    """``pings``: whether agents that are idle are asked for a sign of life now and then."""

    def __init__(
        self,
        listener: socket.socket,
        open_session: Callable[[], subprocess.Popen[bytes]],
        *,
        pings: bool = False,
    ) -> None:
        self.pings = pings
        self.listener = listener
        self.open_session = open_session
        self.selector = selectors.DefaultSelector()
        self.clients: set[Client] = set()
        self.agents: list[Agent] = []
        self.waiting: deque[Client] = deque()
        self.until = time.monotonic() + IDLE_SECONDS
        self.reopen_at = inf

    def run(self) -> None:
        """Serve until the last agent has ended, or nobody has asked for a long while. What is lent
        then goes on without us."""
        self.listener.setblocking(False)
        self.selector.register(self.listener, READ, lambda _: self._accept())
        self._open_agent()
        try:
            while self._is_needed():
                for key, events in self.selector.select(self._patience()):
                    key.data(events)
                self._expire()
                self._assign()
                self._reopen()
                self._ping()
        finally:
            for agent in list(self.agents):
                self._end(agent)
            for client in list(self.clients):
                self._drop(client)

    def _is_needed(self) -> bool:
        has_way = bool(self.agents) or self.reopen_at < inf
        return has_way and (time.monotonic() < self.until or self._has_lent())

    def _patience(self) -> float:
        clients, agents = [one.until for one in self.clients], [one.until for one in self.agents]
        agents += [one.ping_at for one in self.agents if self.pings and one.is_free]
        now = time.monotonic()
        end = max(self.until, now + LOOK_SECONDS)  # it is put off while something is lent
        return max(min(end, self.reopen_at, *clients, *agents) - now, 0.0)

    def _expire(self) -> None:
        now = time.monotonic()
        for client in [one for one in self.clients if one.until <= now]:
            self._drop(client)
        for agent in [one for one in self.agents if one.until <= now]:
            if not agent.is_free or len(self.agents) > 1:
                self._end(agent)
            else:
                agent.until = inf

    # -- clients ----------------------------------------------------------------------------------

    def _accept(self) -> None:
        with suppress(OSError):
            link, _ = self.listener.accept()
            client = Client(link)
            self.clients.add(client)
            self.selector.register(link, READ, lambda events: self._serve(client, events))
            self.until = time.monotonic() + IDLE_SECONDS
            if len(self.clients) > CLIENTS:
                self._drop(client)

    def _serve(self, client: Client, events: int) -> None:
        try:
            if events & READ:
                self._read_request(client)
            if events & WRITE:
                self._write_answer(client)
        except BlockingIOError:
            pass
        except (OSError, NotAMessage):
            if client.loan is not None:
                client.loan.process.terminate()
                self._plan_reopening(0.0 if self._free() is None else REOPEN_SECONDS)
            self._drop(client)

    def _read_request(self, client: Client) -> None:
        piece = client.link.recv(PIECE)
        if not piece or client.has_asked:
            raise NotAMessage  # it is gone, or asks more than once
        if piece == LEND:
            self._lend(client)
            return
        client.until = time.monotonic() + SILENCE_SECONDS
        if client.request.feed(piece):
            if not client.request.is_exact():
                raise NotAMessage
            client.has_asked = True
            client.until = inf
            self.waiting.append(client)

    def _write_answer(self, client: Client) -> None:
        client.unsent = client.unsent[client.link.send(client.unsent[:PIECE]) :]
        client.until = time.monotonic() + SILENCE_SECONDS
        if not client.unsent:
            self._drop(client)

    def _drop(self, client: Client) -> None:
        if client not in self.clients:
            return
        self.clients.remove(client)
        if client in self.waiting:
            self.waiting.remove(client)
        self.selector.unregister(client.link)
        client.link.close()

    # -- agents -----------------------------------------------------------------------------------

    def _open_agent(self) -> Agent:
        agent = Agent(self.open_session())
        self.agents.append(agent)
        self.selector.register(agent.output, READ, lambda _: self._work(agent, self._hear))
        self.selector.register(agent.errors, READ, lambda _: self._work(agent, self._ignore))
        return agent

    def _lend(self, client: Client) -> None:
        """Hand an agent over."""
        agent = self._free()
        if agent is None:
            raise NotAMessage  # it opens a session of its own
        client.has_asked = True
        client.until = inf
        socket.send_fds(client.link, [b"!"], [agent.input, agent.output, agent.errors])
        client.loan = Loan(agent.process, client.link)
        client.loan.start()
        self._forget(agent)
        self._plan_reopening(REOPEN_SECONDS)

    def _free(self) -> Agent | None:
        return next((one for one in self.agents if one.is_free), None)

    def _plan_reopening(self, seconds: float) -> None:
        self.reopen_at = time.monotonic() + seconds

    def _reopen(self) -> None:
        if time.monotonic() < self.reopen_at:
            return
        self.reopen_at = inf
        free = sum(one.is_free for one in self.agents)
        with suppress(OSError):
            for _ in range(min(READY_AGENTS - free, AGENTS - len(self.agents))):
                self._open_agent()

    def _has_lent(self) -> bool:
        return any(one.loan is not None for one in self.clients)

    def _assign(self) -> None:
        while self.waiting:
            agent = self._free()
            if agent is None and len(self.agents) == AGENTS:
                return
            client = self.waiting.popleft()
            try:
                agent = agent or self._open_agent()
            except OSError:
                self._drop(client)
                continue
            agent.begin(client)
            self._watch_input(agent)

    def _ping(self) -> None:
        now = time.monotonic()
        for agent in self.agents if self.pings else ():
            if agent.is_free and agent.ping_at <= now:
                agent.ping()
                self._watch_input(agent)

    def _watch_input(self, agent: Agent) -> None:
        self.selector.register(agent.input, WRITE, lambda _: self._work(agent, self._tell))

    def _work(self, agent: Agent, step: Callable[[Agent], None]) -> None:
        try:
            if agent in self.agents:
                step(agent)
        except BlockingIOError:
            pass
        except (OSError, NotAMessage):
            self._end(agent)

    def _tell(self, agent: Agent) -> None:
        agent.unsent = agent.unsent[os.write(agent.input, agent.unsent[:PIECE]) :]
        if not agent.unsent:
            self.selector.unregister(agent.input)

    def _hear(self, agent: Agent) -> None:
        piece = os.read(agent.output, PIECE)
        if not piece:
            raise NotAMessage
        if not agent.answer.feed(piece):
            return
        client = agent.client
        if agent.is_free or agent.unsent:
            raise NotAMessage  # an answer to nothing
        if client is not None and client in self.clients:
            client.unsent = memoryview(agent.answer.whole())
            client.until = time.monotonic() + SILENCE_SECONDS
            self.selector.modify(client.link, READ | WRITE, self.selector.get_key(client.link).data)
        agent.rest()

    def _ignore(self, agent: Agent) -> None:
        """Read what an agent complains of, so that it is not held up."""
        if not os.read(agent.errors, PIECE):
            self.selector.unregister(agent.errors)

    def _end(self, agent: Agent) -> None:
        """End an agent. The client that it worked for connects by itself."""
        self._forget(agent)
        agent.process.terminate()
        if not self.agents:  # the link is broken: nobody is waited for any more
            self.reopen_at = inf
        if agent.client is not None:
            self._drop(agent.client)

    def _forget(self, agent: Agent) -> None:
        self.agents.remove(agent)
        for fd in (agent.input, agent.output, agent.errors):
            with suppress(KeyError):
                self.selector.unregister(fd)
        for pipe in agent.pipes:
            pipe.close()
