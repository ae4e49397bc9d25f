"""Fits a line to points by gradient descent, and can be interrupted at any moment."""

import json
import random

import dray.training as t

STEPS = 300


def load(path):
    with open(path) as file:
        return json.load(file)


def save(state):
    with t.save_atomically(f"logs/model_{state['step']:06d}.json") as path, open(path, "w") as file:
        json.dump(state, file)


def train(state):
    """One step: a point of the line y = 3 x + 1, and the slopes of the squared error there."""
    x = random.Random(state["step"]).uniform(-1, 1)
    error = state["slope"] * x + state["offset"] - (3 * x + 1)
    state["slope"] -= 0.1 * error * x
    state["offset"] -= 0.1 * error
    state["step"] += 1
    return error**2


start = t.resume_path()  # None at first; then the newest whole checkpoint
state = load(start) if start else {"step": 0, "slope": 0.0, "offset": 0.0}
print("starting at step", state["step"], flush=True)
while state["step"] < STEPS:
    loss = train(state)
    t.report(step=state["step"], loss=loss)
    if t.should_checkpoint(every=60):  # every minute, and whenever dray asks
        save(state)
save(state)
print(f"y = {state['slope']:.2f} x + {state['offset']:.2f}")
