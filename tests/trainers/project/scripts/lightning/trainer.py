"""Lightning's Trainer on a small regression: epochs and steps are absolute, also on a resume."""

from __future__ import annotations

import argparse
import os
import time

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 10  # of an epoch


class Line(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        time.sleep(0.01)
        points, values = batch
        loss = torch.nn.functional.mse_loss(self.layer(points), values)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def data() -> DataLoader:
    points = torch.randn(BATCHES * 16, 4, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(points, points.sum(dim=1, keepdim=True)), batch_size=16)


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--max_epochs", type=int, default=20)
    args = flags.parse_args()
    lightning.seed_everything(1)
    trainer = lightning.Trainer(
        max_epochs=args.max_epochs,
        accelerator="cpu",
        devices=1,
        logger=TensorBoardLogger("."),
        callbacks=[ModelCheckpoint(every_n_epochs=2, save_top_k=-1)],
        log_every_n_steps=1,
        enable_progress_bar=False,
    )
    trainer.fit(Line(), data(), ckpt_path=os.environ.get("DRAY_CHECKPOINT"))


if __name__ == "__main__":
    main()
