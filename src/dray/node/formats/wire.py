"""The message format that both ends of a conversation with the agent agree on.

A message is a line with the lengths of a JSON text and of a payload, followed by both. An answer
follows a mark, because a login shell may print anything before the agent is started.
"""

import re

from .bootstrap import ANSWER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple  # noqa: F401

# Of the requests and answers. An agent is always the laptop's own file, but a connection may stand
# longer than a version of dray.
VERSION = 2
MARK = ANSWER
HEAD_LIMIT = 40  # bytes
TEXT_LIMIT = 256 << 20
# The head of a message without a text ends the conversation: not every channel passes on the end of
# a stream.
GOODBYE = b"0 0\n"
HEAD = re.compile(rb"([0-9]{1,12}) ([0-9]{1,18})\n")


class Refusal(Exception):
    """The request cannot be granted. ``family`` names the error that the laptop raises."""

    def __init__(self, family: str, message: str) -> None:
        Exception.__init__(self, message)
        self.family = family


def read_head(line: bytes) -> "Optional[Tuple[int, int]]":
    """Return the two lengths of a message; None if this is not the head of one."""
    match = HEAD.fullmatch(line)
    text, payload = (int(match.group(1)), int(match.group(2))) if match else (0, 0)
    return (text, payload) if 0 < text <= TEXT_LIMIT else None
