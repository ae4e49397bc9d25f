"""The model of a disk: what is certain after which sync."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults.disk import MODELS, Disk, tree_of
from tests.faults.shim import Call

Names = dict[str, bytes]


def call(what: str, path: str, inode: int, data: bytes = b"", **more: object) -> Call:
    fields = {"offset": 0, "created": what == "open", "other": "", "result": len(data), **more}
    return Call("run", what, 1, 0, inode=inode, path=path, data=data, **fields)  # type: ignore[arg-type]


def saved(top: Path, *, sync: bool) -> list[Call]:
    """A file that is saved by temp file and rename, in a folder that is made for it."""
    folder, new, path = f"{top}/d", f"{top}/d/f.tmp", f"{top}/d/f"
    calls = [call("mkdir", folder, 1), call("open", new, 2), call("write", new, 2, b"text")]
    calls += [call("fsync", new, 2)] if sync else []
    calls += [call("rename", path, 2, other=new)]
    calls += [call("fsync", folder, 1)] if sync else []
    return calls


def outcomes(top: Path, model: str, calls: list[Call]) -> list[Names]:
    found = []
    for seed in range(200):
        disk = Disk(top, model)
        disk.replay(calls)
        disk.cut(random.Random(seed))
        disk.write(0, 10**18)
        tree = tree_of(top, ["d"])
        if tree not in found:
            found.append(tree)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_what_was_not_synced_may_be_empty_torn_or_missing(tmp_path: Path, model: str) -> None:
    found = outcomes(tmp_path, model, saved(tmp_path, sync=False))
    for expected in ({}, {"d/f": b""}, {"d/f": b"te"}, {"d/f.tmp": b"text"}, {"d/f": b"text"}):
        assert expected in found


def test_a_synced_name_is_certain_where_names_have_one_order(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "journal", saved(tmp_path, sync=True))
    assert found == [{"d/f": b"text"}]


def test_posix_promises_nothing_of_a_folder_whose_own_name_was_not_synced(tmp_path: Path) -> None:
    calls = saved(tmp_path, sync=True)
    assert {} in outcomes(tmp_path, "strict", calls)
    calls.append(call("fsync", str(tmp_path), 0))
    assert outcomes(tmp_path, "strict", calls) == [{"d/f": b"text"}]


def test_a_number_that_is_given_again_is_another_file(tmp_path: Path) -> None:
    """The file system numbers a new folder as the file that has just gone, whose name may stay."""
    old, new = f"{tmp_path}/d/old", f"{tmp_path}/d/new"
    calls = [call("mkdir", f"{tmp_path}/d", 1), call("fsync", str(tmp_path), 0)]
    calls += [call("open", old, 2), call("write", old, 2, b"text"), call("fsync", old, 2)]
    calls += [call("fsync", f"{tmp_path}/d", 1), call("unlink", old, 2), call("mkdir", new, 2)]
    found = outcomes(tmp_path, "strict", calls)
    assert sorted(found, key=sorted) == [{}, {"d/new": b""}, {"d/old": b"text"}]
