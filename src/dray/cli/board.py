"""Shows jobs in TensorBoard, which runs on this machine."""

from __future__ import annotations

import socket
import tempfile
import time
from functools import cache
from pathlib import Path

import click

from dray.cli.browser import open_page
from dray.cli.output import launcher, named_or_latest
from dray.cli.parameters import job_argument
from dray.cli.terminal import say, tell, visible
from dray.launcher.boards import Board
from dray.programs import tensorboard

PAUSE = 5.0  # seconds between two looks at what jobs have written


@click.command("board")
@job_argument(many=True, or_latest=True)
@click.option("--raw", is_flag=True, help="Show every folder that the trainer made as its own run.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port on this machine.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def command(jobs: tuple[str, ...], raw: bool, port: int | None, no_browser: bool) -> None:
    """Show jobs (the latest, if none is named) in TensorBoard, until Ctrl-C.

    TensorBoard runs on this machine and can be reached from this machine only. The event files
    among the jobs' outputs are fetched as they grow; nothing runs on the cluster. A job that waits
    is shown once it writes something, one that has ended as it was.

    The attempts of a job are one run: where a training went on from a checkpoint, what had been
    written after that checkpoint is replaced. --raw shows the files as they are.
    """
    verbs = launcher()
    verbs.reporter = verbs.reporter._replace(say=cache(verbs.reporter.say))  # each warning once
    ids = verbs.find_all(jobs) if jobs else [named_or_latest(verbs, None)]
    words = tensorboard.find()
    with tempfile.TemporaryDirectory(prefix="dray-board-") as logdir:
        board = Board(verbs.context, ids, Path(logdir), raw=raw)
        board.update()
        say_what_waits(board)
        try:
            with tensorboard.running(words, Path(logdir), port or free_port()) as server:
                server.wait_until_ready()
                tell(server.url)
                if not no_browser:
                    open_page(server.url)
                while True:
                    time.sleep(PAUSE)
                    server.require_running()
                    board.update()
        except KeyboardInterrupt:
            return


def say_what_waits(board: Board) -> None:
    for view in board.waiting():
        job, yet = visible(view.id), " yet" if view.state.active else ""
        say(f"{job} is {view.state}, and has written no event files{yet}")
        say(f"  what it reports by dray.training.report is shown by: dray show {job}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind((tensorboard.HOST, 0))
        port: int = one.getsockname()[1]
        return port
