"""dray shell, in a real terminal: keys, sizes, and links that break."""

from __future__ import annotations

import os
import signal
import termios

import pexpect
import pytest

from tests.conftest import Dray, Hpc, wait_for
from tests.rigs.link import Link
from tests.sessions.conftest import PROMPT, Enter, Inside

pytestmark = pytest.mark.sessions


def begin(inside: Inside, *flags: str) -> pexpect.spawn[str]:
    shell = inside.shell(*flags)
    shell.sendline("PS1='RD''Y> '; bind 'set enable-bracketed-paste off' 2>/dev/null; stty -echo")
    shell.expect_exact(PROMPT)
    shell.sendline("echo be''gun")
    shell.expect_exact("begun")
    shell.expect_exact(PROMPT)
    return shell


def leave(shell: pexpect.spawn[str]) -> int:
    shell.expect(pexpect.EOF)
    shell.close()
    return int(shell.exitstatus if shell.exitstatus is not None else -1)


def ask(shell: pexpect.spawn[str], line: str, answer: str) -> None:
    shell.sendline(line)
    shell.expect_exact(answer)
    shell.expect_exact(PROMPT)


def test_keys_and_sizes(on: str, running: Enter) -> None:
    use_keys_and_sizes(running(on), "/dev/pts")


def use_keys_and_sizes(inside: Inside, terminal: str) -> None:
    """Do what people do in a shell; ``terminal`` is what the name of its terminal begins with."""
    shell = begin(inside)
    ask(shell, "stty size", "30 100")
    shell.setwinsize(41, 123)
    ask(shell, "sleep 0.5; stty size", "41 123")
    shell.sendline("""python3 -c '
import time
try: print("wait" + "ing", flush=True); time.sleep(97)
except KeyboardInterrupt: print("inter" + "rupted")'""")
    shell.expect_exact("waiting")
    shell.sendcontrol("c")
    shell.expect_exact("interrupted")
    shell.expect_exact(PROMPT)
    shell.sendline("sh -c 'echo asl''eep; exec sleep 97'")
    shell.expect_exact("asleep")
    shell.sendcontrol("z")
    shell.expect_exact("Stopped")
    ask(shell, "kill -9 %1; echo $DRAY_JOB_ID", inside.job)
    ask(shell, "tty", terminal)
    shell.sendline("exit 6")
    assert leave(shell) == 6
    shell = begin(inside)
    shell.sendcontrol("d")
    assert leave(shell) == 0


def test_one_comes_back_to_a_shell_that_was_left(on: str, running: Enter) -> None:
    inside = running(on)
    shell = begin(inside)
    ask(shell, "MINE=kept; echo set", "set")
    shell.send("\r~.")
    shell.expect_exact("left;")
    assert leave(shell) == 0
    other = begin(inside, "--new")
    ask(other, "echo [$MINE]", "[]")
    shell = inside.shell()
    shell.expect_exact("back in the shell that was left")
    ask(shell, "echo [$MINE]", "[kept]")
    for one in (shell, other):
        one.sendline("exit")
        assert leave(one) == 0


def test_the_terminal_is_put_back(running: Enter) -> None:
    """Also when dray is told to end, and when the job ends."""
    inside = running("local")
    for end in ("signal", "job"):
        parent, child = os.openpty()
        before = termios.tcgetattr(child)
        process = inside.start_on(child, "shell", inside.job)
        wait_for(lambda c=child, b=before: termios.tcgetattr(c) != b)
        if end == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            (inside.dray.jobs / inside.job / "outputs/end").touch()
        process.wait(60)
        assert termios.tcgetattr(child) == before
        os.close(parent)
        os.close(child)


@pytest.mark.parametrize("fault", ["cut", "frozen"])
def test_a_lost_link_is_made_again(
    dray: Dray, hpc: Hpc, link: Link, running: Enter, fault: str
) -> None:
    hpc.offer(dray)
    lose_the_link(running("hpc"), link, fault)


def lose_the_link(inside: Inside, link: Link, fault: str) -> None:
    shell = begin(inside)
    ask(shell, "MINE=kept; echo set", "set")
    if fault == "cut":
        link.cut()
    else:
        link.frozen.set()
    shell.expect_exact("connecting again")
    link.frozen.clear()
    link.cut()
    shell.sendline("")
    wait_for(lambda: says_again(shell, "echo [$MINE]", "[kept]"), 90)
    shell.sendline("exit 9")
    assert leave(shell) == 9


def says_again(shell: pexpect.spawn[str], line: str, answer: str) -> bool:
    """What is typed while there is no link is lost: a person types it again."""
    shell.sendline(line)
    return shell.expect_exact([answer, pexpect.TIMEOUT], timeout=3) == 0


def test_a_shell_goes_on_while_nobody_looks(
    dray: Dray, hpc: Hpc, link: Link, running: Enter
) -> None:
    """What it writes meanwhile is shown afterwards, once, and no byte of it is missing."""
    hpc.offer(dray)
    shell = begin(running("hpc"))
    shell.sendline("for i in $(seq 1 300); do echo line-$i.; sleep 0.02; done; echo o''ver")
    shell.expect_exact("line-20.")
    link.cut()
    shell.expect_exact("over")
    text = shell.before
    numbers = [part.split(".")[0] for part in text.split("line-")[1:]]
    assert numbers == [str(one) for one in range(21, 301)]
    shell.sendline("exit")
    assert leave(shell) == 0


def test_a_shell_needs_a_terminal(dray: Dray, running: Enter) -> None:
    ended = dray("shell", running("local").job, check=False)
    assert ended.returncode == 2
    assert "needs a terminal" in ended.stderr
