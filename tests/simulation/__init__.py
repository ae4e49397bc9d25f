"""dray's node side under thousands of schedules: real code on real files, in a made-up world.

kernel.py      processes that take turns at every file operation, and a clock that only they move
system.py      the calls of the operating system that simulated processes reach the kernel through
children.py    the commands that a supervisor starts, and their signals
kind.py        what a kind of cluster is to this world
kinds.py       all kinds, by their names
batch_kinds.py how Slurm and PBS are asked, and answer
batch.py       a batch system: queue, starts, time limits, preemption, lost nodes
members.py     trials of a sweep that share batch jobs, on Slurm
machines.py    a machine with keepers, and an account that shares its queue
kubernetes.py  a Kubernetes: API server, Job controller, kubelets, nodes that are lost
kube_objects.py  its Jobs and pods, and how a request names them
kube_kind.py   how dray's laptop and pods meet it
luck.py        what goes wrong, and when: by a seed, or as told
laptop.py      the laptop's side, with the real cluster classes over a link that breaks
truth.py       what really happened, kept apart from dray's files; the invariants
world.py       all of it together, and the events that may happen in it
study.py       the files of a sweep alone, on a network's file system: trials that ask and tell
schedule.py    one schedule: a seed's events, then the faults are over, then nothing is left

``python -m tests.simulation SEED --trace`` shows what happens in one schedule.
"""
