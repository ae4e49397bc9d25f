"""What the end of a command's output says of the cause."""

from __future__ import annotations

import pytest

from dray.launcher.causes import cause_of


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "the GPU ran"),
        ("ModuleNotFoundError: No module named 'rsl_rl'", "has no module rsl_rl:"),
        ("/bin/bash: line 1: python: command not found", "there is no python in the job's PATH"),
        ("sh: 1: python3: not found", "there is no python3 in"),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'", "a disk quota is used up"),
        ("OSError: [Errno 28] No space left on device", "a disk is full"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch", "not enough memory"),
        ("RuntimeError: No CUDA GPUs are available", "no GPU that it can use"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x.npz'", "data/x.npz"),
        ("Mean value_function loss: nan", "became NaN"),
        ("ValueError: Expected parameter loc to satisfy … but found invalid values: nan", "NaN"),
    ],
)
def test_a_known_cause_is_told_in_words(line: str, says: str) -> None:
    assert says in cause_of(["Traceback (most recent call last):", line])


@pytest.mark.parametrize("line", ["", "done", "nano banana", "loss: 0.3", "ValueError: 3"])
def test_where_nothing_is_known_nothing_is_said(line: str) -> None:
    assert cause_of([line]) == ""
