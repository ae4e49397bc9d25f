"""Stands in for ``enroot import``, which cannot be had here: takes what its manual page allows, and
refuses everything else as it does."""

from __future__ import annotations

import os
import re
import sys

IMAGE = r"[a-z0-9][a-z0-9._/-]*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?"
REFERENCES = {
    "docker": rf"docker://([\w.-]+@)?([a-z0-9.-]+(:\d+)?#)?{IMAGE}",
    "dockerd": rf"dockerd://{IMAGE}",
    "podman": rf"podman://{IMAGE}",
}


def refuse(message: str) -> None:
    sys.exit(f"[ERROR] {message}")


def main(words: list[str]) -> None:
    if words[:2] != ["import", "--output"] or len(words) != 4:
        refuse(f"Invalid argument: {' '.join(words)}")
    target, reference = words[2:]
    pattern = REFERENCES.get(reference.partition("://")[0])
    if pattern is None or not re.fullmatch(pattern, reference):
        refuse(f"Invalid image reference: {reference}")
    if os.path.exists(target):
        refuse(f"File already exists: {target}")
    for name in ("ENROOT_TEMP_PATH", "ENROOT_CACHE_PATH"):
        if not os.path.isdir(os.environ.get(name, "")):
            refuse(f"No such directory: {name}")
    print("[INFO] Creating squashfs filesystem...")
    with open(target, "wb") as file:
        file.write(b"hsqs" + reference.encode())


if __name__ == "__main__":
    main(sys.argv[1:])
