"""The warm process: it waits for commands with everything imported (the dialogue: ``warm.py``).

A child, made before it is needed, carries out one command and ends, so that nothing of one command
is seen by the next. It ends by itself when nobody has asked for a while, or when the code on disk
is no longer the code that was imported.
"""

from __future__ import annotations

import gc
import importlib
import marshal
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Any

from dray import background
from dray.cli import terminal, warm
from dray.clusters import registry
from dray.node.formats import files

IDLE_SECONDS = 600.0
LOOK_SECONDS = 5.0
LENGTH = 4
# What the verbs import only when it is needed.
NEEDED = (
    "dray.cli.group",
    "dray.cli.arguments",
    *(f"dray.cli.{verb}" for verb in warm.SERVED),
    *registry.modules(),
    "dray.clusters.agent.sessions",
    "dray.launcher.sessions",
    "dray.sessions.executing",
    "dray.snapshot",
    "concurrent.futures.thread",
    "encodings.utf_8_sig",
    "getpass",
    "http.client",
    "tomllib",
    "urllib.parse",
)


def serve(path: str) -> None:
    for name in NEEDED:
        importlib.import_module(name)
    importlib.import_module("dray.programs.shipping").name()
    us = warm.identity()
    lock = files.open_lock(f"{path}.lock")
    # The path was named before we were started: where it fits, nothing has changed since.
    if os.path.basename(path) != warm.socket_name(us) or not files.try_lock(lock):
        return
    with suppress(FileNotFoundError):
        os.unlink(path)
    rehearse()  # what it imports, no child has to import any more
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(8)
        gc.freeze()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a child ended
        while has_taken_one(listener, us):
            pass
    with suppress(FileNotFoundError):
        os.unlink(path)


def has_taken_one(listener: socket.socket, us: tuple[Any, ...]) -> bool:
    """Let a child wait for a command; return True once it has received one."""
    ours, its = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        wait_and_carry_out(listener, us, its)
    os.close(its)
    try:
        return os.read(ours, 1) != b""
    finally:
        os.close(ours)


def wait_and_carry_out(listener: socket.socket, us: tuple[Any, ...], notice: int) -> None:
    code = 1
    try:
        rehearse()
        link = next_command(listener, us)
        os.write(notice, b"!")
        os.close(notice)
        listener.close()
        carry_out(link, us)
        code = 0
    finally:
        os._exit(code)


def rehearse() -> None:
    """Carry out a command for nothing, so that the memory that a command changes is already our
    own, and need not be copied from the parent's while a user waits."""
    os.environ["DRAY_HOME"] = "/nonexistent"
    result_of(["plan", "--no-snapshot", "--", "true"])


def next_command(listener: socket.socket, us: tuple[Any, ...]) -> socket.socket:
    parent = os.getppid()
    until = time.monotonic() + IDLE_SECONDS
    listener.settimeout(LOOK_SECONDS)
    while time.monotonic() < until and os.getppid() == parent:
        try:
            link, _ = listener.accept()
        except TimeoutError:
            if warm.identity() != us or not os.path.exists(listener.getsockname()):
                break
            continue
        link.settimeout(warm.PATIENCE)
        return link
    os._exit(0)


def carry_out(link: socket.socket, us: tuple[Any, ...]) -> None:
    link.sendall(warm.READY)
    start, fds, *_ = socket.recv_fds(link, LENGTH, 4)
    if len(start) < LENGTH:
        return  # it only wanted to know whether we are here
    theirs, arguments, environment, umask = marshal.loads(
        receive(link, int.from_bytes(start, "big"))
    )
    if theirs != us or len(fds) != 4:
        return
    take_over_process_state(fds, environment, umask)
    link.sendall(warm.TAKEN)
    link.settimeout(None)
    if link.recv(1) != warm.GO:
        return
    background.enter()
    is_done = threading.Event()
    watch = (link, threading.get_ident(), is_done)
    threading.Thread(target=pass_signals_on, args=watch, daemon=True).start()
    result = result_of(arguments)
    is_done.set()
    release_user_files()
    link.sendall(result)
    background.finish()


def receive(link: socket.socket, length: int) -> bytes:
    pieces = []
    while length:
        piece = link.recv(length)
        if not piece:
            raise EOFError
        length -= len(piece)
        pieces.append(piece)
    return b"".join(pieces)


def take_over_process_state(fds: list[int], environment: dict[str, str], umask: int) -> None:
    """Take over the user's files, folder, umask and environment."""
    for target, fd in enumerate(fds[:3]):
        os.dup2(fd, target)
    os.fchdir(fds[3])
    for fd in fds:
        os.close(fd)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    tempfile.tempdir = None  # it was found by the variables of somebody else
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.disable()


def release_user_files() -> None:
    """Close the user's files: whoever reads our output must see its end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def pass_signals_on(link: socket.socket, main_thread: int, is_done: threading.Event) -> None:
    """Repeat the signals that the user's process gets, and end with it while we work for it."""
    while number := link.recv(1):
        signal.pthread_kill(main_thread, number[0])
    if not is_done.is_set():
        os.kill(os.getpid(), signal.SIGKILL)


def result_of(arguments: list[str]) -> bytes:
    from dray.cli.running import run

    try:
        code = run(arguments)
    except background.NeedsTerminal:
        return warm.BACK
    except BaseException as error:
        terminal.say_traceback(type(error), error, error.__traceback__)
        code = 1
    with suppress(OSError):
        sys.stdout.flush()
    return warm.DONE + bytes([code & 0xFF])


if __name__ == "__main__":
    os.chdir("/")
    serve(sys.argv[1])
