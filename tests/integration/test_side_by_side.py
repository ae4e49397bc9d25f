"""Several clusters that are asked at once, with an ssh that hangs, refuses, or runs it here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dray.job.model import JobSpec, JobState, JobView
from dray.store import Store
from tests.conftest import Dray, wait_for

# ``dead`` hangs until ``alive`` was asked, and ``alive`` answers once ``dead`` hangs; ``asks``
# lets in only somebody who can be asked for a password; ``hangs`` does so for ever.
SSH = """#!/bin/sh
told() { until [ -e "$FAKE/$1" ]; do sleep 0.05; done; }
case "$*" in
*BatchMode=yes*"-- asks "*) echo 'Permission denied (password).' >&2; exit 255;;
*"-- asks "*) [ -e "$FAKE/typing" ] && touch "$FAKE/two-at-once"; touch "$FAKE/typing"; sleep 0.2
  rm -f "$FAKE/typing";;
*"-- dead "*) touch "$FAKE/dead"; told alive
  echo 'ssh: connect to host dead port 22: Connection timed out' >&2; exit 255;;
*"-- hangs "*) echo $$ >"$FAKE/hangs.new"; mv "$FAKE/hangs.new" "$FAKE/hangs"; exec sleep 100;;
*"-- alive "*) touch "$FAKE/alive"; [ -e "$FAKE/no-wait" ] || told dead;;
esac
while [ "$1" != -- ]; do shift; done
exec /bin/sh -c "$3"
"""


@pytest.fixture
def wan(dray: Dray) -> Dray:
    """A laptop whose ssh is the one above."""
    (dray.home / "bin").mkdir()
    for name, script in {"ssh": SSH, "squeue": "#!/bin/sh\n"}.items():
        (dray.home / "bin" / name).write_text(script)
        (dray.home / "bin" / name).chmod(0o755)
    (dray.home / "run").mkdir(mode=0o700)
    dray.env["PATH"] = f"{dray.home}/bin:{dray.env['PATH']}"
    dray.env["FAKE"] = str(dray.home)
    dray.env["XDG_RUNTIME_DIR"] = str(dray.home / "run")
    return dray


def offer(dray: Dray, *hosts: str) -> None:
    """Make clusters of these hosts known, each with a queued job that was submitted from here."""
    home = Path(dray.env["DRAY_HOME"])
    home.mkdir(mode=0o700, exist_ok=True)
    store = Store(home / "store.db")
    tables = ""
    for name in hosts:
        host = name.rstrip("2")
        root = dray.home / f"root-{name}"
        tables += f'[clusters.{name}]\nkind = "slurm"\nhost = "{host}"\nroot = "{root}"\n'
        spec = JobSpec(id=f"job-{name}", name="job", command=("true",), created=time.time())
        assert store.add_intent(spec, name, f"{host}:{root}/jobs/")
        store.save_own(JobView(spec=spec, cluster=name, state=JobState.QUEUED))
    store.close()
    (home / "config.toml").write_text(tables)


def states(dray: Dray) -> tuple[dict[str, str], str]:
    ended = dray("ps", "--json")
    return {row["id"]: row["state"] for row in json.loads(ended.stdout)}, ended.stderr


def test_one_that_hangs_does_not_hold_up_the_others(wan: Dray) -> None:
    offer(wan, "dead", "alive")
    found, said = states(wan)
    assert said.count("as last seen") == 1, said
    assert found == {"job-dead": "queued", "job-alive": "lost"}
    assert "Connection timed out; jobs on dead are shown as last seen" in said
    assert "alive" not in said


def test_those_that_ask_for_a_password_ask_one_after_another(wan: Dray) -> None:
    (wan.home / "no-wait").touch()
    offer(wan, "asks", "alive", "asks2")
    found, said = states(wan)
    assert set(found.values()) == {"lost"}
    assert said == ""
    assert not (wan.home / "two-at-once").exists()


def test_ctrl_c_ends_all(wan: Dray) -> None:
    (wan.home / "no-wait").touch()
    offer(wan, "hangs", "alive")
    words = [sys.executable, "-m", "dray", "ps"]
    with subprocess.Popen(
        words, cwd=wan.project, env=wan.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as asking:
        ssh = int(wait_for(lambda: (wan.home / "hangs").exists()) and read(wan.home / "hangs"))
        asking.send_signal(signal.SIGINT)
        said = asking.communicate(timeout=20)[1]
    assert asking.returncode == 130
    assert b"Traceback" not in said
    wait_for(lambda: not os.path.exists(f"/proc/{ssh}"), 10)


def read(path: Path) -> str:
    return path.read_text().strip()
