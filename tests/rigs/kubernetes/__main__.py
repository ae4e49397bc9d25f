"""Starts a cluster to look at, until Ctrl-C or the end of input: python -m tests.rigs.kubernetes"""

from __future__ import annotations

import sys
from contextlib import suppress

from tests.rigs.kubernetes.cluster import Kubernetes


def main() -> None:
    cluster = Kubernetes()
    try:
        cluster.start()
        print(f"export KUBECONFIG={cluster.admin} PATH={cluster.bin}:$PATH", flush=True)
        with suppress(KeyboardInterrupt):
            sys.stdin.read()
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
