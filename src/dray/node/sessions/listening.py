"""A port of the node that leads to the laptop: each connection to it opens a channel there."""

import socket

from . import frames
from .ends import Stream
from .link import MOST_CHANNELS, End
from .ready import READ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .link import Channel
    from .ready import Interests


class Listening(End):
    """Only processes of this machine can connect: it listens on the loopback."""

    def __init__(self, channel: "Channel", port: int) -> None:
        self.channel = channel
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.sock.bind(("127.0.0.1", port))
            self.sock.listen(64)
            self.sock.setblocking(False)
        except OSError:
            self.sock.close()
            raise
        channel.tell(frames.OPENED, {"port": self.sock.getsockname()[1]})

    def interests(self, wanted: "Interests") -> None:
        if len(self.channel.link.channels) < MOST_CHANNELS:
            wanted.add(self.sock.fileno(), READ, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self.sock.accept()
        except OSError:  # it has left already
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        about = {"what": "incoming", "on": self.channel.number}
        self.channel.link.open(about, lambda channel: Stream(channel, connection))

    def ended(self) -> None:
        self.channel.close()

    def closed(self) -> None:
        self.sock.close()
