"""What a snapshot leaves out is what git leaves out, and git itself is asked."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dray.node.code.packs import entries
from dray.snapshot import Scanner
from dray.snapshot.globs import Malformed, Patterns, _pieces, translate
from dray.snapshot.ignore import as_rule

ALONE = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@b"),
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def git(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env=ALONE,
        capture_output=True,
        check=True,
    )
    return done.stdout


def by_git(folder: Path) -> set[bytes]:
    listed = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return {path for path in listed.split(b"\0") if path}


def by_git_everywhere(folder: Path) -> set[bytes]:
    """Git tells of a repository within another only that it is there; it is asked there, too."""
    found = set()
    for path in by_git(folder):
        nested = folder / os.fsdecode(path)
        if (nested / ".git").exists():
            top = path.rstrip(b"/") + b"/"
            found |= {top + below for below in by_git_everywhere(nested)}
        elif nested.is_file():
            found.add(path)
    return found


def by_dray(folder: Path, *outputs: str) -> set[bytes]:
    cache = Path(tempfile.gettempdir()) / "never-written"
    snapshot = Scanner(folder, outputs, cache, 1 << 40).take(remember=False)
    return {entry.path for entry in entries(snapshot.manifest) if entry.kind != "d"}


def fill(folder: Path, tree: dict[str, str]) -> Path:
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def repository(folder: Path, tree: dict[str, str]) -> Path:
    fill(folder, tree)
    (folder / ".git" / "objects").mkdir(parents=True)
    (folder / ".git" / "refs").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return folder


PLACES = [
    "a",
    "b.py",
    "c.pyc",
    "d e",
    "x/a",
    "x/b.py",
    "x/y/a",
    "x/y/c.pyc",
    "x/y/z/a",
    "ab",
    "a*b",
]
PLACES += ["build/a", "build/keep/a", "x/build/b.py", "[a]", "é", "#a", "!a", "\\a", "-a", "ax/b/a"]


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "a",
        "/a",
        "x/a",
        "x/",
        "a/",
        "*.pyc",
        "*",
        "*\n!a",
        "*\n!*/\n!*.py",
        "*\n!x/",
        "/*\n!/x",
        "/*\n!/x\n/x/*\n!/x/y",
        "build/\n!build/keep",
        "build/*\n!build/keep",
        "build/**\n!build/keep/",
        "**/a",
        "x/**/a",
        "x/**",
        "**/y/**",
        "**",
        "***/a",
        "x/*",
        "x/*/a",
        "a**/a",
        "x**/a",
        "x/y**",
        "?",
        "??",
        "x?y",
        "[ab]*",
        "[!a]",
        "[^a]*",
        "[]a]",
        "[a",
        "[[]a]",
        "[[:alpha:]]",
        "[[:nonsense:]]",
        "[[:alpha:]",
        "[a-c]*",
        "[c-a]*",
        "[a\\-c]",
        "\\[a]",
        "a\\*b",
        "\\#a",
        "#a",
        "\\!a",
        "!a",
        "\\\\a",
        "a\\",
        "a ",
        "d e ",
        "d\\ e",
        "a\\ ",
        "a\t",
        "  a",
        "a\r\nx/\r",
        "\ufeffa",
        "a\x0bb.py",  # only a newline ends a line
        "a\x0cb.py",
        "a\u2028b.py",
        "é",
        "??\n!a?",
        "/",
        "!",
        "//a",
        "./a",
        "../a",
        "x//a",
        "-a",
        "X",
        "x/y\n!x/y/z",
        "*a\n!/x/**/a",
        "x/a/",
        "*/a",
        "*/*/a",
    ],
)
def test_a_file_of_rules_means_what_it_means_to_git(tmp_path: Path, rules: str) -> None:
    repository(tmp_path, dict.fromkeys(PLACES, ""))
    (tmp_path / ".gitignore").write_bytes(rules.encode())
    assert by_dray(tmp_path) == by_git(tmp_path)


PIECES = ["a", "b", "ab", "*", "**", "?", "/", "/**/", "[ab]", "[!a]", "\\", " ", "!", "\\*", "x"]
LINES = st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join)
RULES = st.lists(LINES | LINES.map("!{}".format), max_size=6).map("\n".join)
NAMES = st.sampled_from(["a", "b", "ab", "ba", "x", "a b", "*"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
QUICK = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@QUICK
@example(paths={"a/b/a"}, rules="a**/b", nested={}, added=set())
@given(
    paths=st.sets(PATHS, max_size=14),
    rules=RULES,
    nested=st.dictionaries(st.sampled_from(["a", "b", "x", "a/b", "x/a"]), RULES, max_size=2),
    added=st.sets(PATHS, max_size=3),
)
def test_any_tree_and_rules(
    paths: set[str], rules: str, nested: dict[str, str], added: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        repository(tree, {".gitignore": rules})
        for path in sorted(paths):
            try:
                fill(tree, {path: ""})
            except OSError:  # a name is a file already, or a folder
                continue
        for place, lines in nested.items():
            if (tree / place).is_dir():
                (tree / place / ".gitignore").write_text(lines)
        for path in sorted(added):
            if (tree / path).is_file():
                git(tree, "add", "--force", "--", path)
        assert by_dray(tree) == by_git(tree)


@QUICK
@given(
    st.binary(max_size=12), st.binary(min_size=1, max_size=4).filter(lambda one: b"/" not in one)
)
def test_no_rule_is_too_strange_to_read(rules: bytes, name: bytes) -> None:
    assert Patterns(rules).verdict(name, is_folder=False) in (True, False, None)


def test_deeper_rules_win_over_shallower_ones(tmp_path: Path) -> None:
    tree = {
        ".gitignore": "*.log\n",
        "x/.gitignore": "!keep.log\n/here\n",
        "x/keep.log": "",
        "x/other.log": "",
        "x/here": "",
        "x/y/here": "",
        "x/y/.gitignore": "keep.log\n",
        "x/y/keep.log": "",
    }
    repository(tmp_path, tree)
    found = by_dray(tmp_path)
    assert found == by_git(tmp_path)
    assert b"x/keep.log" in found
    assert b"x/y/keep.log" not in found


def test_a_project_below_the_repository(tmp_path: Path) -> None:
    tree = {
        ".gitignore": "*.log\n/project/secret\nproject/deep/*\n!project/deep/kept\n",
        "mid/.gitignore": "/project/a\n",
        "project/a": "",
        "project/secret": "",
        "project/x.log": "",
        "project/deep/kept": "",
        "project/deep/gone": "",
        "mid/project/a": "",
        "mid/project/b": "",
    }
    repository(tmp_path, tree)
    for project in (tmp_path / "project", tmp_path / "mid" / "project"):
        assert by_dray(project) == by_git(project)
    assert by_dray(tmp_path / "mid" / "project") == {b"b"}


def test_the_rules_of_one_clone(tmp_path: Path) -> None:
    tree = {".git/info/exclude": "*.tmp\n/p/b\n", "a.tmp": "", "p/b": "", "p/c": "", "p/d.tmp": ""}
    repository(tmp_path, tree)
    assert by_dray(tmp_path) == by_git(tmp_path) == {b"p/c"}
    assert by_dray(tmp_path / "p") == by_git(tmp_path / "p") == {b"c"}


def test_a_second_work_tree_and_its_common_rules(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "main")
    main = fill(tmp_path / "main", {"p/a": "", ".gitignore": "*.log\n"})
    git(main, "add", ".")
    git(main, "commit", "-qm", "one")
    git(main, "worktree", "add", "-q", "../second")
    fill(main, {".git/info/exclude": "*.tmp\n"})
    second = fill(tmp_path / "second", {"p/x.log": "", "p/x.tmp": "", "p/b": ""})
    assert (second / ".git").is_file()
    assert by_dray(second / "p") == by_git(second / "p") == {b"a", b"b"}
    assert by_dray(second) == by_git(second)


def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "library")
    library = fill(tmp_path / "library", {"settings.json": ""})
    git(library, "add", ".")
    git(library, "commit", "-qm", "one")
    git(tmp_path, "init", "-q", "main")
    main = fill(tmp_path / "main", {".gitignore": "*.json\n"})
    git(main, "submodule", "add", "-q", str(library), "library")
    inside = main / "library"
    assert by_dray(inside) == by_git(inside) == {b"settings.json"}


def committed(folder: Path, tree: dict[str, str]) -> Path:
    """A repository that tracks all of this, whatever its rules say."""
    fill(folder, tree)
    git(folder, "init", "-q")
    git(folder, "add", "--force", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def test_rules_end_where_a_submodule_begins(tmp_path: Path) -> None:
    inner = committed(tmp_path / "inner", {"lib/a": "", "build/b": "", ".gitignore": "build/\n"})
    forced = {"lib/mod.py": "", "lib2/forced.py": "", ".gitignore": "lib2/\n*.tmp\n"}
    library = committed(tmp_path / "library", forced)
    git(library, "submodule", "add", "-q", str(inner), "lib/inner")
    git(library, "commit", "-qm", "two")
    main = committed(tmp_path / "main", {".gitignore": "lib/\n*.log\n", "a": ""})
    for place in ("third/sub", "lib/sub"):
        git(main, "submodule", "add", "-q", "--force", str(library), place)
    git(main, "submodule", "update", "-q", "--init", "--recursive")
    fill(main, {".git/modules/third/sub/info/exclude": "*.own\n"})
    for place in ("", "third/sub/", "lib/sub/", "third/sub/lib/inner/build/"):
        fill(main, dict.fromkeys((f"{place}x.log", f"{place}x.tmp", f"{place}x.own"), ""))

    found = by_dray(main)
    assert found == by_git_everywhere(main)
    listed = git(main, "ls-files", "-z", "--cached", "--recurse-submodules").split(b"\0")
    assert found > set(listed[:-1])
    assert {b"third/sub/lib/mod.py", b"lib/sub/lib2/forced.py", b"third/sub/x.log"} < found
    assert {b"third/sub/lib/inner/build/b", b"lib/sub/x.own"} < found
    assert found.isdisjoint({b"x.log", b"third/sub/x.tmp", b"third/sub/x.own"})
    for place in ("third/sub", "third/sub/lib/inner", "third/sub/lib"):
        assert by_dray(main / place) == by_git_everywhere(main / place)


def test_rules_end_where_a_clone_begins(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "lib/\n/ignored/\n", "lib/b": "", "a": ""})
    tree = {"lib/mod.py": "", "forced": "", ".gitignore": "forced\n"}
    for place in ("clone", "ignored/clone"):
        committed(tmp_path / place, tree)
    of_clone = {b"clone/" + name.encode() for name in tree}
    assert by_dray(tmp_path) == {b".gitignore", b"a"} | of_clone  # the outer folder is not git's
    git(tmp_path, "init", "-q")
    assert by_dray(tmp_path) == by_git_everywhere(tmp_path) == {b".gitignore", b"a"} | of_clone
    fill(tmp_path, {".drayignore": "lib/\n/ignored/\n"})
    assert by_dray(tmp_path) == {b".drayignore", b".gitignore", b"a"} | of_clone - {
        b"clone/lib/mod.py"
    }


@QUICK
@given(
    paths=st.sets(PATHS, max_size=14),
    rules=RULES,
    inner=RULES,
    place=st.sampled_from(["a", "x", "x/a"]),
    added=st.sets(PATHS, max_size=3),
)
def test_any_repository_within_another(
    paths: set[str], rules: str, inner: str, place: str, added: set[str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree, nested = Path(folder), Path(folder) / place
        repository(tree, {".gitignore": rules})
        committed(nested, {".gitignore": inner, "a": ""})
        for path in sorted(paths):
            with contextlib.suppress(OSError):  # a name is a file already, or a folder
                fill(tree, {path: ""})
            with contextlib.suppress(OSError):
                fill(nested, {path: ""})
        for path in sorted(added):
            if (nested / path).is_file():
                git(nested, "add", "--force", "--", path)
        assert by_dray(tree) == by_git_everywhere(tree)


def test_a_project_that_git_ignores_altogether_is_taken_all_the_same(tmp_path: Path) -> None:
    tree = {
        ".gitignore": "scratch/\n*.log\n",
        "scratch/p/train.py": "",
        "scratch/p/.gitignore": "b\n",
    }
    repository(tmp_path, {**tree, "scratch/p/b": ""})
    assert by_git(tmp_path / "scratch" / "p") == set()
    assert by_dray(tmp_path / "scratch" / "p") == {b"train.py", b".gitignore"}
    assert by_dray(tmp_path / "scratch") == {b"p/train.py", b"p/.gitignore"}


def test_outside_of_a_repository_rules_above_do_not_count(tmp_path: Path) -> None:
    fill(tmp_path, {".gitignore": "*\n", "p/a": "", "p/b": "", "p/.gitignore": "b\n"})
    assert by_dray(tmp_path / "p") == {b"a", b".gitignore"}


def test_what_git_tracks_is_taken_although_it_is_ignored(tmp_path: Path) -> None:
    tree = {
        ".gitignore": "*.log\n/runs/\n!/runs/b\n/gone\n",
        "kept.log": "",
        "other.log": "",
        "runs/a": "",
        "runs/b": "",
        "runs/deep/er/c": "",
        "runs/deep/d": "",
        "runs/empty/e": "",
        "gone": "",
        "p/.gitignore": "x\n",
        "p/x": "",
        "p/ä\n": "",
    }
    repository(tmp_path, tree)
    git(tmp_path, "add", "-f", "kept.log", "runs/a", "runs/deep/er/c", "gone", "p/x")
    (tmp_path / "gone").unlink()
    expected = by_git(tmp_path) - {b"gone"}
    assert {b"kept.log", b"runs/a", b"runs/deep/er/c", b"p/x"} < expected
    assert by_dray(tmp_path) == expected
    for folder in ("runs", "runs/deep", "p"):
        assert by_dray(tmp_path / folder) >= by_git(tmp_path / folder)
    fill(tmp_path, {".drayignore": "*.log\n"})
    assert b"kept.log" not in by_dray(tmp_path)


def test_a_linked_gitignore_does_not_count(tmp_path: Path) -> None:
    repository(tmp_path, {"rules": "a\n", "a": ""})
    (tmp_path / ".gitignore").symlink_to("rules")
    assert by_dray(tmp_path) == by_git(tmp_path) == {b"rules", b"a", b".gitignore"}


def test_drayignore_takes_the_place_of_gitignore(tmp_path: Path) -> None:
    tree = {".gitignore": "a\n", ".drayignore": "b\n", "a": "", "b": "", "x/.gitignore": "a\n"}
    repository(tmp_path, {**tree, "x/a": "", "x/b": "", "x/.drayignore": "!b\n"})
    found = by_dray(tmp_path)
    assert found == {b".gitignore", b".drayignore", b"a"} | {
        b"x/" + name for name in (b".gitignore", b".drayignore", b"a", b"b")
    }


def test_rules_that_cannot_be_read_are_no_rules(tmp_path: Path) -> None:
    repository(tmp_path, {"a": "", ".gitignore/inside": ""})
    assert by_dray(tmp_path) == {b"a", b".gitignore/inside"}


def test_caches_environments_and_outputs_are_never_code(tmp_path: Path) -> None:
    out = [".git/HEAD", "__pycache__/a.pyc", "x/__pycache__/a.pyc", ".mypy_cache/a", "x/.tox/a"]
    out += ["env/pyvenv.cfg", "env/lib/a.py", "x/conda/conda-meta/a", "x/conda/a.py"]
    out += ["pulled/.dray-outputs", "pulled/model.pt", "runs/a", "x/result.pt", ".DS_Store"]
    kept = ["a", "x/runs/a", "result.pt", "runs2/a", "x/pyvenv.cfg.py"]
    fill(tmp_path, dict.fromkeys([*out, *kept], ""))
    (tmp_path / ".drayignore").write_text("!*\n!env/\n")  # no rule brings these back
    found = by_dray(tmp_path, "runs", "x/result.pt")
    assert found == {name.encode() for name in kept} | {b".drayignore"}


def test_a_project_that_is_itself_an_environment_is_still_the_project(tmp_path: Path) -> None:
    fill(tmp_path, {"pyvenv.cfg": "", "a.py": ""})
    assert by_dray(tmp_path) == {b"pyvenv.cfg", b"a.py"}


@QUICK
@example(path="a b ")
@example(path="a\nb")
@given(path=st.lists(st.text("ab*?[]\\ !#\n-", min_size=1, max_size=4), min_size=1).map("/".join))
def test_the_line_offered_for_a_path_leaves_it_out(path: str) -> None:
    line = as_rule(path)
    assert line.count("\n") == 0
    assert Patterns(line.encode()).verdict(path.encode(), is_folder=False) is True
    assert Patterns(line.encode()).verdict(b"other/" + path.encode(), is_folder=False) is None
    assert Patterns(as_rule(f"{path}/").encode()).verdict(path.encode(), is_folder=True) is True


GLOBS = st.lists(
    st.sampled_from(["a", "b", "?", "/", "*", "**", "/**/", "**\\/", "[ab]", "a*", "*/"]),
    min_size=1,
    max_size=8,
).map("".join)
PATHS = st.lists(st.text("ab", max_size=4), min_size=1, max_size=5).map("/".join)


@settings(max_examples=400)
@given(GLOBS, st.lists(PATHS, min_size=1, max_size=8), st.booleans())
@example("**/a/**/b", ["a/a/b", "x/a/b"], True)
@example("a**/b*a/**/*b", ["aba/bb", "aa/b/ba/ab"], True)
def test_looking_once_finds_what_looking_everywhere_finds(
    glob: str, paths: list[str], anchored: bool
) -> None:
    """A regular expression that goes back to every star says the same, and may take for ever."""
    try:
        plain = re.compile(b"".join(_pieces(glob.encode(), anchored)), re.S)
    except Malformed:
        return
    quick = re.compile(translate(glob.encode(), anchored), re.S)
    for path in paths:
        found = quick.fullmatch(path.encode())
        assert bool(found) == bool(plain.fullmatch(path.encode())), (glob, path)
