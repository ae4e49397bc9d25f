"""PBS's commands in front of the real Slurm: Debian's slurm-wlm-torque.

They speak Torque's dialect. What they lack and every PBS has is made up for here:

- ``qsub`` does not read the ``#PBS`` lines of the script (and takes one ``-l`` only): they are
  handed to it as flags, as the real one would do itself.
- There is no ``qselect``: made of ``qstat -u``.
- ``qstat -f`` does not tell where the output goes: added.
- Batch jobs do not see ``PBS_JOBID``: see ``setup``.

What they lack and is left so: ``qstat -f`` has no comment and no start, ``qalter`` has no ``-a``,
there is no ``qsig``, a deleted job is shown as such at once, and ``qrerun`` only complains (it
calls Slurm's library with an argument too few): jobs go on by successors, as they do wherever PBS
leaves reruns to operators.
"""

from __future__ import annotations

import sys

from tests.rigs.slurm import Slurm

QSUB = (
    f"#!{sys.executable}"
    """
import os, re, shlex, sys, tempfile
*given, script = sys.argv[1:]
text = open(script).read()
flags = shlex.split(" ".join(re.findall(r"^#PBS (.*)", text, re.M)))
wanted = [flags[at + 1] for at, flag in enumerate(flags) if flag == "-l"]
rest = [
    word for at, word in enumerate(flags) if word != "-l" and (at == 0 or flags[at - 1] != "-l")
]
# sbatch reads #PBS lines too, after a fashion: they must not count twice.
plain = tempfile.NamedTemporaryFile("w", dir=os.path.dirname(script), delete=False)
plain.write(re.sub(r"^#PBS .*\\n", "", text, flags=re.M))
plain.close()
words = ["/usr/bin/qsub", *rest, "-l", ",".join(wanted), *given, plain.name]
code = os.spawnv(os.P_WAIT, words[0], words)
os.unlink(plain.name)
sys.exit(code)
"""
)
QSELECT = """\
#!/bin/sh
/usr/bin/qstat -u "$2" | awk '$1 ~ /^[0-9]/ {print $1}'
"""
QSTAT = (
    f"#!{sys.executable}"
    """
import re, subprocess, sys
ended = subprocess.run(["/usr/bin/qstat", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
text = ended.stdout
if "-f" in sys.argv and "Job Id:" in text:
    shown = subprocess.run(["scontrol", "-o", "show", "job"], stdout=subprocess.PIPE, text=True)
    paths = dict(re.findall(r"^JobId=(\\d+) .* StdOut=(\\S+)", shown.stdout, re.M))
    for number, path in paths.items():
        head = f"Job Id:\\t{number}\\n"
        text = text.replace(head, f"{head}\\tOutput_Path = login:{path}\\n")
sys.stdout.write(text)
sys.exit(ended.returncode)
"""
)


class Pbs:
    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.bin = slurm.folder / "pbs"

    def start(self) -> None:
        self.bin.mkdir()
        for name, script in (("qsub", QSUB), ("qstat", QSTAT), ("qselect", QSELECT)):
            (self.bin / name).write_text(script)
            (self.bin / name).chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.bin}:/usr/local/bin:/usr/bin:/bin"

    @property
    def setup(self) -> list[str]:
        """What PBS itself puts into a batch job's environment."""
        return [
            f"export PATH={self.path} PBS_JOBID=$SLURM_JOB_ID PBS_JOBFS={self.slurm.scratch}",
        ]

    def call(self, *words: str) -> str:
        """A command of PBS's, on the login node."""
        return self.slurm.call("env", f"PATH={self.path}", *words)
