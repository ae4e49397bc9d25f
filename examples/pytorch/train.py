"""Fits a small network with PyTorch; interrupted or not, it ends with the same weights."""

import torch

import dray.training as t

STEPS = 300

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = 0

start = t.resume_path()  # None at first; then the newest whole checkpoint
if start:
    saved = torch.load(start)
    step = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])


def save():
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    with t.save_atomically(f"logs/model_{step:06d}.pt") as path:
        torch.save(state, path)


print("starting at step", step, flush=True)
while step < STEPS:
    x = torch.rand(64, 1) * 6 - 3
    loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    t.report(step=step, loss=loss.item())
    if t.should_checkpoint(every=60):  # every minute, and whenever dray asks
        save()
save()
print(f"loss {loss.item():.6f}, weights {sum(p.sum().item() for p in model.parameters()):.6f}")
