"""The docs say what the program does: commands exist, settings are read, the tutorial runs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from dray.cli.group import cli
from dray.cli.verbs import SUMMARIES
from dray.config import batch_file
from dray.config.reading import read_file
from dray.job.model import JobState
from dray.job.options import CLUSTERS, JOB
from dray.launcher.batches.grouping import groups_of
from dray.recipes import Recipe, Request
from dray.sweep import file as sweep_file
from tests.conftest import Dray, Hpc

TOP = Path(__file__).parent.parent.parent
PAGES = [
    *(TOP / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((TOP / "docs").rglob("*.md")),
]
WRITTEN_BY_HAND = [page for page in PAGES if page.parent.name != "reference"]


def blocks(page: Path, language: str) -> list[str]:
    """Each one whole, of any language, so that the end of one is not the beginning of the next."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [content for of, content in found if re.fullmatch(language, of)]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", prose, re.M)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_signatures_of_the_api_can_be_read() -> None:
    page = TOP / "docs/reference/api.md"
    _, *signatures = blocks(page, "python")
    for written in signatures:
        ast.parse(f"def {written.removeprefix('dray.').strip()}: ...")
    assert any('start_from: str = ""' in written for written in signatures)


def test_the_recipe_of_another_package_can_be_used() -> None:
    (written,) = blocks(TOP / "docs/how-to/use-a-recipe.md", "python")
    made: dict[str, Any] = {}
    exec(written, made)
    recipe: Recipe = made["WALKER"]
    assert recipe.fill(Request(("--speed", "3"), TOP)).command[-2:] == ("--speed", "3")
    assert recipe.detect(TOP) == ""
    assert recipe.summary
    assert recipe.metrics["tensorboard"]
    assert set(recipe.settings) <= {option.key for option in JOB}


def test_the_map_of_the_code_is_complete() -> None:
    """CONTRIBUTING says where things are: every module and package, and none that has gone."""
    text = (TOP / "CONTRIBUTING.md").read_text()
    (tree,) = re.findall(r"^```\nsrc/dray/\n(.*?)^```", text, re.M | re.S)
    rooms, inside = ([line.split()[0] for line in tree.splitlines() if depth(line) == level]
                     for level in (2, 4))  # fmt: skip
    package = TOP / "src/dray"
    there = {one.name for one in package.glob("*.py") if not one.name.startswith("__")}
    assert set(rooms) == there | packages_in(package)
    assert set(inside) == packages_in(package / "node")


def depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def packages_in(folder: Path) -> set[str]:
    return {f"{one.parent.name}/" for one in folder.glob("*/__init__.py")}


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=lambda page: page.name)
def test_toml_examples_are_valid_settings(page: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(page, "toml")):
        path = tmp_path / f"{number}.toml"
        path.write_text(block)
        if "[[jobs]]" in block:
            groups_of(batch_file.read(path))
        elif "[sweep]" in block:
            assert sweep_file.read(path).parameters
        else:
            read_file(path)


def both(parameter: click.Parameter) -> list[str]:
    """A flag, and the one that says the opposite."""
    return [*parameter.opts, *parameter.secondary_opts]


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=lambda page: page.name)
def test_commands_in_the_docs_exist(page: Path) -> None:
    text = page.read_text()
    code = re.findall(r"`(dray [^`\n]+)`", text)
    code += re.findall(r"(?:^|\$\(|\$ )(dray [^\n)]+)", "".join(blocks(page, "(?:sh)?")), re.M)
    with click.Context(cli) as context:
        for line in code:
            _, verb, *rest = line.split("#")[0].split()
            if verb in ("VERB", "--help", "--version", "--debug", "--verbose"):
                continue
            assert verb in SUMMARIES, line
            command = cli.get_command(context, verb)
            assert command is not None
            if isinstance(command, click.Group) and rest:
                command = command.commands[rest[0]]
            known = {option for one in command.params for option in both(one)}
            before_command = rest[: rest.index("--")] if "--" in rest else rest
            for word in before_command:
                if re.match(r"--?[a-z]", word):
                    assert word in {*known, "--help"}, line


def test_the_readme_names_real_targets() -> None:
    makefile = (TOP / "Makefile").read_text()
    text = (TOP / "README.md").read_text() + (TOP / "CONTRIBUTING.md").read_text()
    targets = set(re.findall(r"\bmake (\w+)", text)) - {"it"}
    assert {"demo", "test", "check", "bench"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target


def follow(user: Dray, steps: Sequence[str], **programs: str) -> subprocess.CompletedProcess[str]:
    """Type the steps into a shell that finds these programs, until one fails."""
    shims = user.home / "bin"
    shims.mkdir()
    for name, words in programs.items():
        (shims / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (shims / name).chmod(0o755)
    user.use(shims)
    return subprocess.run(
        ["bash", "-c", "\n".join(["set -e", *steps])],
        cwd=user.project,
        env=user.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_tutorial_runs_as_written(dray: Dray) -> None:
    page = TOP / "docs/tutorial/first-job.md"
    (script,) = blocks(page, "python")
    first, *rest = blocks(page, "sh")
    steps = [first, f"cat > count.py <<'PY'\n{script}PY", *rest, "dray show --json $id"]
    ended = follow(dray, steps, dray=f"{sys.executable} -m dray", python3=sys.executable)
    assert ended.returncode == 0, ended.stderr
    assert "step 10" in ended.stderr
    pulled = list((dray.project / "counting").glob("count-*/logs/step_010.json"))
    assert len(pulled) == 1
    assert ended.stdout.count('"outcome": "interrupted"') >= 1
    assert '"state": "done"' in ended.stdout


def test_the_tutorial_of_a_cluster_runs_as_written_on_slurm(dray: Dray, hpc: Hpc) -> None:
    """Only the ssh config is ours: in it, mycluster is the rig's login node."""
    hpc.offer(dray)
    (dray.home / "dray/config.toml").unlink()
    known = (hpc.sshd.folder / "ssh_config").read_text()
    config = dray.home / "ssh_config"
    config.write_text(known.replace("Host hpc", "Host mycluster"))
    ended = follow(
        dray,
        [*blocks(TOP / "docs/tutorial/on-a-cluster.md", "sh"), "dray ps --all --json"],
        dray=f"{sys.executable} -m dray",
        ssh=f"/usr/bin/ssh -F {config}",
    )
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    said = ended.stderr
    assert re.search(r"it queued \w+ and ran \w+ on \S+", said)
    assert "hello from" in said
    assert f"python of {hpc.home}/envs/walk" in said
    begins = [int(step) for step in re.findall(r"beginning at step (\d+)", said)]
    assert begins[0] == 0, begins
    assert begins[-1] > 0, begins
    assert begins == sorted(begins)
    assert "trained\n" in ended.stdout
    assert "step_012.json" in ended.stdout
    left = [one["command"] for one in json.loads(ended.stdout[ended.stdout.rindex("\n[") :])]
    assert len(left) == 2, "the test job and the trainer are removed"
    assert not any("train.py" in command for command in left)


def test_the_glossary_is_in_order_and_names_every_kind() -> None:
    text = (TOP / "docs/reference/glossary.md").read_text()
    words = re.findall(r"^\| \*\*(.+?)\*\* \|", text, re.M)
    assert words == sorted(set(words), key=str.lower)
    for kind in CLUSTERS:
        assert f"`{kind}`" in text, kind
    for state in JobState:
        assert f"`{state}`" in text, state
