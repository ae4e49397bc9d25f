"""Every verb and what it does, in one line each; the modules are imported when a verb is used."""

from __future__ import annotations

VERBS = {
    "Jobs": {
        "run": "submit a job and print its id",
        "batch": "submit many jobs, each with its own command and resources",
        "plan": "show exactly what run would submit; touches nothing",
        "ps": "list active and recent jobs",
        "show": "describe one job and its attempts",
        "why": "tell what is the matter with a job: why it waits, or ended",
        "logs": "print or follow a job's output",
        "sweep": "try many configurations, and show which are best",
        "board": "show jobs in TensorBoard, on this machine",
        "wait": "wait for jobs to end; exit code 1 if one failed",
        "stop": "stop a job, with a checkpoint first",
        "resume": "continue an ended job from its newest checkpoint",
        "pull": "copy a job's outputs to this machine",
        "rm": "remove an ended job and all its files",
        "ticket": "put together what a cluster's admins need to help",
        "notify": "show and test who is notified of jobs",
    },
    "Into a running job": {
        "exec": "run a program beside a job's command",
        "shell": "open a shell there, or on a node of its own",
        "ssh": "log in there with ssh, scp, rsync or an editor",
        "code": "open its folder in VS Code, Cursor or VSCodium",
        "lab": "open JupyterLab on a cluster, in the browser here",
        "forward": "forward ports of a job's node to this machine, or back",
        "view": "watch the livestream of a headless simulation",
    },
    "Clusters": {
        "cluster": "add, import, list, show, check, start and remove clusters",
        "queue": "show each cluster's queue, free GPUs, and what lies ahead",
        "quota": "show what you may use of a cluster, and have used",
        "doctor": "check everything a job depends on",
    },
    "Containers": {
        "image": "build, push, list and remove images",
    },
    "Trainers": {
        "recipe": "list and show what dray knows about trainers",
    },
    "Getting started": {
        "init": "look at the project, write a first dray.toml, print a command",
        "trust": "let a project's dray.toml name clusters and secrets",
        "demo": "a real training run, interrupted and resumed, in under a minute",
        "completion": "print or install the completion for bash, zsh or fish",
    },
}

# What other programs call it, and what to write instead.
ELSEWHERE = {
    "status": "dray ps, or dray show JOB",
    "list": "dray ps",
    "ls": "dray ps",
    "describe": "dray show JOB",
    "get": "dray show JOB",
    "submit": "dray run -- COMMAND",
    "launch": "dray run -- COMMAND",
    "bash": "dray shell JOB",
    "port-forward": "dray forward JOB PORT",
    "attach": "dray logs -f JOB",
    "tail": "dray logs -f JOB",
    "cancel": "dray stop JOB",
    "kill": "dray stop --now JOB",
    "down": "dray stop JOB",
    "delete": "dray rm JOB",
    "remove": "dray rm JOB",
    "download": "dray pull JOB",
}

SUMMARIES = {name: summary for group in VERBS.values() for name, summary in group.items()}


def overview() -> str:
    lines = [
        "Usage: dray VERB [OPTIONS] …",
        "",
        "Takes a training run to a cluster, keeps it alive until it is done,",
        "and brings the results home.",
    ]
    for title, verbs in VERBS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:<11} {summary}" for name, summary in verbs.items()]
    lines += [
        "",
        "Options:",
        "  --help      this page; dray VERB --help describes one verb",
        "  --version   print the version",
        "  --verbose   report every program and request, with times (before the verb)",
        "  --debug     show tracebacks (before the verb)",
        "",
        "Begin with:  dray run -- python train.py",
    ]
    return "\n".join(lines)
