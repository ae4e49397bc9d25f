"""Lightning: ``Trainer(…, callbacks=[dray.training.lightning.Callback("val_loss")])``."""

import os

try:
    import lightning.pytorch as lightning
except ImportError:
    import pytorch_lightning as lightning

import dray.training as t

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional


class Callback(lightning.Callback):
    """Saves when dray asks for it, on all ranks at the same step, and reports what was logged:
    the value called ``main`` first.

    ``folder`` is below the outputs: ``checkpoint = "checkpoints/*.ckpt"`` finds what it saves, and
    ``trainer.fit(model, ckpt_path=t.resume_path())`` goes on from it.
    """

    def __init__(
        self, main: str = "", folder: str = "checkpoints", every: "Optional[float]" = None
    ) -> None:
        self.main = main
        self.folder = folder
        self.every = every  # seconds

    def setup(self, *_: "Any", **__: "Any") -> None:
        """Install the signal handler before Lightning does: on Slurm it takes SIGUSR1, if it is
        free, for requeueing."""
        t._asking.prepare()

    def on_train_batch_end(self, trainer: "Any", *_: "Any") -> None:
        due = t.should_checkpoint(self.every)
        if trainer.world_size > 1:  # saving is done together
            due = trainer.strategy.reduce_boolean_decision(due, all=False)
        if due:
            name = "step={}.ckpt".format(trainer.global_step)
            trainer.save_checkpoint(os.path.join(t.outputs(), self.folder, name))
        if trainer.global_step % trainer.log_every_n_steps == 0:
            self._report(trainer)

    def on_validation_end(self, trainer: "Any", *_: "Any") -> None:
        if not trainer.sanity_checking:
            self._report(trainer)

    def _report(self, trainer: "Any") -> None:
        found = trainer.callback_metrics
        names = sorted(found, key=lambda name: name != self.main)
        if names:
            t.report(trainer.global_step, **{name: found[name] for name in names})
