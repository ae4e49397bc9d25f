"""A table is added to a config file and nothing else in it changes."""

from __future__ import annotations

import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.config.editing import (
    add_cluster,
    appended,
    cluster_table,
    job_tables,
    remove_cluster,
    replaced,
    require_new,
    set_default,
    value,
    with_setting,
    without_table,
)
from dray.config.reading import read_file
from dray.config.toml_lines import statements
from dray.errors import ConfigError, UsageError

TABLE = '[clusters.x]\nkind = "local"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder/config.toml"


def write(path: Path, content: str | bytes) -> bytes:
    path.parent.mkdir(exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(data)
    return data


# -- writing TOML -------------------------------------------------------------------------------


@given(st.one_of(st.text(), st.integers(), st.lists(st.text())))
def test_values_come_back(one: object) -> None:
    assert tomllib.loads(f"a = {value(one)}") == {"a": one}
    assert value(one).isprintable()  # it is shown as well


@given(st.text())
def test_a_note_stays_a_comment(note: str) -> None:
    text = cluster_table("x", "slurm", {}, [note])
    assert tomllib.loads(text) == {"clusters": {"x": {"kind": "slurm"}}}


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8"):
        value("\udcff")


def test_job_tables() -> None:
    text = job_tables({"job.resources.gpus": 1, "job.outputs": ["logs"], "job.resources.cpus": 2})
    assert text == '[job]\noutputs = ["logs"]\n\n[job.resources]\ngpus = 1\ncpus = 2\n'


# -- adding -------------------------------------------------------------------------------------


def test_the_first_cluster_makes_the_file(path: Path) -> None:
    add_cluster(path, "x", TABLE)
    assert path.read_text() == TABLE
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert sorted(one.name for one in path.parent.iterdir()) == ["config.toml", "config.toml.lock"]


@pytest.mark.parametrize(
    "content",
    [
        "# mine\n\n[job]\nname = 'a'   # spaced\n",
        "[job]\nname = 'a'",
        "[job]\r\nname = 'a'\r\n",
        "\ufeff[job]\nname = 'a'\n",
        "clusters.y.kind = 'local'\n",
        "[clusters]\ny = { kind = 'local' }\n",
        "[job.env]\nA = '''\n[clusters.x]\nkind = 1\n'''\n",
        "# ünïcode\n\n\n",
        "\n",
    ],
)
def test_what_is_there_stays_byte_for_byte(path: Path, content: str) -> None:
    before = write(path, content)
    path.chmod(0o644)
    known = read_file(path)
    add_cluster(path, "x", TABLE)
    after = path.read_bytes()
    assert after.startswith(before)
    assert after.count(b"\r\n") in (0, after.count(b"\n"))
    assert path.stat().st_mode & 0o777 == 0o600
    now = read_file(path)
    assert now.settings == known.settings
    assert set(now.clusters) == {*known.clusters, "x"}


def test_a_name_that_is_taken_is_told_with_its_line(path: Path) -> None:
    before = write(path, "\ufeff# one\r\n\r\n[clusters.x]\r\nkind = 'local'\r\n")
    for act in (lambda: require_new(path, "x"), lambda: add_cluster(path, "x", TABLE)):
        with pytest.raises(ConfigError, match=r"config\.toml:3: there is a cluster 'x' already"):
            act()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "after"),
    [
        ("[clusters.x]\nkind = 'slurm'\n", TABLE),
        ("[clusters.x]\nkind = 'slurm'", TABLE),
        ("# a\n[clusters.x] # b\nkind = 'slurm'\n# c\nqos = 'd'\n\n# e\n[job]\n",
         f"# a\n{TABLE}\n# e\n[job]\n"),
        ("[ clusters . 'x' ]\nkind='slurm'\nsetup = [\n'''\n[job]\n''',\n]\n[job]\n",
         f"{TABLE}[job]\n"),
        ("[clusters.x]\r\nkind = 'slurm'\r\n\r\n[job]\r\n",
         '[clusters.x]\r\nkind = "local"\r\n\r\n[job]\r\n'),
        ("\ufeff[clusters.x]\nkind = 'slurm'\n# end", f"\ufeff{TABLE}# end"),
        ("[job.env]\nA = '''\n[clusters.x]\n'''\n[clusters.x]\nkind='slurm'\n",
         f"[job.env]\nA = '''\n[clusters.x]\n'''\n{TABLE}"),
    ],
)  # fmt: skip
def test_only_that_table_is_replaced(path: Path, content: str, after: str) -> None:
    write(path, content)
    add_cluster(path, "x", TABLE, replace=True)
    assert path.read_bytes() == after.encode()


@pytest.mark.parametrize(
    "content",
    ["clusters.x.kind = 'slurm'\n", "[clusters]\nx = { kind = 'slurm' }\n",
     "clusters = { x = { kind = 'slurm' } }\n"],
)  # fmt: skip
def test_what_is_no_table_of_its_own_is_not_replaced(path: Path, content: str) -> None:
    before = write(path, content)
    with pytest.raises(ConfigError, match=r"config\.toml:\d: 'x' is not in a table of its own"):
        add_cluster(path, "x", TABLE, replace=True)
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_added_to_is_left_alone(path: Path) -> None:
    before = write(path, "clusters = { y = { kind = 'local' } }\n")
    with pytest.raises(ConfigError, match=r"cannot be added.*config\.toml:3") as told:
        add_cluster(path, "x", TABLE)
    assert TABLE in told.value.hint
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*"))


def test_a_table_that_dray_cannot_read_is_never_put_in_place(path: Path) -> None:
    before = write(path, "[job]\n")
    with pytest.raises(ConfigError, match="unknown kind"):
        add_cluster(path, "x", '[clusters.x]\nkind = "nosuch"\n')
    assert path.read_bytes() == before


def test_a_link_to_the_file_stays_one(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    (tmp_path / "dotfiles").mkdir()
    target = tmp_path / "dotfiles/dray.toml"
    target.write_text("[job]\n")
    path.symlink_to(target)
    add_cluster(path, "x", TABLE)
    assert path.is_symlink()
    assert target.read_text() == f"[job]\n\n{TABLE}"


def test_several_at_once_all_arrive(path: Path) -> None:
    names = [f"c{number}" for number in range(8)]
    threads = [
        threading.Thread(target=add_cluster, args=(path, name, cluster_table(name, "local", {})))
        for name in names
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_file(path).clusters) == set(names)


LINES = [
    "[a]",
    "[a.b]",
    "x = 1",
    "# c",
    "",
    "y = '''",
    "'''",
    "z = [",
    "]",
    "[[t]]",
    "[clusters.x]",
]


@given(st.lists(st.sampled_from(LINES), max_size=8))
def test_in_any_file_only_the_table_changes(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    parts = statements(text)
    assert [part for start, end in parts for part in range(start, end)] == list(
        range(len(text.split("\n")))
    )
    new = replaced(text, ("clusters", "x"), TABLE)
    if new is None:
        assert "clusters" not in before
        new = appended(text, TABLE)
    after = tomllib.loads(new)
    assert after.pop("clusters") == {"x": {"kind": "local"}}
    before.pop("clusters", None)
    assert after == before
    without = without_table(new, ("clusters", "x"))
    assert without is not None
    left = tomllib.loads(without)
    left.pop("clusters", None)
    assert left == before
    assert [line for line in text.split("\n") if line.startswith("#")] == [
        line for line in without.split("\n") if line.startswith("#")
    ] or "clusters.x" in text


# -- taking a cluster out -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["", "[job]\nretries = 1\n", "# mine\n\n[clusters.y] # keep\nkind = 'local'\n\n# end\n",
     "[job]\r\nretries = 1\r\n", "\ufeff# mine\n"],
)  # fmt: skip
def test_what_was_added_and_removed_leaves_the_file_as_it_was(path: Path, content: str) -> None:
    before = write(path, content)
    add_cluster(path, "x", cluster_table("x", "local", {"cpus": 2}, ["a note"]))
    remove_cluster(path, "x")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "after"),
    [
        ("# top\n[clusters.x]\n# inside\nkind = 'local'\n\n# of the job\n[job]\nretries = 1\n",
         "# top\n\n# of the job\n[job]\nretries = 1\n"),
        ("[clusters.x]\nkind = 'local'\n# of y\n[clusters.y]\nkind = 'local'\n",
         "# of y\n[clusters.y]\nkind = 'local'\n"),
        ("[clusters.y]\nkind = 'local'\n\n[clusters.x]\nkind = 'local'\n\n[job]\nretries = 1\n",
         "[clusters.y]\nkind = 'local'\n\n[job]\nretries = 1\n"),
        ("[job]\non = 'x'  # there\nretries = 1\n\n[clusters.x]\nkind = 'local'\n",
         "[job]\nretries = 1\n"),
        ("[job]\non = 'y'\n\n[clusters.x]\nkind = 'local'\n[clusters.y]\nkind = 'local'\n",
         "[job]\non = 'y'\n[clusters.y]\nkind = 'local'\n"),
    ],
)  # fmt: skip
def test_only_that_cluster_is_removed(path: Path, content: str, after: str) -> None:
    write(path, content)
    remove_cluster(path, "x")
    assert path.read_text() == after


def test_what_is_no_table_of_its_own_is_not_removed(path: Path) -> None:
    before = write(path, "clusters.x.kind = 'slurm'\n")
    with pytest.raises(ConfigError, match=r"config\.toml:1: 'x' is not in a table of its own"):
        remove_cluster(path, "x")
    assert path.read_bytes() == before


# -- the default cluster ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "after"),
    [
        ("", '[job]\non = "x"\n'),
        ("# mine\n[job]  # all\nretries = 1\n", '# mine\n[job]  # all\non = "x"\nretries = 1\n'),
        ("[job]\non='y'# there\nretries = 1\n", '[job]\non = "x"  # there\nretries = 1\n'),
        ("[job]\non = '''\ny'''\n", '[job]\non = "x"\n'),
        ("job.on = 'y'\n", 'job.on = "x"\n'),
        ("[job]\r\non = 'y'\r\nretries = 1\r\n", '[job]\r\non = "x"\r\nretries = 1\r\n'),
        ("[job.resources]\ngpus = 1", '[job.resources]\ngpus = 1\n\n[job]\non = "x"\n'),
        ("\ufeff[job]\n", '\ufeff[job]\non = "x"\n'),
    ],
)  # fmt: skip
def test_only_the_default_is_set(path: Path, content: str, after: str) -> None:
    write(path, content)
    set_default(path, "x")
    assert path.read_bytes().decode() == after
    set_default(path, "x")
    assert path.read_bytes().decode() == after


@pytest.mark.parametrize("content", ["job = { on = 'y', retries = 1 }\n", "job.retries = 1\n"])
def test_where_the_default_cannot_be_set_the_file_stays(path: Path, content: str) -> None:
    before = write(path, content)
    with pytest.raises(ConfigError, match="the default cluster cannot be set") as told:
        set_default(path, "x")
    assert 'on = "x"' in told.value.hint
    assert path.read_bytes() == before


@given(st.lists(st.sampled_from([*LINES, "[job]", "on = 'y'", "on = ["]), max_size=8))
def test_in_any_file_only_the_setting_changes(lines: list[str]) -> None:
    text = "\n".join(lines)
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    new = with_setting(text, ("job", "on"), "x")
    assert new is not None
    assert tomllib.loads(new) == {**before, "job": {**before.get("job", {}), "on": "x"}}
