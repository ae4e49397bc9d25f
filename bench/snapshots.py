"""How quickly the code is frozen."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path

from bench.measure import Figure, best_of, command, seconds
from dray.snapshot import Scanner, write_snapshot
from dray.snapshot.scan import UNSURE_NS

LIMIT = 1 << 30


def make_tree(top: Path) -> None:
    """5,000 files, 60 MB, in a git repository with everything committed."""
    source = random.Random(7)
    for folder in range(100):
        here = top / f"package{folder // 10}" / f"module{folder}"
        here.mkdir(parents=True)
        for file in range(50):
            (here / f"file{file}.py").write_bytes(source.randbytes(12_000))
    (top / ".gitignore").write_text("*.log\nbuild/\n__pycache__/\n")
    git = ["git", "-C", str(top), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "tree"]):
        subprocess.run([*git, *words], check=True)


def run(folder: Path) -> list[Figure]:
    tree, root = folder / "tree", folder / "root"
    make_tree(tree)
    time.sleep(UNSURE_NS / 1e9 + 0.1)
    scanner = Scanner(tree, (), folder / "cache", LIMIT)
    first = seconds(lambda: write_snapshot(str(root), scanner.take(), lambda done, total: None))
    copied = seconds(lambda: shutil.copytree(tree, folder / "copy"))
    times = best_of(
        {
            "git": command("git", "-C", str(tree), "status", "--porcelain"),
            "dray": scanner.take,
        },
        rounds=25,
    )

    def edit() -> None:
        (tree / "package0/module0/file0.py").write_bytes(random.randbytes(12_000))

    edit()
    edited = seconds(lambda: write_snapshot(str(root), scanner.take(), lambda done, total: None))
    ratio = times["dray"] / times["git"]
    packs = len(list((root / "packs").iterdir()))
    return [
        Figure(
            "snapshot, unchanged tree of 5,000 files",
            times["dray"] * 1000,
            "ms",
            f"`git status` ({times['git'] * 1000:.1f} ms)",
            ratio,
            "≤ 1×",
            ratio <= 1,
        ),
        Figure(
            "snapshot and pack, one file of 5,000 changed",
            edited * 1000,
            "ms",
            f"`git status` ({times['git'] * 1000:.1f} ms)",
            edited / times["git"],
            "none",
            True,
        ),
        Figure(
            f"snapshot and pack, the first time (60 MB; {packs} packs after both)",
            first,
            "s",
            f"copying the tree ({copied:.2f} s)",
            first / copied,
            "none",
            True,
        ),
    ]
