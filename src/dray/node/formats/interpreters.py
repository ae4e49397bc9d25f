"""How a Python is started that was copied, with libraries and loader, into a tree of its own.

Such a tree is made by the ``interpreter`` package, and runs where there is no Python, not even a
C library. Its loader is named in the command line instead of being found by the kernel, so
``sys.executable`` alone would not start it. Nothing is said in the environment: a command that this
Python starts has nothing to inherit.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

# Beside the program, so that $ORIGIN/../lib means the same wherever a loader counts from.
LOADER = os.path.join("bin", "ld.so")
PROGRAM = os.path.join("bin", "python3")
LIBRARIES = "lib"
CERTIFICATES = "certificates.pem"
RECORD = "made-from.json"  # what it was copied from; nothing else has a file of this name there


def words(tree: str) -> "List[str]":
    """Return the words that start a tree's Python, before its own arguments."""
    loader, libraries, program = (os.path.join(tree, one) for one in (LOADER, LIBRARIES, PROGRAM))
    return [loader, "--library-path", libraries, program]


def own_tree() -> "Optional[str]":
    """Return the tree whose Python this is; None for one that a machine or an image has."""
    tree = os.path.dirname(os.path.dirname(sys.executable))
    is_copy = tree and os.path.isfile(os.path.join(tree, RECORD))
    return tree if is_copy else None


def python_words() -> "List[str]":
    """Return the words that start the Python that runs this, before its own arguments."""
    tree = own_tree()
    return words(tree) if tree else [sys.executable]


def own_words(*words: str) -> "List[str]":
    """Return the words that start this program again, with other arguments."""
    return python_words() + ["-I", "-S", sys.argv[0]] + list(words)


def certificates() -> "Optional[str]":
    """Return the certificate authorities that came along with this Python, if any did: the image of
    a job need not have any."""
    tree = own_tree()
    path = os.path.join(tree, CERTIFICATES) if tree else ""
    return path if os.path.isfile(path) else None
