import sys
import time

import lightning
import torch

import dray.training as t
from dray.training.lightning import Callback


class Small(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        time.sleep(0.02)
        loss = self.layer(batch[0]).pow(2).mean()
        self.log("twice", 2 * loss)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


samples = torch.utils.data.TensorDataset(torch.randn(600, 4))
trainer = lightning.Trainer(
    max_steps=int(sys.argv[1]) if len(sys.argv) > 1 else 500,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_checkpointing=False,
    log_every_n_steps=10,
    callbacks=[Callback("loss")],
)
loader = torch.utils.data.DataLoader(samples, batch_size=2)
trainer.fit(Small(), loader, ckpt_path=t.resume_path())
