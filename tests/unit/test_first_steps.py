"""What is written and suggested for somebody who begins: completion scripts, a first command."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.cli.completion import END, MARK, Place, place_for, shell_of, with_block
from dray.errors import UsageError
from dray.recipes.first import first_command, tasks_in

HOME = Path("/home/me")


# -- completion ---------------------------------------------------------------------------------


def test_each_shell_has_its_place() -> None:
    assert place_for("bash", {}, HOME) == Place(
        HOME / ".local/share/bash-completion/completions/dray"
    )
    assert place_for("fish", {}, HOME) == Place(HOME / ".config/fish/completions/dray.fish")
    zsh = place_for("zsh", {"ZDOTDIR": "/z", "XDG_DATA_HOME": "relative"}, HOME)
    assert zsh.script == HOME / ".local/share/dray/completion.zsh"
    assert zsh.startup == Path("/z/.zshrc")
    assert str(zsh.script) in zsh.lines[-1]
    moved = {"XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c"}
    assert place_for("bash", moved, HOME).script == Path("/d/bash-completion/completions/dray")
    assert place_for("fish", moved, HOME).script == Path("/c/fish/completions/dray.fish")


@pytest.mark.parametrize("text", ["", "setopt x\n", "setopt x"])
def test_a_block_is_added_once_and_brought_up_to_date(text: str) -> None:
    once = with_block(text, ("old",))
    assert once.startswith(text)
    assert once.endswith(f"{MARK}\nold\n{END}\n")
    later = with_block(f"{once}mine\n", ("new",))
    assert later == once.replace("old", "new") + "mine\n"


def test_the_shell_of_the_user() -> None:
    assert shell_of({"SHELL": "/usr/bin/zsh"}) == "zsh"
    for variables in ({}, {"SHELL": "/bin/tcsh"}):
        with pytest.raises(UsageError, match="none of bash, zsh, fish"):
            shell_of(variables)


# -- a first command ----------------------------------------------------------------------------


def test_a_script_of_ones_own(tmp_path: Path) -> None:
    assert first_command("generic", tmp_path, "python3")[:2] == ("python3", "-c")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/train.py").touch()
    assert first_command("generic", tmp_path, "python3") == ("python3", "scripts/train.py")
    (tmp_path / "main.py").touch()
    assert first_command("lightning", tmp_path, "python") == ("python", "main.py")


def test_a_task_that_the_checkout_has(tmp_path: Path) -> None:
    assert first_command("isaaclab/rsl_rl", tmp_path, "python") == ("--help",)
    assert first_command("protomotions", tmp_path, "python") == ("--help",)
    folder = tmp_path / "source/tasks/lift"
    folder.mkdir(parents=True)
    registered = ["Template-Lift-Play-v0", "Template-Lift-v0"]
    (folder / "__init__.py").write_text(
        "".join(f'gym.register(\n    id="{one}",\n)\n' for one in registered)
    )
    assert tasks_in(tmp_path) == registered
    assert first_command("isaaclab/skrl", tmp_path, "python")[:2] == ("--task", "Template-Lift-v0")
    (folder / "__init__.py").write_text("gym.register(id='Isaac-Lift-v0')\n"
                                        "gym.register(id='Isaac-Ant-v0')\n")  # fmt: skip
    assert "Isaac-Ant-v0" in first_command("isaaclab/skrl", tmp_path, "python")
