"""How the two ends of a connection over a network prove to each other that they know the same
secret, before anything else is said. Pure.

    dialer → listener   a number that it has made up
    listener → dialer   one of its own, and the proof that it knows the secret
    dialer → listener   the proof that it knows it, too

A proof is an HMAC of both numbers, and of who gives it. So nothing that was heard on another
connection is of any use, nor what either end says itself. The secret is made for one connection,
and is in a file that only the user can read.
"""

import hashlib
import hmac
import os

NONCE = 32  # bytes of a number
PROOF = hashlib.sha256().digest_size
SECRET = 32


class Wrong(Exception):
    """The other end does not know the secret."""


def proof(secret: bytes, whose: bytes, dialed: bytes, listened: bytes) -> bytes:
    return hmac.new(secret, b"dray " + whose + b"\0" + dialed + listened, hashlib.sha256).digest()


class Side:
    """One end. ``missing`` is how many bytes it waits for; no more are to be read before it
    ``is_done``, as what follows is not for it."""

    def __init__(self, secret: bytes, missing: int) -> None:
        self.secret = secret
        self.nonce = os.urandom(NONCE)
        self.missing = missing
        self.is_done = False  # the other end has proved that it knows the secret
        self._heard = b""

    def take(self, piece: bytes) -> bytes:
        """Take what was read, and return what to say. Raises Wrong."""
        self._heard += piece
        self.missing -= len(piece)
        if self.missing:
            return b""
        heard, self._heard = self._heard, b""
        answer = self._answer(heard)
        self.is_done = not self.missing
        return answer

    def _answer(self, heard: bytes) -> bytes:
        raise NotImplementedError


class Dialer(Side):
    def __init__(self, secret: bytes) -> None:
        Side.__init__(self, secret, NONCE + PROOF)
        self.greeting = self.nonce  # to be said at once

    def _answer(self, heard: bytes) -> bytes:
        theirs, given = heard[:NONCE], heard[NONCE:]
        check(given, proof(self.secret, b"listener", self.nonce, theirs))
        return proof(self.secret, b"dialer", self.nonce, theirs)


class Listener(Side):
    def __init__(self, secret: bytes) -> None:
        Side.__init__(self, secret, NONCE)
        self._theirs = b""

    def _answer(self, heard: bytes) -> bytes:
        if not self._theirs:
            self._theirs, self.missing = heard, PROOF
            return self.nonce + proof(self.secret, b"listener", heard, self.nonce)
        check(heard, proof(self.secret, b"dialer", self._theirs, self.nonce))
        return b""


def check(given: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(given, expected):
        raise Wrong
