from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from dray.cli.terminal import multiline, tell


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes verbs, options, job ids and cluster names.

    \b
    bash, in ~/.bashrc:  eval "$(dray completion bash)"
    zsh, in ~/.zshrc:    eval "$(dray completion zsh)"
    fish, once:          dray completion fish > ~/.config/fish/completions/dray.fish
    """
    from dray.cli.group import cli

    kind = get_completion_class(shell)
    assert kind is not None
    tell(multiline(kind(cli, {}, "dray", "_DRAY_COMPLETE").source()))
