"""How text is made fit for a terminal, and that there is no way around it."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dray
from dray.cli import output
from dray.cli.terminal import (
    indented,
    joined,
    lines,
    multiline,
    only_colors,
    styled,
    visible,
)

SOURCES = Path(dray.__file__).parent
ELSEWHERE = ("node", "startup", "training", "demo")  # not run in the user's own process
ACTING = ("Cc", "Cf", "Zl", "Zp")


def acting(text: str) -> set[str]:
    return {one for one in text if unicodedata.category(one) in ACTING}


# -- text ---------------------------------------------------------------------------------------


@given(st.text())
def test_a_field_is_one_line_in_which_nothing_acts(text: str) -> None:
    shown = visible(text)
    assert not acting(shown)
    assert visible(shown) is shown


@given(st.text())
def test_lines_are_kept_only_where_that_is_asked_for(text: str) -> None:
    assert acting(multiline(text)) <= {"\n", "\t"}
    assert multiline(text).count("\n") == text.count("\n")
    others = indented(text).split("\n")[1:]
    assert all(not line or line.startswith("      ") for line in others)


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Zl", "Zp", "Cs"])))
def test_text_is_unchanged(text: str) -> None:
    assert visible(text) == multiline(text) == text


def test_how_it_is_spelled() -> None:
    assert visible("\x1b]0;x\x07\n\t\x7f\x9b\u202e\u200b\ud800") == (
        r"\x1b]0;x\x07\n\t\x7f\x9b\u202e\u200b\ud800"
    )
    assert visible("caf\udce9") == "caf\udce9"  # no terminal here: whoever reads it needs it


def test_only_colours_of_dray_s_own_pass() -> None:
    red = styled("a\x1b[2Jb", "31")
    assert red == "\x1b[31ma\\x1b[2Jb\x1b[0m"
    assert joined(red, "\x1b[32m") == red + r"\x1b[32m"
    assert lines([red, "b\nc  "]) == f"{red}\nb\\nc"
    assert visible(f"{red}") == r"\x1b[31ma\x1b[2Jb\x1b[0m"  # put together elsewhere
    assert only_colors("\x1b[31m|\x1b[0m\n\x1b]0;x\x07") == "\x1b[31m|\x1b[0m\n\\x1b]0;x\\x07"


def test_columns_are_those_of_the_terminal() -> None:
    assert output.columns("日本") == 4
    assert output.columns("é") == 1
    assert output.cut("日本語日本語", 6) == "日本…"
    assert output.cut("日本語", 6) == "日本語"
    for width in range(1, 20):
        assert output.columns(output.cut("a日本語 text that is long", width)) <= width


def test_a_table_counts_what_it_shows() -> None:
    told = output.table(("A", "B"), [("x\x1b\n", "one"), ("y", "two\n"), ("日", "")]).split("\n")
    assert told == ["A        B", r"x\x1b\n  one", r"y        two\n", "日"]


# -- the net ------------------------------------------------------------------------------------


def said(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", f"from dray.cli.terminal import *\nguard()\n{code}"]
    env = {"LANG": "C.UTF-8", "PATH": os.defpath, **env}
    return subprocess.run(words, env=env, capture_output=True, encoding="utf-8", check=False)


@pytest.mark.parametrize(
    "code",
    [
        "raise ValueError(EVIL)",
        "import warnings; warnings.warn(EVIL)",
        "import threading; threading.Thread(target=lambda: open(EVIL, 'rb')).start()",
        "print(EVIL, file=sys.stderr)",
        "print(EVIL)",
        "import click; click.echo(EVIL, color=True)",
        "sys.stdout.writelines([EVIL])",
    ],
)
def test_what_others_write_is_spelled_too(code: str) -> None:
    ended = said(f"EVIL = 'x\\x1b]0;title\\x07\\x9b2J'\n{code}")
    told = ended.stdout + ended.stderr
    assert r"x\x1b]0;title\x07\x9b2J" in told
    assert acting(told) <= {"\n"}


def test_a_language_that_is_not_utf_8() -> None:
    told = said("tell('caf\\udce9 ü')\nsay('ü')", PYTHONIOENCODING="ascii:strict")
    assert (told.stdout, told.stderr) == ("caf\\udce9 \\xfc\n", "\\xfc\n")


def test_a_stream_that_is_closed() -> None:
    code = "from dray.cli.terminal import *\nguard()\ntell('x')\nsay('x')\nprint('x')"
    assert closed(code) == 0


@pytest.mark.parametrize("to_stderr", [False, True])
def test_a_jobs_output_to_a_stream_that_is_closed(to_stderr: bool) -> None:
    code = "from dray.cli.log_filter import LogPrinter\n"
    code += f"with LogPrinter(to_stderr={to_stderr}) as printer: printer.write(b'x')"
    assert closed(code) == 0


def closed(code: str) -> int:
    """The exit code of this program without stdout and stderr."""
    words = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", sys.executable, "-c", code]
    return subprocess.run(words, check=False).returncode


# -- no way around ------------------------------------------------------------------------------

STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
WRITERS = {
    "print", "Shown", "terminal.Shown", "os.write",
    "traceback.print_exc", "traceback.print_exception",
    "click.echo", "click.secho", "click.echo_via_pager", "click.style",
    *(f"{stream}.{name}" for stream in STREAMS for name in ("write", "writelines", "buffer")),
}  # fmt: skip
ALLOWED = {
    ("cli/group.py", "os.write"),  # to the file that DRAY_LOG names
    ("cli/warm_server.py", "os.write"),  # to a pipe of its own
    ("snapshot/watching.py", "os.write"),  # to a pipe of its own
    ("transport/ray_pipe.py", "os.write"),  # a program of its own, in place of ssh: to dray
    ("transport/ray_pipe.py", "sys.stderr.write"),  # the same
    ("transport/relay.py", "os.write"),  # to an agent
}


def writers(code: str) -> Iterator[str]:
    """What in it could write to a terminal, by its name; also under another name, by its import."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id
        elif isinstance(node, ast.ImportFrom) and node.module != "dray.cli.terminal":
            yield from (f"{node.module}.{one.name}" for one in node.names)


@pytest.mark.parametrize(
    "code",
    [
        "print(1)",
        "import click\nclick.echo('x')",
        "from click import secho",
        "import sys\nsys.stdout.write('x')",
        "import sys\nstream = sys.stderr.buffer",
        "from dray.cli.terminal import Shown\nShown('x')",
        "from dray.cli import terminal\nterminal.Shown('x')",
        "import traceback\ntraceback.print_exc()",
    ],
)
def test_a_way_around_is_noticed(code: str) -> None:
    assert WRITERS & {*writers(code)}


def test_nothing_is_written_but_through_the_terminal_module() -> None:
    found = {
        (name, one)
        for path in SOURCES.rglob("*.py")
        if (name := str(path.relative_to(SOURCES))).split("/")[0] not in ELSEWHERE
        and name != "cli/terminal.py"
        for one in WRITERS & {*writers(path.read_text())}
    }
    assert found == ALLOWED
