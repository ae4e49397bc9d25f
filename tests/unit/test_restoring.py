"""A checkpoint that its trainer overwrites in place is never lost to a kill."""

from __future__ import annotations

from pathlib import Path

from dray.node.checkpoints import newest, restoring
from tests.unit.test_checkpoints import save

PATTERN, NAME = "**/last*.pt", "last.pt"
RULES = {"checkpoint": "**/last.pt", "looks_for": NAME}


def keep(folder: Path) -> None:
    found = newest.newest(str(folder), {"checkpoint": PATTERN})
    assert found is not None
    restoring.keep(found, RULES)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def test_half_of_one_is_replaced_by_the_copy_of_the_whole(tmp_path: Path) -> None:
    last = save(tmp_path / "walk/last.pt", 100)
    content = last.read_bytes()
    keep(tmp_path)
    cut(last)
    restoring.put_back(str(tmp_path), RULES)
    assert last.read_bytes() == content
    found = newest.newest(str(tmp_path), {"checkpoint": PATTERN})
    assert found is not None
    assert found.mtime == 100


def test_what_is_overwritten_with_it_is_kept_with_it(tmp_path: Path) -> None:
    """ProtoMotions loads env_0.ckpt where there is one, and fails on half of it."""
    rules = {**RULES, "beside": "env_*.pt"}
    last = save(tmp_path / "walk/last.pt", 100)
    env = save(tmp_path / "walk/env_0.pt", 90)
    content = env.read_bytes()
    restoring.keep(newest.look_at(str(last)), rules)
    other = save(tmp_path / "walk/env_1.pt", 110)
    for half in (env, other):
        cut(half)
    told = restoring.put_back(str(tmp_path), rules)
    assert env.read_bytes() == content
    assert not other.exists()  # there was no whole one: it does without
    assert [one.split()[0] for one in sorted(told)] == ["walk/env_0.pt", "walk/env_1.pt"]
    names = ["env_0.kept.pt", "env_0.pt", "env_1.pt.partial", "last.kept.pt", "last.pt"]
    assert sorted(path.name for path in last.parent.iterdir()) == names


def test_a_whole_one_stays(tmp_path: Path) -> None:
    last = save(tmp_path / "last.pt", 100)
    keep(tmp_path)
    save(last, 200)
    content = last.read_bytes()
    restoring.put_back(str(tmp_path), RULES)
    assert last.read_bytes() == content


def test_half_of_the_very_first_is_out_of_the_way(tmp_path: Path) -> None:
    cut(save(tmp_path / "last.pt", 100))
    restoring.put_back(str(tmp_path), RULES)
    assert not (tmp_path / "last.pt").exists()
    assert newest.newest(str(tmp_path), {"checkpoint": PATTERN}) is None


def test_one_that_changed_meanwhile_is_not_kept(tmp_path: Path) -> None:
    last = save(tmp_path / "last.pt", 100)
    keep(tmp_path)
    before = (tmp_path / "last.kept.pt").read_bytes()
    found = newest.look_at(str(last))
    save(last, 300)
    restoring.keep(found, RULES)
    assert (tmp_path / "last.kept.pt").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.kept.pt", "last.pt"]


def test_others_are_left_alone(tmp_path: Path) -> None:
    save(tmp_path / "last_of_all.pt", 100)
    keep(tmp_path)
    restoring.put_back(str(tmp_path), {"checkpoint": PATTERN})
    assert [path.name for path in tmp_path.iterdir()] == ["last_of_all.pt"]
