"""Fabric with a loop of one's own, which has only one checkpoint, replaced by each newer one.

With --wandb it logs there too, and saves and ends as it should when it gets SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import time

import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import TensorBoardLogger


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--max_steps", type=int, default=200)
    flags.add_argument("--wandb", action="store_true")
    flags.add_argument("--nodes", type=int, default=1)
    flags.add_argument("--devices", type=int, default=1)
    args = flags.parse_args()
    run, asked = None, []
    if args.wandb:
        import wandb

        run = wandb.init(project="tests")
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    torch.manual_seed(1)
    logger = TensorBoardLogger("lightning_logs")
    strategy = "auto" if args.nodes * args.devices == 1 else "ddp"
    spread = {"strategy": strategy, "devices": args.devices, "num_nodes": args.nodes}
    fabric = Fabric(accelerator="cpu", loggers=logger, **spread)
    fabric.launch()
    model = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=0.01))
    state = {"model": model, "optimizer": optimizer, "step": 0}
    os.makedirs("checkpoints", exist_ok=True)
    last = os.path.join("checkpoints", "last.ckpt")
    if "DRAY_CHECKPOINT" in os.environ:
        fabric.load(os.environ["DRAY_CHECKPOINT"], state)
        print(f"going on from step {state['step']}")
    while state["step"] < args.max_steps and not asked:
        time.sleep(0.01)
        seed = state["step"] * fabric.world_size + fabric.global_rank
        points = torch.randn(16, 4, generator=torch.Generator().manual_seed(seed))
        loss = torch.nn.functional.mse_loss(model(points), points.sum(dim=1, keepdim=True))
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        fabric.log("loss", loss.item(), step=state["step"])
        if run:
            run.log({"loss": loss.item()}, step=state["step"])
        state["step"] += 1
        if asked or state["step"] % 20 == 0:
            fabric.save("checkpoints/.new", state)
            if fabric.is_global_zero:
                os.replace("checkpoints/.new", last)
    if run:
        run.finish()


if __name__ == "__main__":
    main()
