"""dray's node side under thousands of schedules: real code on real files, in a made-up world.

kernel.py      processes that take turns at every file operation, and a clock that only they move
system.py      the calls of the operating system that simulated processes reach the kernel through
children.py    the commands that a supervisor starts, and their signals
batch.py       a batch system: queue, starts, time limits, preemption, lost nodes
kinds.py       how Slurm and PBS are asked and answer; a new kind of cluster joins here
luck.py        what goes wrong, and when: by a seed, or as told
laptop.py      the laptop's side, with the real cluster classes over a link that breaks
truth.py       what really happened, kept apart from dray's files; the invariants
world.py       all of it together, and the events that may happen in it
schedule.py    one schedule: a seed's events, then the faults are over, then nothing is left

``python -m tests.simulation SEED --trace`` shows what happens in one schedule.
"""
