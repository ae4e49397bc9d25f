"""Shows who is notified of jobs, and sends a test message."""

from __future__ import annotations

import click

from dray.cli.output import colored, launcher
from dray.cli.terminal import joined, say, tell
from dray.errors import UsageError


@click.command("notify")
@click.option(
    "--test", is_flag=True, help="Send a message by every channel, and report what happened."
)
def command(test: bool) -> int:
    """Show who is notified of jobs, as [notify] in your config.toml says; with --test, try it.

    The test is sent from this machine. What a cluster's nodes cannot send is sent from its login
    node, or from here the next time you look.
    """
    from dray.launcher import notifying

    config = launcher().config
    named = {name: config.notify[name] for name in notifying.channels(config.notify)}
    if config.notify.get("desktop"):
        named["desktop"] = "this machine's"
    if not named:
        raise UsageError(
            "nobody is notified: there is no [notify] in your config.toml",
            hint=f"Add one to {config.home.config_file}: see docs/how-to/get-notified.md.",
        )
    if not test:
        for name, value in named.items():
            tell(f"{name:<8} {value}")
        say(f"told: {', '.join(config.notify.get('on', notifying.ON))}")
        return 0
    told = notifying.test(config)
    for name, problem in told.items():
        sign = colored("BAD", "failed") if problem else colored("ok ", "done")
        tell(joined(sign, f"  {name:<8} ", problem or "sent"))
    return 1 if any(told.values()) else 0
