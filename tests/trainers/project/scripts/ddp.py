"""Data-parallel training as torch's documentation has it: a worker for each of torchrun's ranks,
and the first saves. What is learned in a step depends on nothing but the step and the rank."""

from __future__ import annotations

import argparse
import os
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--max_steps", type=int, default=200)
    flags.add_argument("--distributed", action="store_true")
    args = flags.parse_args()
    assert args.distributed
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step = 0
    if "DRAY_CHECKPOINT" in os.environ:
        state = torch.load(os.environ["DRAY_CHECKPOINT"])
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    writer = SummaryWriter("logs") if rank == 0 else None
    while step < args.max_steps:
        time.sleep(0.02)
        points = torch.randn(16, 4, generator=torch.Generator().manual_seed(step * world + rank))
        loss = torch.nn.functional.mse_loss(model(points), points.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if writer:
            writer.add_scalar("loss", loss.item(), step)
            writer.flush()
        step += 1
        if writer and step % 20 == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            os.makedirs("checkpoints", exist_ok=True)
            torch.save(state, f"checkpoints/model_{step}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
