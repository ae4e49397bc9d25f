"""Messages for whoever reads the log of the batch job, or of the keeper."""

import os

STDOUT = 1


def print_message(text: str) -> None:
    """Print a line to the log. It must never get in the way of the job: the log's disk may be the
    one that is full. So nothing is left in a buffer either, where writing it at exit could fail."""
    try:
        os.write(STDOUT, text.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        pass
