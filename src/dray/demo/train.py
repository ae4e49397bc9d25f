"""Teach a small neural network to balance a pole on a cart, on one CPU core, in about 20 seconds.

The method is augmented random search, a kind of evolution strategy: try the policy with small
random changes, forwards and backwards, and move it towards the changes that kept the pole up
for longer. It needs nothing but the standard library.

The script knows nothing of clusters. What makes it resumable is plain to see: a checkpoint holds
everything the next iteration depends on, SIGUSR1 asks for one at once, and ``--resume``
continues from one exactly as if the training had never stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
from dataclasses import asdict, dataclass
from pathlib import Path

# The cart and the pole of Barto, Sutton and Anderson (1983), in SI units.
GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
TOTAL_MASS = CART_MASS + POLE_MASS
POLE_HALF_LENGTH = 0.5
POLE_MOMENT = POLE_MASS * POLE_HALF_LENGTH
FORCE = 10.0
TIME_STEP = 0.02
TRACK_LIMIT = 2.4
ANGLE_LIMIT = math.radians(12)
START_RANGE = 0.05
MAX_STEPS = 500

# The policy: 4 observations, a hidden layer of tanh units and one tanh output between -1 and 1,
# which pushes to the right with probability (1 + output) / 2.
HIDDEN_UNITS = 8
NUMBERS_PER_UNIT = 6  # 4 input weights, a bias and an output weight
INITIAL_SCALE = 0.5

# The search.
DIRECTIONS = 96
BEST_DIRECTIONS = 48
NOISE = 0.2
STEP_SIZE = 0.012
MOMENTUM = 0.8

EVALUATION_EPISODES = 20
CHECKPOINTS_KEPT = 3


@dataclass(frozen=True)
class Training:
    """Everything the next iteration depends on, and so everything a checkpoint must hold."""

    iteration: int
    parameters: list[float]
    velocity: list[float]
    random_state: tuple[int, tuple[int, ...], float | None]


@dataclass(frozen=True)
class Trial:
    """One random direction, and the returns after a step along it and after the opposite step."""

    direction: list[float]
    forwards: int
    backwards: int


# --- The task ---


def episode_return(parameters: list[float], seed: int) -> int:
    """Count the steps for which the policy keeps the pole up and the cart on the track."""
    units = [
        tuple(parameters[i : i + NUMBERS_PER_UNIT])
        for i in range(0, len(parameters), NUMBERS_PER_UNIT)
    ]
    rng = random.Random(seed)
    position, speed, angle, spin = (rng.uniform(-START_RANGE, START_RANGE) for _ in range(4))
    # Nearly all of the time is spent in this loop, hence the plain arithmetic on local names.
    tanh, sin, cos, chance = math.tanh, math.sin, math.cos, rng.random
    for step in range(1, MAX_STEPS + 1):
        output = 0.0
        for w_position, w_speed, w_angle, w_spin, bias, w_output in units:
            output += w_output * tanh(
                w_position * position + w_speed * speed + w_angle * angle + w_spin * spin + bias
            )
        force = FORCE if tanh(output) > 2 * chance() - 1 else -FORCE

        sine, cosine = sin(angle), cos(angle)
        push = (force + POLE_MOMENT * spin * spin * sine) / TOTAL_MASS
        spin_rate = (GRAVITY * sine - cosine * push) / (
            POLE_HALF_LENGTH * (4 / 3 - POLE_MASS * cosine * cosine / TOTAL_MASS)
        )
        acceleration = push - POLE_MOMENT * spin_rate * cosine / TOTAL_MASS

        position += TIME_STEP * speed
        speed += TIME_STEP * acceleration
        angle += TIME_STEP * spin
        spin += TIME_STEP * spin_rate
        if abs(position) > TRACK_LIMIT or abs(angle) > ANGLE_LIMIT:
            return step
    return MAX_STEPS


def evaluate(parameters: list[float]) -> float:
    """Compute the mean return over a fixed set of episodes.

    The episodes are always the same, so that policies are compared on equal terms and measuring
    does not disturb the random numbers of the training."""
    returns = [episode_return(parameters, seed) for seed in range(EVALUATION_EPISODES)]
    return sum(returns) / len(returns)


# --- The search ---


def add_scaled(vector: list[float], factor: float, other: list[float]) -> list[float]:
    return [v + factor * o for v, o in zip(vector, other)]  # noqa: B905 (not in Python 3.8)


def new_training(seed: int) -> Training:
    rng = random.Random(seed)
    parameters: list[float] = []
    for _ in range(HIDDEN_UNITS):
        weights = [rng.gauss(0, INITIAL_SCALE) for _ in range(4)]
        # With output weights of zero the policy begins by tossing a coin, whatever the seed.
        parameters += [*weights, 0.0, 0.0]
    return Training(0, parameters, [0.0] * len(parameters), rng.getstate())


def try_direction(parameters: list[float], rng: random.Random) -> Trial:
    direction = [rng.gauss(0, 1) for _ in parameters]
    # Both steps meet the same chances, so that what differs is due to the policy.
    seed = rng.getrandbits(32)
    forwards = episode_return(add_scaled(parameters, NOISE, direction), seed)
    backwards = episode_return(add_scaled(parameters, -NOISE, direction), seed)
    return Trial(direction, forwards, backwards)


def ascent(trials: list[Trial]) -> list[float]:
    """Average the most successful directions, by how much better forwards was than backwards."""
    trials = sorted(trials, key=lambda t: max(t.forwards, t.backwards), reverse=True)
    best = trials[:BEST_DIRECTIONS]
    returns = [value for trial in best for value in (trial.forwards, trial.backwards)]
    mean = sum(returns) / len(returns)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in returns) / len(returns))
    total = [0.0] * len(best[0].direction)
    if deviation == 0:  # every trial did equally well: there is nothing to learn from them
        return total
    for trial in best:
        weight = (trial.forwards - trial.backwards) / (deviation * len(best))
        total = add_scaled(total, weight, trial.direction)
    return total


def improve(training: Training) -> Training:
    """Do one iteration."""
    rng = random.Random()
    rng.setstate(training.random_state)
    trials = [try_direction(training.parameters, rng) for _ in range(DIRECTIONS)]
    velocity = add_scaled(ascent(trials), MOMENTUM, training.velocity)
    parameters = add_scaled(training.parameters, STEP_SIZE, velocity)
    return Training(training.iteration + 1, parameters, velocity, rng.getstate())


# --- The files ---


def write_atomically(path: Path, text: str) -> None:
    """Write to one side and rename, so that a kill at any moment leaves no half-written file."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def save_checkpoint(training: Training, folder: Path) -> None:
    path = folder / f"iteration_{training.iteration:05d}.json"
    write_atomically(path, json.dumps(asdict(training)))
    # By age and not by number: after going back to an older checkpoint, low numbers are new.
    by_age = sorted(folder.glob("iteration_*.json"), key=lambda p: (p.stat().st_mtime_ns, p.name))
    for old in by_age[:-CHECKPOINTS_KEPT]:
        old.unlink()


def load_checkpoint(path: Path) -> Training:
    saved = json.loads(path.read_text())
    version, numbers, spare = saved["random_state"]
    random_state = (version, tuple(numbers), spare)
    return Training(saved["iteration"], saved["parameters"], saved["velocity"], random_state)


def rewind_curve(path: Path, iteration: int) -> None:
    """Drop the rows after an iteration: they are about to be computed and written again."""
    lines = path.read_text().splitlines(keepends=True)[1:] if path.exists() else []
    # A line without its end was cut short when the previous run was killed.
    rows = [line for line in lines if line.endswith("\n")]
    kept = [row for row in rows if int(row.split(",")[0]) <= iteration]
    write_atomically(path, "iteration,mean_return,attempt\n" + "".join(kept))


# --- The run ---


class SaveRequest:
    """Remembers a SIGUSR1, which asks for a checkpoint, until the iteration is complete."""

    def __init__(self) -> None:
        self.pending = False
        signal.signal(signal.SIGUSR1, self._arrived)

    def _arrived(self, _signal: int, _frame: object) -> None:
        self.pending = True

    def take(self) -> bool:
        if not self.pending:
            return False
        self.pending = False
        return True


def run(training: Training, iterations: int, save_every: int, request: SaveRequest) -> None:
    outputs = Path(os.environ.get("DRAY_OUTPUTS", "outputs"))
    attempt = int(os.environ.get("DRAY_ATTEMPT", "1"))
    checkpoints = outputs / "checkpoints"
    checkpoints.mkdir(parents=True, exist_ok=True)
    rewind_curve(outputs / "curve.csv", training.iteration)
    with (outputs / "curve.csv").open("a") as curve:
        while training.iteration < iterations:
            training = improve(training)
            done = training.iteration
            mean_return = evaluate(training.parameters)
            print(f"{done},{mean_return:.2f},{attempt}", file=curve, flush=True)
            if request.take() or done % save_every == 0 or done == iterations:
                save_checkpoint(training, checkpoints)
            if done % 10 == 0:
                print(f"iteration {done:4d}   mean return {mean_return:6.1f}", flush=True)
    print(f"finished with a mean return of {evaluate(training.parameters):.1f} of {MAX_STEPS}")


def main() -> None:
    # First of all, because a SIGUSR1 that nobody awaits ends a program.
    request = SaveRequest()
    parser = argparse.ArgumentParser(description="Teach a neural network to balance a pole.")
    parser.add_argument("--iterations", type=int, default=120, metavar="N")
    parser.add_argument("--save-every", type=int, default=20, metavar="K", help="in iterations")
    parser.add_argument("--seed", type=int, default=0, metavar="S")
    parser.add_argument("--resume", type=Path, metavar="PATH", help="continue from a checkpoint")
    options = parser.parse_args()
    training = load_checkpoint(options.resume) if options.resume else new_training(options.seed)
    run(training, options.iterations, options.save_every, request)


if __name__ == "__main__":
    main()
