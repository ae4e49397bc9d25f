"""Leads the machine's loopback to the API server: forward.py SOCKET HOST PORT.

The listening socket is inherited and belongs to the network of the tests; the connections are made
from the network this process was started in. After SIGUSR1 nothing gets through until SIGUSR2;
it is not stopped, as nsenter would then stop with it, and not be there to reap it.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import suppress

PIECE = 64 * 1024


async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(PIECE):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.write_eof()


async def relay(
    near: asyncio.StreamReader, near_sink: asyncio.StreamWriter, host: str, port: int
) -> None:
    try:
        far, far_sink = await asyncio.open_connection(host, port)
    except OSError:
        near_sink.close()
        return
    up = asyncio.create_task(pump(near, far_sink))
    await pump(far, near_sink)
    up.cancel()
    near_sink.close()
    far_sink.close()


def hang(*_: object) -> None:
    signal.sigwait({signal.SIGUSR2})


async def main(number: int, host: str, port: int) -> None:
    listener = socket.socket(fileno=number)
    server = await asyncio.start_server(
        lambda near, sink: relay(near, sink, host, port), sock=listener
    )
    await server.serve_forever()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    signal.signal(signal.SIGUSR1, hang)
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
