"""stable-baselines3: ``model.learn(…, callback=dray.training.sb3.Callback())``."""

import os

from stable_baselines3.common.callbacks import BaseCallback

import dray.training as t

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


class Callback(BaseCallback):
    """Saves when dray asks for it, and reports the mean reward after each rollout.

    ``folder`` is below the outputs: ``checkpoint = "checkpoints/*.zip"`` finds what it saves. The
    statistics of a VecNormalize are saved beside it, as CheckpointCallback does, but first: where
    there is a model, they are there too.
    """

    def __init__(self, folder: str = "checkpoints", every: "Optional[float]" = None) -> None:
        super().__init__()
        self.folder = folder
        self.every = every  # seconds

    def _on_step(self) -> bool:
        if t.should_checkpoint(self.every):
            statistics = self.model.get_vec_normalize_env()
            if statistics is not None:
                with t.save_atomically(self._place("model_vecnormalize_{}_steps.pkl")) as path:
                    statistics.save(path)
            with t.save_atomically(self._place("model_{}_steps.zip")) as path:
                self.model.save(path)
        return True

    def _place(self, name: str) -> str:
        return os.path.join(t.outputs(), self.folder, name.format(self.num_timesteps))

    def _on_rollout_end(self) -> None:
        episodes = self.model.ep_info_buffer
        if episodes:
            count = len(episodes)
            t.report(
                self.num_timesteps,
                reward=sum(one["r"] for one in episodes) / count,
                episode_length=sum(one["l"] for one in episodes) / count,
            )
