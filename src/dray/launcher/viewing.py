"""Watching a headless simulation: the livestream of Isaac Sim, brought to this machine.

Signalling goes over TCP, the picture over datagrams. NVIDIA's own client can be given an address
and no port, so the ports here are the same as there; and the simulation itself says to which
address the datagrams are to be sent, so it has to be told one of this machine's loopback.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.job.model import JobSpec, JobView
from dray.launcher.arriving import Arriving
from dray.launcher.context import Context
from dray.launcher.sessions import Sessioning
from dray.records import NamedTuple
from dray.sessions.forwarding import HERE, Forward

SIGNALLING = 49100  # TCP: the client's first port
MEDIA = 47998  # UDP; opened by the simulation once a client has come to the other
# The pages of clients for a browser, by their TCP port, the newest first.
PAGES = {
    8210: "http://{}:8210/",
    8211: "http://{0}:8211/streaming/webrtc-client?server={0}",
}
CLIENT = "Isaac Sim WebRTC Streaming Client"


class Stream(NamedTuple):
    """What a simulation offers: ``page`` is the port of a client for the browser, 0 for none."""

    page: int = 0


# -- pure ---------------------------------------------------------------------------------------


def stream_of(ports: set[int]) -> Stream | None:
    """Return what is offered, from the ports that answer; None where nothing is so far. A page
    alone may be anything: many programs use such ports."""
    pages = [port for port in PAGES if port in ports]
    return Stream(pages[0] if pages else 0) if SIGNALLING in ports else None


def forwards_for(stream: Stream, address: str) -> list[Forward]:
    tcp = [SIGNALLING, *([stream.page] if stream.page else [])]
    found = [Forward(port, port, address=address, own=True) for port in tcp]
    return [*found, Forward(MEDIA, MEDIA, udp=True, address=address, own=True)]


def asks_for_stream(spec: JobSpec) -> bool:
    """Return whether a command asks for a livestream, as far as that can be seen."""
    words = " ".join(spec.command).lower()
    return "livestream" in words or "streaming" in words or "LIVESTREAM" in spec.env


def missing(spec: JobSpec, address: str) -> str:
    """Say what the command lacks to be watched from here, or ''."""
    words = " ".join(spec.command)
    if not asks_for_stream(spec):
        return (
            "the command does not seem to ask for a livestream. Isaac Lab: dray run --env "
            f"LIVESTREAM=1 --env PUBLIC_IP={address} …; Isaac Sim: isaac-sim.streaming.sh "
            f"--/app/livestream/publicEndpointAddress={address}"
        )
    if spec.env.get("PUBLIC_IP") != address and f"publicEndpointAddress={address}" not in words:
        return (
            f"the simulation has to say that its picture comes from {address}, else the client "
            f"stays black. Isaac Lab: --env PUBLIC_IP={address}; Isaac Sim: "
            f"--/app/livestream/publicEndpointAddress={address}"
        )
    return ""


def advice(stream: Stream, address: str) -> list[str]:
    """Say how the picture is opened on this machine."""
    if stream.page:
        return [PAGES[stream.page].format(address)]
    return [
        f"open NVIDIA's {CLIENT} here, and connect to {address}",
        "it is on the download page of Isaac Sim's documentation; take that of the same version",
    ]


# -- acting -------------------------------------------------------------------------------------


class Viewing:
    def __init__(self, context: Context, address: str = HERE) -> None:
        self.context = context
        self.address = address
        self.sessions = Sessioning(context)

    def wait(self, job_id: str, rank: int = 0) -> Stream:
        """Wait until the simulation offers a stream; say what it may lack."""
        from dray.sessions.probing import wait_for_ports

        lack = missing(self.sessions.jobs.last_seen(job_id).spec, self.address)
        if lack:
            self.context.reporter.say(f"{job_id}: {lack}")

        def enter(view: JobView) -> Stream:
            way = self.sessions.way(view.id, self.context.cluster(view.cluster), rank)
            return wait_for_ports(way, (SIGNALLING, *PAGES), stream_of, self._tell_waiting)

        return Arriving(self.context).wait(job_id, enter)

    def _tell_waiting(self) -> None:
        self.context.say_once(
            f"waiting for the livestream, port {SIGNALLING} there: Isaac Sim takes minutes to load"
        )

    def forwards(self, job_id: str, stream: Stream) -> Sequence[Forward]:
        """Return what has to be forwarded: nothing for a job of this machine."""
        cluster = self.sessions.jobs.find_here(job_id)[1]
        is_here = cluster.capabilities.is_local and self.address == HERE
        return () if is_here else forwards_for(stream, self.address)
