"""Prints or installs the completion script of a shell."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import get_completion_class

from dray.cli.terminal import multiline, say, tell
from dray.config.loading import environment
from dray.errors import UsageError
from dray.node.formats import files

SHELLS = ("bash", "zsh", "fish")
MARK = "# dray's completion"  # what is between the two is ours, and replaced by the next --install
END = "# end of dray's completion"
# Where the package bash-completion lies, on Linux and with Homebrew.
BASH_COMPLETION = (
    "/usr/share/bash-completion/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/share/bash-completion/bash_completion",
)


class Place(NamedTuple):
    """Where a shell's script is installed, and which lines of the shell's startup file load it."""

    script: Path
    startup: Path | None = None
    lines: tuple[str, ...] = ()


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write it where the shell finds it by itself.")
def command(shell: str | None, install: bool) -> None:
    """Print the script that completes verbs, options, jobs, clusters, recipes and images.

    SHELL is yours ($SHELL) unless you name it. Nothing that completes asks a cluster.

    \b
    --install writes, and says what it has written:
      bash  ~/.local/share/bash-completion/completions/dray, which bash-completion reads
      zsh   ~/.local/share/dray/completion.zsh, and a few lines at the end of ~/.zshrc
      fish  ~/.config/fish/completions/dray.fish
    Without it, in ~/.bashrc or ~/.zshrc:  eval "$(dray completion bash)"
    """
    chosen = shell or shell_of(environment())
    script = source(chosen)
    if not install:
        tell(multiline(script))
        return
    place = place_for(chosen, environment(), Path.home())
    put(place.script, script)
    if place.startup:
        before = read(place.startup)
        put(place.startup, with_block(before, place.lines))
    if chosen == "bash" and not any(Path(one).exists() for one in BASH_COMPLETION):
        say("bash reads it only with the package bash-completion, which is not found here. Install")
        say('it, or add this line to ~/.bashrc:  eval "$(dray completion bash)"')
    say("It works in the next shell that you start.")


def source(shell: str) -> str:
    from dray.cli.group import cli

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, "dray", "_DRAY_COMPLETE").source()


# -- pure ---------------------------------------------------------------------------------------


def shell_of(variables: dict[str, str]) -> str:
    name = variables.get("SHELL", "").rpartition("/")[2]
    if name not in SHELLS:
        known = ", ".join(SHELLS)
        raise UsageError(f"the shell '{name}' is none of {known}", hint="Name one of them.")
    return name


def place_for(shell: str, variables: dict[str, str], home: Path) -> Place:
    """Return where each shell's documentation says that one user's scripts belong."""
    data = folder(variables, "XDG_DATA_HOME", home / ".local/share")
    if shell == "bash":
        own = folder(variables, "BASH_COMPLETION_USER_DIR", data / "bash-completion")
        return Place(own / "completions/dray")
    if shell == "fish":
        return Place(
            folder(variables, "XDG_CONFIG_HOME", home / ".config") / "fish/completions/dray.fish"
        )
    # zsh reads no folder of a user's by itself.
    script = data / "dray/completion.zsh"
    lines = (
        "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }",
        f"[[ -r {quoted(script)} ]] && source {quoted(script)}",
    )
    return Place(script, folder(variables, "ZDOTDIR", home) / ".zshrc", lines)


def folder(variables: dict[str, str], name: str, default: Path) -> Path:
    value = variables.get(name, "")
    return Path(value) if value.startswith("/") else default


def quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


def with_block(text: str, lines: tuple[str, ...]) -> str:
    """Put our lines at the end of the text, or in the place of those that are there."""
    block = "\n".join([MARK, *lines, END, ""])
    before, mark, rest = text.partition(f"{MARK}\n")
    if mark and f"{END}\n" in rest:
        return before + block + rest.partition(f"{END}\n")[2]
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + block


# -- acting -------------------------------------------------------------------------------------


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def put(path: Path, content: str) -> None:
    """Write the file, and say so; a file with this content is left alone."""
    path = path.resolve()  # a link to a file elsewhere stays one
    if path.exists() and read(path) == content:
        say(f"{path} is as it should be")
        return
    word = "changed" if path.exists() else "wrote"
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_bytes(str(path), content.encode("utf-8", "surrogateescape"))
    path.chmod(mode)
    say(f"{word} {path}")
