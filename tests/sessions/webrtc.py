"""Two ends of a WebRTC connection, in the manner of Isaac Sim and its client: signalling over one
TCP port, the picture over one port for datagrams, which the server says it has at a public address.

    python webrtc.py serve SIGNALLING MEDIA PUBLIC
    python webrtc.py watch SIGNALLING ADDRESS
"""

import asyncio
import json
import re
import sys

from aioice import ice
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription, VideoStreamTrack

NEAR = "127.0.0.1"
NOWHERE = "127.0.0.3 9"  # the server cannot reach the client but by the way that it came
ENOUGH = 10  # pictures, and messages
CANDIDATE = re.compile(r"(a=candidate:\S+ \d+ udp \d+ )\S+ (\d+)", re.IGNORECASE)

ice.get_host_addresses = lambda use_ipv4, use_ipv6: [NEAR]


def new_peer() -> RTCPeerConnection:
    return RTCPeerConnection(RTCConfiguration(iceServers=[]))


def bind_only(port: int) -> None:
    """Have datagrams come and go by this port."""
    loop = asyncio.get_running_loop()
    create = loop.create_datagram_endpoint

    def at_port(factory: object, local_addr: object = None, **more: object) -> object:
        del local_addr
        return create(factory, local_addr=(NEAR, port), **more)

    loop.create_datagram_endpoint = at_port


async def serve(signalling: int, media: int, public: str) -> None:
    bind_only(media)
    peers = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if not line:  # somebody who only looks whether there is a stream
            writer.close()
            return
        peer = new_peer()
        peers.append(peer)
        peer.addTrack(VideoStreamTrack())

        @peer.on("datachannel")
        def opened(channel: object) -> None:
            channel.on("message", lambda text: channel.send(text[::-1]))

        await peer.setRemoteDescription(RTCSessionDescription(**json.loads(line)))
        await peer.setLocalDescription(await peer.createAnswer())
        told = {"type": peer.localDescription.type, "sdp": peer.localDescription.sdp}
        told["sdp"] = CANDIDATE.sub(rf"\g<1>{public} \g<2>", told["sdp"])
        writer.write(json.dumps(told).encode() + b"\n")
        await writer.drain()

    server = await asyncio.start_server(answer, NEAR, signalling)
    async with server:
        await server.serve_forever()


async def watch(signalling: int, address: str) -> None:
    peer = new_peer()
    pictures: asyncio.Queue = asyncio.Queue()
    heard: asyncio.Queue = asyncio.Queue()
    peer.addTransceiver("video", direction="recvonly")
    channel = peer.createDataChannel("keys")
    channel.on("open", lambda: [channel.send(f"key {number}") for number in range(ENOUGH)])
    channel.on("message", heard.put_nowait)
    peer.on("track", pictures.put_nowait)
    await peer.setLocalDescription(await peer.createOffer())
    told = {"type": peer.localDescription.type, "sdp": peer.localDescription.sdp}
    told["sdp"] = CANDIDATE.sub(rf"\g<1>{NOWHERE}", told["sdp"])
    reader, writer = await asyncio.open_connection(address, signalling)
    writer.write(json.dumps(told).encode() + b"\n")
    answer = json.loads(await reader.readline())
    await peer.setRemoteDescription(RTCSessionDescription(**answer))
    track = await pictures.get()
    sizes = set()
    for _ in range(ENOUGH):
        frame = await track.recv()
        sizes.add((frame.width, frame.height))
    echoes = [await heard.get() for _ in range(ENOUGH)]
    await peer.close()
    print(json.dumps({"sizes": sorted(sizes), "echoes": echoes}))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "serve":
        asyncio.run(serve(int(words[0]), int(words[1]), words[2]))
    else:
        asyncio.run(asyncio.wait_for(watch(int(words[0]), words[1]), 60))
