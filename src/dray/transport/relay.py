"""Passes requests from many clients on to a few agents, so that nobody waits for anybody else.

Each client's request is read into its own buffer. Once it is whole it gets an agent, and keeps it
until the whole answer has come; the client may read the answer when it likes. So a client that is
stopped, or dies, leaves no agent in the middle of a message.
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
from dray.transport.standing import SILENCE_SECONDS

IDLE_SECONDS = 600.0
SPARE_SECONDS = 30.0  # how long an idle agent beyond the first is kept
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
    """A client that asks once, and gets one answer."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        self.link = link
        self.request = MessageBuffer(REQUEST_LIMIT)
        self.has_asked = False
        self.unsent = memoryview(b"")
        self.until = time.monotonic() + FIRST_WORD_SECONDS


class Agent:
    """A running agent, which works for one client at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.input, self.output = process.stdin.fileno(), process.stdout.fileno()
        os.set_blocking(self.input, False)
        os.set_blocking(self.output, False)
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

    def run(self) -> None:
        """Serve until the last agent has ended, or nobody has asked for a long while."""
        self.listener.setblocking(False)
        self.selector.register(self.listener, READ, lambda _: self._accept())
        self._open_agent()
        try:
            while self.agents and time.monotonic() < self.until:
                for key, events in self.selector.select(self._patience()):
                    key.data(events)
                self._expire()
                self._assign()
                self._ping()
        finally:
            for agent in list(self.agents):
                self._end(agent)
            for client in list(self.clients):
                self._drop(client)

    def _patience(self) -> float:
        clients, agents = [one.until for one in self.clients], [one.until for one in self.agents]
        agents += [one.ping_at for one in self.agents if self.pings and one.is_free]
        return max(min(self.until, *clients, *agents) - time.monotonic(), 0.0)

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
            self._drop(client)

    def _read_request(self, client: Client) -> None:
        piece = client.link.recv(PIECE)
        if not piece or client.has_asked:
            raise NotAMessage  # it is gone, or asks more than once
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
        return agent

    def _assign(self) -> None:
        while self.waiting:
            agent = next((one for one in self.agents if one.is_free), None)
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

    def _end(self, agent: Agent) -> None:
        """End an agent. The client that it worked for connects by itself."""
        self.agents.remove(agent)
        for fd in (agent.input, agent.output):
            with suppress(KeyError):
                self.selector.unregister(fd)
        process = agent.process
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        process.terminate()
        if agent.client is not None:
            self._drop(agent.client)
