"""What W&B has written without a network, as JSON: for every file, oldest first, the run's id and
the steps of its history. Runs where wandb is installed.

wandb_files.py FOLDER. A file has a header, and records in blocks as in LevelDB's log: a checksum, a
length, and whether it is whole (1) or the first, a middle or the last part (2, 3, 4) of one.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

HEADER, BLOCK, FRAME = 7, 1 << 15, struct.Struct("<IHB")
WHOLE, LAST = 1, 4


def records(content: bytes) -> Iterator[Record]:
    assert content[:4] == b":W&B"
    at, parts = HEADER, b""
    while at + FRAME.size <= len(content):
        if BLOCK - at % BLOCK < FRAME.size:  # padding
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = FRAME.unpack_from(content, at)
        at += FRAME.size + length
        if kind == 0 or at > len(content):  # cut short by a kill
            return
        parts += content[at - length : at]
        if kind in (WHOLE, LAST):
            yield Record.FromString(parts)
            parts = b""


def about(path: Path) -> dict[str, object]:
    run, steps = "", []
    for record in records(path.read_bytes()):
        if record.HasField("run"):
            run = record.run.run_id
        elif record.HasField("history"):
            items = {one.key or one.nested_key[0]: one.value_json for one in record.history.item}
            if "loss" in items:
                steps.append(int(items["_step"]))
    return {"run": run, "steps": steps}


files = sorted(Path(sys.argv[1]).rglob("run-*.wandb"), key=lambda one: one.parent.name)
print(json.dumps([about(one) for one in files]))
