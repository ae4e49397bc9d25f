"""What a cluster, a job or a file says reaches the terminal as text: nothing in it acts on it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
import unicodedata
from contextlib import closing
from pathlib import Path

import pexpect
import pytest

from dray.node.formats.wire import MARK
from tests.conftest import Dray
from tests.integration.test_cli import UNTIL_GO, complete, python, raw_log

pytestmark = pytest.mark.hostile

# The title, the screen, the cursor, the clipboard, 8-bit controls, the direction of writing.
ATTACK = "\x1b]0;title\x07\x1b[2J\x1b[1;1H\x1b]52;c;ZXZpbA==\x1b\\\x9b2J\u202e\x7f\x1b[8m"
SPELLED = r"\x1b]0;title\x07\x1b[2J\x1b[1;1H\x1b]52;c;ZXZpbA==\x1b" + "\\" + r"\x9b2J\u202e\x7f"
IN_TOML = r"\u001b]0;title\u0007\u001b[2J"  # as a key of a file is shown
FORGED = "forged-1234  done"
EVIL = f"evil{ATTACK}\n{FORGED}"
OWN_COLORS = re.compile(r"\x1b\[(?:0|2|3[1-6])m")
LOG_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def spawn(dray: Dray, *arguments: str, columns: int = 80, **env: str) -> pexpect.spawn[bytes]:
    return pexpect.spawn(
        sys.executable,
        ["-m", "dray", *arguments],
        cwd=str(dray.project),
        env={**dray.env, "TERM": "xterm", **env},
        dimensions=(24, columns),
        timeout=60,
    )


def on_terminal(dray: Dray, *arguments: str, columns: int = 80, code: int = 0, **env: str) -> str:
    """What arrives at a terminal, where stdout and stderr are one."""
    talk = spawn(dray, *arguments, columns=columns, **env)
    said = talk.read().decode()
    talk.close()
    assert talk.exitstatus == code, said
    return said.replace("\r\n", "\n")


def harmless(said: str, colors: re.Pattern[str] = OWN_COLORS) -> str:
    """The same without dray's own colours. Nothing else acts, and no line is forged."""
    text = colors.sub("", said)
    acting = {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs")}
    assert acting <= {"\n", "\t"}
    assert not [line for line in text.split("\n") if line.startswith(FORGED)]
    return text


def spelled(said: str, attack: str = SPELLED) -> str:
    """The same, where the attack must be seen."""
    text = harmless(said)
    assert attack in text
    return text


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.fixture
def ended(dray: Dray) -> str:
    """A job that has failed."""
    job = dray.run("--no-snapshot", "--", "false")
    assert dray.wait(job)["state"] == "failed"
    return job


# -- a job --------------------------------------------------------------------------------------


def test_a_reason(dray: Dray, ended: str) -> None:
    folder = dray.job_dir(ended)
    edit(folder / "end.json", reason=EVIL)
    edit(folder / "attempts/001/outcome.json", reason=f"attempt {EVIL}")
    said = spelled(on_terminal(dray, "show", ended, columns=400))  # where nothing is wrapped
    assert f"state      failed: evil{SPELLED}" in said
    assert f"attempt evil{SPELLED}" in said
    spelled(on_terminal(dray, "wait", ended, code=1))
    listed = harmless(on_terminal(dray, "ps")).splitlines()
    assert len(listed) == 3  # the reason has a line of its own
    assert listed[2].startswith("    evil")
    assert max(map(len, listed)) <= 80
    assert len(spelled(on_terminal(dray, "ps", columns=400)).splitlines()) == 2
    for piped in (dray("show", ended).stdout, dray("ps").stdout):
        assert spelled(piped) == piped  # a pipe may well end on a terminal
    assert dray.show(ended)["reason"] == EVIL
    assert json.loads(dray("ps", "--json").stdout)[0]["reason"] == EVIL
    assert json.loads(harmless(on_terminal(dray, "show", "--json", ended)))["reason"] == EVIL


def test_a_host_a_checkpoint_and_what_is_left(dray: Dray, ended: str) -> None:
    attempt = dray.job_dir(ended) / "attempts/001"
    edit(attempt / "attempt.json", host=EVIL, from_checkpoint=f"old {EVIL}")
    edit(attempt / "outcome.json", host=EVIL, checkpoint=f"new {EVIL}", left=[f"left {EVIL}"])
    said = spelled(on_terminal(dray, "show", ended, columns=1000))
    for what in ("from old", "reached new", "left"):
        assert f"{what} evil{SPELLED}" in said


def test_checkpoints_with_such_names(dray: Dray) -> None:
    code = f"import os; open(os.environ['DRAY_OUTPUTS'] + '/' + {EVIL!r}, 'w').write('x'); 1/0"
    words = ["--checkpoint", "evil*", "--retries", "1", "--backoff", "0.01s", "--no-snapshot"]
    job = dray.run(*words, *python(code))
    assert len(dray.wait(job)["attempts"]) == 2
    assert f"reached evil{SPELLED}" in spelled(on_terminal(dray, "show", job, columns=1000))
    assert f"attempt 2, from evil{SPELLED}" in spelled(on_terminal(dray, "logs", job, columns=1000))


def test_the_name_of_a_metric(dray: Dray) -> None:
    code = f"import dray.training as t\nfor n in range(3): t.report(n, **{{{EVIL!r}: n}})"
    job = dray.run("--no-snapshot", *python(code))
    assert dray.wait(job)["attempts"][-1]["metric"]["name"] == EVIL
    said = spelled(on_terminal(dray, "show", job, columns=1000))
    assert f"metric     evil{SPELLED}" in said
    assert f"\nevil{SPELLED}" in said  # above the curve
    assert len(harmless(on_terminal(dray, "ps")).splitlines()) == 2
    spelled(on_terminal(dray, "ps", columns=1000))


def test_a_command_and_a_folder(dray: Dray) -> None:
    words = [
        "--no-snapshot",
        *python("import os; open(os.environ['DRAY_OUTPUTS'] + '/x', 'w').close()"),
        EVIL,
    ]
    spelled(on_terminal(dray, "plan", *words, columns=1000))
    job = dray.run(*words)
    dray.wait(job)
    spelled(on_terminal(dray, "show", job, columns=1000))
    spelled(on_terminal(dray, "pull", job, EVIL))


def test_names_that_are_no_text(dray: Dray) -> None:
    """As they are in a pipe, spelled on a terminal, whatever the language is."""
    odd = os.fsdecode(b"caf\xe9\x9b2J")
    job = dray.run("--no-snapshot", "--output", odd, "--", "true")
    dray.wait(job)
    assert f"outputs    {odd}\n" in dray("show", job).stdout
    for language in ("C", "C.UTF-8"):
        said = harmless(on_terminal(dray, "show", job, LANG=language))
        assert r"outputs    caf\xe9\x9b2J" in said


# -- its output ---------------------------------------------------------------------------------


@pytest.fixture
def output(dray: Dray) -> bytes:
    written = f"plain \x1b[1;32mgreen\x1b[0m\t10%\r20% ü\n{EVIL}\xa0\n\x1b[31mleft on".encode()
    (dray.project / "output").write_bytes(written)
    return written


def test_logs_on_a_terminal(dray: Dray, output: bytes) -> None:
    job = dray.run("--", "cat", "output")
    dray.wait(job)
    said = on_terminal(dray, "logs", job)
    assert said.startswith(f"plain \x1b[1;32mgreen\x1b[0m\t10%\r20% ü\nevil{SPELLED}\x1b[8m\n")
    assert said.endswith("\x1b[31mleft on\x1b[0m")
    assert on_terminal(dray, "logs", job, NO_COLOR="1") == said
    assert on_terminal(dray, "logs", "--raw", job) == output.decode()
    assert raw_log(dray, job) == output


def test_following_on_a_terminal(dray: Dray, output: bytes) -> None:
    said = on_terminal(dray, "run", "--follow", "--", "cat", "output")
    assert f"evil{SPELLED}\x1b[8m\n" in said
    assert re.search(r"\x1b\[31mleft on\x1b\[0mcat-\w+ is done\n$", said)
    words = [sys.executable, "-m", "dray", "run", "--follow", "--", "cat", "output"]
    piped = subprocess.run(words, cwd=dray.project, env=dray.env, capture_output=True, check=True)
    assert piped.stderr.startswith(output)


def test_a_colour_does_not_reach_what_dray_says_of_attempts(dray: Dray) -> None:
    code = "print('\\x1b[8mhidden', flush=True); 1/0"
    job = dray.run("--retries", "1", "--backoff", "0.01s", "--no-snapshot", *python(code))
    dray.wait(job)
    said = on_terminal(dray, "logs", job)
    assert re.search(r"\x1b\[0m── attempt 2\n", said)
    assert said.endswith("\x1b[0m")


def test_ctrl_c_leaves_no_colour_behind(dray: Dray) -> None:
    go = dray.home / "go"
    job = dray.run(
        "--no-snapshot", "--", "sh", "-c", f"printf '\033[31mup'; {UNTIL_GO.format(go=go)}"
    )
    talk = spawn(dray, "logs", "-f", job)
    talk.expect_exact(b"\x1b[31mup")
    talk.sendintr()
    said = talk.read()
    go.touch()
    assert said.endswith(b"\x1b[0m\r\ndray: interrupted\r\n")
    assert dray.wait(job)["state"] == "done"


def test_a_progress_bar_stays_on_its_line(dray: Dray) -> None:
    code = f"""
import time
from dray.cli.output import Bar
bar = Bar({EVIL!r})
for done in range(0, 101, 50):
    bar(done, 100)
    time.sleep(0.4)
"""
    talk: pexpect.spawn[bytes] = pexpect.spawn(
        sys.executable, ["-c", code], env=dray.env, dimensions=(24, 80)
    )
    said = talk.read().decode()
    assert said.startswith("\r███")
    assert said.endswith("\x1b[K\r\n")
    assert said.count("\n") == 1
    for drawn in said.removesuffix("\r\n").split("\r")[1:]:
        assert len(harmless(drawn.removesuffix("\x1b[K"))) == 79


# -- a cluster ----------------------------------------------------------------------------------


def offer(dray: Dray, tmp_path: Path, program: str, script: str, **settings: str) -> None:
    """A Slurm cluster of which this program is the attacker's."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / program).write_text(f"#!{sys.executable}\n{script}")
    (programs / program).chmod(0o755)
    dray.use(programs)
    values = {"kind": "slurm", "root": str(tmp_path / "root"), **settings}
    tables = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    (dray.home / "dray").mkdir(mode=0o700, exist_ok=True)
    (dray.home / "dray/config.toml").write_text(f"[clusters.hpc]\n{tables}")
    dray.env["XDG_RUNTIME_DIR"] = str(tmp_path)


def test_a_login_node_that_speaks_only_escapes(dray: Dray, tmp_path: Path) -> None:
    script = f"import sys; print({EVIL!r}, file=sys.stderr); print({EVIL!r}); sys.exit(255)"
    offer(dray, tmp_path, "ssh", script, host="hpc")
    said = spelled(on_terminal(dray, "run", "--on", "hpc", "--no-snapshot", "--", "true", code=7))
    assert [line for line in said.splitlines() if line.startswith("dray: no connection to hpc:")]
    said = spelled(on_terminal(dray, "doctor", "hpc", code=7))
    assert [line for line in said.splitlines() if line.startswith("BAD  login")]


def test_an_error_from_a_cluster(dray: Dray, tmp_path: Path) -> None:
    record = json.dumps({"error": EVIL, "family": "Refused"}).encode()
    answer = MARK + b"%d 0\n" % len(record) + record
    script = f"import sys; sys.stdin.readline(); sys.stdout.buffer.write({answer!r})"
    offer(dray, tmp_path, "ssh", script, host="hpc")
    for debug in ([], ["--debug"]):
        said = spelled(on_terminal(dray, *debug, "cluster", "show", "hpc", columns=400, code=4))
        assert f"dray: hpc: evil{SPELLED}" in said
        assert ("Traceback" in said) is bool(debug)


def test_what_a_scheduler_says_of_itself(dray: Dray, tmp_path: Path) -> None:
    evil = EVIL.replace("\n", " ")
    offer(dray, tmp_path, "sinfo", f"print({evil!r} + '|up|1:00|1|1|1|')")
    said = spelled(on_terminal(dray, "doctor", "hpc"))
    for what in ("slurm     ", "partition "):
        assert [line for line in said.splitlines() if line.startswith(f"ok   {what} evil{SPELLED}")]


# -- files --------------------------------------------------------------------------------------


def toml(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


@pytest.mark.parametrize(
    ("content", "words", "code", "shown"),
    [
        (f"[job]\n{toml(EVIL)} = 1\n", ["ps"], 0, IN_TOML),
        (f"[job]\n{toml(EVIL)} = 1\n", ["plan", "--", "true"], 2, IN_TOML),
        (f"[job]\nrecipe = {toml(EVIL)}\n", ["plan", "--", "true"], 3, SPELLED),
        (f"[job]\non = {toml(EVIL)}\n", ["plan", "--", "true"], 3, SPELLED),
        (f"[clusters.{toml(EVIL)}]\nkind = 'local'\n", ["cluster", "list"], 0, IN_TOML),
    ],
)
def test_a_hostile_dray_toml(
    dray: Dray, content: str, words: list[str], code: int, shown: str
) -> None:
    dray.write("dray.toml", content)
    ended = dray(*words, check=False)
    assert ended.returncode == code, ended.stderr
    harmless(ended.stdout + ended.stderr)
    spelled(on_terminal(dray, *words, columns=1000, code=code), shown)


def test_a_hostile_root(dray: Dray) -> None:
    dray.configure(f"[clusters.x]\nkind = 'local'\nroot = {toml('/' + EVIL)}\n")
    assert SPELLED in spelled(on_terminal(dray, "cluster", "show", "x", columns=400))


def test_a_file_to_import(dray: Dray) -> None:
    qos = "a\x9b2J\u202e"
    text = f"HOST=hpc\nQOS='{qos}'\nMODULES='{ATTACK}'\nPARTITION='{ATTACK}'\nGPUS='{ATTACK}'\n"
    path = dray.write("cluster_config", text)
    harmless(on_terminal(dray, "cluster", "import", str(path)))
    piped = harmless(dray("cluster", "import", str(path)).stdout)
    assert tomllib.loads(piped)["clusters"]["hpc"]["qos"] == qos
    spelled(on_terminal(dray, "cluster", "import", "--name", EVIL, str(path), code=2))


def test_a_folder_to_look_at(dray: Dray) -> None:
    project = dray.project / EVIL
    project.mkdir()
    dray.project = project
    spelled(on_terminal(dray, "init", columns=1000))


def test_arguments_come_back_spelled(dray: Dray) -> None:
    for words in (["show", EVIL], ["--debug", "show", EVIL], ["recipe", "show", EVIL], [EVIL]):
        ended = dray(*words, check=False)
        assert ended.returncode in (2, 3)
        spelled(ended.stderr)


def test_only_plain_words_are_offered_to_a_shell(dray: Dray, ended: str) -> None:
    """Ids come from clusters; a shell puts what is offered into the user's command."""
    evil = ["$(touch x)", "`touch x`", "a;b", "a b", "a\nb", "-x", "*", "a,b", f"x{ATTACK}"]
    with closing(sqlite3.connect(dray.home / "dray/store.db")) as store, store:
        names = [column[1] for column in store.execute("pragma table_info(jobs)")]
        rest = ", ".join(names[1:])
        for job_id in evil:
            store.execute(
                f"insert into jobs select ?, {rest} from jobs where id = ?", (job_id, ended)
            )
    assert complete(dray, "dray show ") == {ended}


# -- widths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [EVIL * 3, "日本語" * 40, "x" * 200])
def test_a_cell_is_cut_by_what_it_shows(dray: Dray, words: str) -> None:
    job = dray.run("--no-snapshot", "--", "false", words)
    dray.wait(job)
    lines = harmless(on_terminal(dray, "ps", NO_COLOR="1")).splitlines()
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in lines[1])
    assert len(lines) == 2
    assert 79 <= len(lines[1]) + wide <= 80
    assert lines[1].endswith("…")


def test_an_error_is_wrapped_to_the_terminal(dray: Dray) -> None:
    """What goes on is indented: it cannot pass for a line that dray begins."""
    words = ("run", "--secret", "NO_SUCH_SECRET", "--", "true")
    lines = on_terminal(dray, *words, code=2).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.startswith("dray: ") for line in lines] == [True] + [False] * (len(lines) - 1)
    assert all(line.startswith(" " * 6) for line in lines[1:])
    whole = dray(*words, check=False).stderr.splitlines()
    assert len(whole) == 2 < len(lines)
    assert " ".join(line.strip() for line in lines) == " ".join(line.strip() for line in whole)
