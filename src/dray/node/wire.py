"""What both ends of a conversation with the agent must agree on.

A message is a line with two lengths, of a JSON text and of a payload, and these two. An answer
stands behind a mark, because a login shell may print anything before the agent is started.
"""

MARK = b"\n\x01dray-answer\x01\n"


class Refusal(Exception):
    """The request cannot be granted; ``family`` names the laptop's error."""

    def __init__(self, family: str, message: str) -> None:
        Exception.__init__(self, message)
        self.family = family
