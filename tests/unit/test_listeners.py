"""Whose a port of this machine is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from dray.node.sessions.listeners import owners, require_own

FOREIGN = 65534
LISTEN = f"""
import os, socket, sys
os.setgid({FOREIGN})
os.setuid({FOREIGN})
kind = socket.SOCK_STREAM if sys.argv[1] == "tcp" else socket.SOCK_DGRAM
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET, kind)
server.bind((sys.argv[2], 0))
if sys.argv[1] == "tcp":
    server.listen()
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "127.0.0.2"])
def test_a_port_of_ours(address: str) -> None:
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
        assert owners(port, "tcp") == (set() if address == "127.0.0.2" else {os.getuid()})
        require_own(port, "tcp")
        assert owners(port, "udp") == set()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])
def test_a_port_of_another_account(protocol: str, address: str) -> None:
    if ":" in address and not os.path.exists(f"/proc/net/{protocol}6"):
        pytest.skip("there is no IPv6 here")
    words = [sys.executable, "-c", LISTEN, protocol, address]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        with pytest.raises(ValueError, match="uid 65534"):
            require_own(port, protocol)
        other.communicate()
