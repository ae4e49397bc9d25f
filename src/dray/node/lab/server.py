"""Starts JupyterLab as a job's command, where only its user can reach it.

It listens on a socket in a private folder: any user of a node can connect to its ports. Its token
is in a file, and in no list of processes. What is saved in a notebook is copied to the outputs at
once, as the work tree goes with the attempt; the next attempt, and a resumed job, begin with it.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

from ..containers import container
from ..formats import files
from ..jobs.budget import in_words
from ..processes.environment import IN_CONTAINER
from ..processes.process import cpu_below
from ..sessions import door
from ..sessions.idleness import Idleness
from . import notes
from .jupyter import Jupyter, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional  # noqa: F401

MISSING = 127
LOOK = 30.0  # seconds between two looks at what is done there
TICK = 0.2
ENDING = 15.0
NEVER = "never"
SAVED = "lab"  # in the outputs
PREFIX = "dray-lab-"

CONFIG = '''
import os, shutil

top, kept = {top!r}, {kept!r}

def keep(os_path, **_):
    """Copy what was saved to the outputs."""
    relative = os.path.relpath(os_path, top)
    if relative.startswith(os.pardir) or not os.path.isfile(os_path):
        return
    target = os.path.join(kept, relative)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(os_path, target + ".dray-part")
    os.replace(target + ".dray-part", target)

c.FileContentsManager.post_save_hook = keep
c.ServerApp.sock = {sock!r}
c.ServerApp.sock_mode = "0600"
c.ServerApp.root_dir = top
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True  # in a container, root is often the user
'''


def main(idle: str) -> int:
    """Run JupyterLab until it ends, or nobody has used it for so many seconds, or ``never``."""
    words = find(sys.executable)
    if words is None:
        say("JupyterLab was not found. Add it to the environment or image: pip install jupyterlab")
        return MISSING
    top, kept = os.getcwd(), os.path.join(os.environ["DRAY_OUTPUTS"], SAVED)
    restore(kept, top)
    folder = private_folder()
    try:
        return run(words, folder, top, kept, None if idle == NEVER else float(idle))
    finally:
        notes.remove()
        files.remove_tree(folder)


def private_folder() -> str:
    if os.environ.get(IN_CONTAINER):
        path = os.path.join(container.RUN, PREFIX + os.urandom(6).hex())
        os.mkdir(path, files.PRIVATE_FOLDER)
        return path
    return door.make_folder(PREFIX)[0]  # locked for as long as this process lives


def run(words: "List[str]", folder: str, top: str, kept: str, idle: "Optional[float]") -> int:
    token, sock = os.urandom(24).hex(), os.path.join(folder, "s")
    config = os.path.join(folder, "config.py")
    text = CONFIG.format(top=top, kept=kept, sock=sock)
    files.write_bytes(config, text.encode("utf-8"), durable=False)
    files.write_bytes(os.path.join(folder, "token"), token.encode("ascii"), durable=False)
    env = dict(os.environ, JUPYTER_TOKEN_FILE=os.path.join(folder, "token"))
    process = subprocess.Popen(words + ["--config=" + config], env=env, stdin=subprocess.DEVNULL)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.terminate())
    server = Jupyter(sock, token)
    while process.poll() is None and not server.is_ready():
        time.sleep(TICK)
    if process.poll() is None:
        notes.write(sock, token)
    return watch(process, server, Idleness(idle, time.time()))


def watch(process: "subprocess.Popen[bytes]", server: Jupyter, idleness: Idleness) -> int:
    """Wait until Jupyter ends, and end it when nobody uses it."""
    next_look = time.monotonic() + LOOK
    while process.poll() is None:
        time.sleep(TICK)
        if time.monotonic() < next_look:
            continue
        next_look = time.monotonic() + LOOK
        now = time.time()
        idleness.look(now, server.newest_activity(), cpu_below(process.pid))
        if idleness.is_to_be_noticed(now):
            left = idleness.seconds_left(now) or 0.0
            say("nothing was run or typed for a while: it ends in {}".format(in_words(left)))
        if idleness.is_over(now):
            say("it was idle for {}, and is ended".format(in_words(idleness.limit or 0.0)))
            end(process, server)
            return 0
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def end(process: "subprocess.Popen[bytes]", server: Jupyter) -> None:
    server.shut_down()
    try:
        process.wait(ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def restore(kept: str, top: str) -> None:
    """Put what an earlier attempt saved back into the work tree."""
    for path in files.files_below(kept):
        target = os.path.join(top, os.path.relpath(path, kept))
        files.make_folder(os.path.dirname(target), durable=False)
        shutil.copyfile(path, target)


def say(text: str) -> None:
    sys.stderr.write("dray lab: {}\n".format(text))
    sys.stderr.flush()
