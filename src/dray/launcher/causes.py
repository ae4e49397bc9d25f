"""Finds out why a command failed, from the last lines of its output."""

from __future__ import annotations

import re

ENVIRONMENTS = "docs/how-to/use-an-environment.md"
# The first that fits is told; {0} is what the pattern's group found.
CAUSES = (
    (r"CUDA out of memory|OutOfMemoryError: CUDA|CUDA_ERROR_OUT_OF_MEMORY",
     "the GPU ran out of memory: use fewer environments or a smaller batch, or a larger GPU"),
    (r"(?:ModuleNotFoundError|ImportError): No module named ['\"]?([\w.-]+)",
     f"the job's Python has no module {{0}}: activate its environment ({ENVIRONMENTS})"),
    (r"(?:^|[ /])(python3?|conda|pip|uv): (?:command )?not found",
     f"there is no {{0}} in the job's PATH: activate an environment ({ENVIRONMENTS})"),
    (r"Disk quota exceeded", "a disk quota is used up: clear some room, or write elsewhere"),
    (r"No space left on device", "a disk is full: clear some room, or write elsewhere"),
    (r"oom-kill|Out Of Memory|oom_kill|[Cc]annot allocate memory|std::bad_alloc|\bMemoryError\b",
     "there was not enough memory: ask for more with --memory"),
    (r"CUDA driver version is insufficient|no CUDA-capable device|No CUDA GPUs are available",
     "the command saw no GPU that it can use: ask for one with --gpus, and check the image"),
    (r"Address already in use", "a port was taken, maybe by another job on the same node"),
    (r"FileNotFoundError: .*?['\"]([^'\"]+)['\"]",
     "the file {0} is not there: what git ignores is not part of a job's code"),
    (r"(?i)\b(?:loss|reward|value|grad)\w*\b[^\n]{0,40}\bnan\b|invalid values.{0,20}\bnan\b",
     "a value of the training became NaN"),
)  # fmt: skip


def cause_of(lines: list[str]) -> str:
    """Return the likely cause in words, or '' where the lines do not show one."""
    text = "\n".join(lines)
    for pattern, sentence in CAUSES:
        found = re.search(pattern, text, re.M)
        if found:
            return sentence.format(*found.groups())
    return ""
