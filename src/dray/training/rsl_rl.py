"""rsl_rl, which has no callbacks: ``dray.training.rsl_rl.watch(runner)`` before ``learn``."""

import functools
import os

import dray.training as t

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional


def watch(runner: "Any", every: "Optional[float]" = None) -> None:
    """Report the mean reward after each iteration, and save when dray asks for it.

    It hooks into the runner's logging, which is on the runner itself before rsl-rl-lib 4.
    """
    owner = runner.logger if hasattr(runner, "logger") else runner  # type: Any
    log = owner.log

    @functools.wraps(log)
    def log_and_look(*args: "Any", **more: "Any") -> None:
        log(*args, **more)
        seen = args[0] if args and isinstance(args[0], dict) else more
        rewards = getattr(owner, "rewbuffer", None) or seen.get("rewbuffer")
        if rewards:
            t.report(seen["it"], reward=sum(rewards) / len(rewards))
        if t.should_checkpoint(every) and t.rank() == 0:
            # Under its own name, as rsl_rl does: it may upload the file as well.
            runner.save(os.path.join(owner.log_dir, "model_{}.pt".format(seen["it"])))

    owner.log = log_and_look
