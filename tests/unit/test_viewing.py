"""Which ports of a simulation are brought here, and what is said about them."""

from __future__ import annotations

import pytest

from dray.cli.view import loopback
from dray.job.model import JobSpec
from dray.launcher.viewing import Stream, advice, forwards_for, missing, stream_of


def spec(*command: str, **env: str) -> JobSpec:
    return JobSpec(id="a-1", name="a", command=command, env=env)


def test_a_page_is_preferred_the_newest_first() -> None:
    assert stream_of(set()) is None
    assert stream_of({49100}) == Stream()
    assert stream_of({49100, 8211}) == Stream(8211)
    assert stream_of({49100, 8210, 8211}) == Stream(8210)
    assert stream_of({8210, 8211}) is None, "a page alone may be anybody's"


def test_the_ports_here_are_those_there() -> None:
    """The client can be given an address, and no port."""
    forwards = forwards_for(Stream(8211), "127.0.0.2")
    assert all(one.asked()["own"] is True for one in forwards)
    found = {(one.here, one.there, one.udp, one.address) for one in forwards}
    assert found == {
        (49100, 49100, False, "127.0.0.2"),
        (8211, 8211, False, "127.0.0.2"),
        (47998, 47998, True, "127.0.0.2"),
    }


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (spec("python", "train.py"), "does not seem to ask for a livestream"),
        (spec("python", "train.py", "--livestream", "1"), "PUBLIC_IP=127.0.0.1"),
        (spec("python", "play.py", LIVESTREAM="1", PUBLIC_IP="10.0.0.7"), "PUBLIC_IP=127.0.0.1"),
        (spec("python", "play.py", LIVESTREAM="1", PUBLIC_IP="127.0.0.1"), ""),
        (spec("isaac-sim.streaming.sh", "--/app/livestream/publicEndpointAddress=127.0.0.1"), ""),
    ],
)
def test_what_a_command_lacks_is_said_before_it_is_waited_for(job: JobSpec, said: str) -> None:
    found = missing(job, "127.0.0.1")
    assert (said in found) if said else (found == "")


def test_how_it_is_opened() -> None:
    assert advice(Stream(8211), "127.0.0.1") == [
        "http://127.0.0.1:8211/streaming/webrtc-client?server=127.0.0.1"
    ]
    assert "connect to 127.0.0.2" in advice(Stream(), "127.0.0.2")[0]


def test_only_this_machine_sees_it() -> None:
    assert loopback("127.0.0.2") == "127.0.0.2"
    for address in ("0.0.0.0", "192.168.1.7", "::1", "localhost", ""):
        with pytest.raises(ValueError, match="loopback"):
            loopback(address)
