"""dray: runs a program on the head of a Ray cluster, for a laptop that reaches only Ray's HTTP API.

Ray's API takes in packages, and gives out log files: the program's input comes in the former, one
after another, and its output goes into a file beside Ray's own logs, which the laptop follows. The
laptop passes this text to the Python there; the other end is dray.transport.ray_pipe.

    a package   I input, C end of input, P sign of life, K all has arrived: end
    the file    frames "KIND LENGTH\\n": O output, E errors, A packages taken so far, X exit code
"""

import os
import subprocess
import sys
import threading
import time

PACKAGE = "gcs://_ray_pkg_{}-{}.zip"
SILENCE = 90.0  # seconds without a sign of life, after which the laptop is taken to be gone
SHORTEST, LONGEST = 0.005, 0.1  # seconds between two looks for a package
PIECE = 1 << 16
AHEAD = 16  # packages that may have come and were not taken
DASHBOARD = "DRAY_RAY_DASHBOARD"  # where the agent finds Ray's API


def connect():
    """Return what reads packages, and the address of Ray's API as the head itself reaches it."""
    from ray._raylet import GcsClient
    from ray.experimental import internal_kv

    internal_kv._initialize_internal_kv(GcsClient(address=os.environ["RAY_ADDRESS"]))
    found = internal_kv._internal_kv_get("dashboard", namespace="dashboard")
    return internal_kv, "http://" + found.decode() if found else ""


class Answers:
    """The file that the laptop follows."""

    def __init__(self, name):
        logs = os.path.dirname(os.readlink("/proc/self/fd/1"))
        self.path = os.path.join(logs, "dray-{}.out".format(name))
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self.lock = threading.Lock()

    def write(self, kind, data):
        data = "{} {}\n".format(kind, len(data)).encode() + data
        with self.lock:
            while data:
                data = data[os.write(self.fd, data) :]

    def copy(self, kind, pipe):
        for piece in iter(lambda: os.read(pipe.fileno(), PIECE), b""):
            self.write(kind, piece)


class Bridge:
    def __init__(self, name, words):
        self.name = name
        self.answers = Answers(name)
        self.packages, dashboard = connect()
        env = dict(os.environ, **{DASHBOARD: dashboard})
        pipe = subprocess.PIPE
        self.program = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
        self.taken = 0
        self.heard = time.monotonic()
        self.is_over = False

    def run(self):
        ending = threading.Thread(target=self.report)
        ending.start()
        pause = SHORTEST
        try:
            while not self.is_over and time.monotonic() - self.heard < SILENCE:
                pause = SHORTEST if self.look() else min(pause * 1.2, LONGEST)
                time.sleep(pause)
        finally:
            self.end()
        ending.join()
        os.unlink(self.answers.path)

    def report(self):
        """Pass on what the program says, and how it ended."""
        program, copy = self.program, self.answers.copy
        errors = threading.Thread(target=copy, args=("E", program.stderr))
        errors.start()
        copy("O", program.stdout)
        errors.join()
        self.answers.write("X", str(program.wait()).encode())

    def look(self):
        """Take the next package, if it has come."""
        key = PACKAGE.format(self.name, self.taken)
        package = self.packages._internal_kv_get(key)
        if not package:
            return False
        self.packages._internal_kv_del(key)
        self.taken += 1
        self.heard = time.monotonic()
        self.answers.write("A", str(self.taken).encode())
        self.heed(package[:1], package[1:])
        return True

    def heed(self, kind, data):
        self.is_over = kind == b"K"
        try:
            if kind == b"I":
                self.program.stdin.write(data)
                self.program.stdin.flush()
            elif kind == b"C":
                self.program.stdin.close()
        except (OSError, ValueError):  # it has ended, or its input has
            pass

    def end(self):
        """End the program, and drop what has come for it in vain."""
        try:
            self.program.stdin.close()
        except OSError:
            pass
        try:
            self.program.wait(5)
        except subprocess.TimeoutExpired:
            self.program.kill()
        for number in range(self.taken, self.taken + AHEAD):
            self.packages._internal_kv_del(PACKAGE.format(self.name, number))


if __name__ == "__main__":
    os.umask(0o077)
    Bridge(sys.argv[1], sys.argv[2:]).run()
