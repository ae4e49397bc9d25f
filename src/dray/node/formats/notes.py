"""What is told to whoever reads the log of the batch job, or of the keeper, itself."""

import os

STDOUT = 1


def note(text: str) -> None:
    """Never in the way of the job: the disk that the log is on may be the one that is full. So
    nothing is left in a buffer either, which could not be written at the end."""
    try:
        os.write(STDOUT, text.encode("utf-8", "surrogateescape") + b"\n")
    except OSError:
        pass
