"""Jobs that come after others, and read what those have written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import Dray, Hpc, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER, python

WRITE = "import os; open(os.environ['DRAY_OUTPUTS'] + '/model.txt', 'w').write('trained')"
READ = "import os; print(open(os.environ['DRAY_INPUT_POLICY'] + '/model.txt').read())"
SLEEP = "import time; time.sleep(600)"


def trained(dray: Dray, *more: str) -> str:
    job = dray.run(*more, *python(WRITE))
    assert dray.wait(job)["state"] == "done"
    return job


def refused(dray: Dray, *arguments: str) -> str:
    ended = dray("run", *arguments, check=False)
    assert ended.returncode in (2, 3, 4), ended.stderr
    return str(ended.stderr)


# -- who is waited for --------------------------------------------------------------------------


def test_what_cannot_be_waited_for_is_refused_with_what_to_do(dray: Dray) -> None:
    failed = dray.run(*python("raise SystemExit(3)"))
    dray.wait(failed)
    told = refused(dray, "--after", failed, *python("pass"))
    assert f"{failed}, which failed, would have to be done first" in told
    assert f"--after {failed}:any" in told
    assert "there is no job 'nosuch'" in refused(dray, "--after", "nosuch", *python("pass"))
    assert "ok, if it has to be done" in refused(dray, "--after", f"{failed}:all", *python("pass"))
    for wrong in ("policy", f"2x={failed}", f"x={failed}:../other", f"x={failed}:/etc/passwd"):
        assert "--input" in refused(dray, "--input", wrong, *python("pass"))
    twice = ("--input", f"x={failed}", "--input", f"X={failed}")
    assert "given twice" in refused(dray, *twice, *python("pass"))


def test_a_job_that_is_waited_for_is_not_removed(dray: Dray) -> None:
    first = trained(dray)
    blocker = dray.run(*python(SLEEP))
    reader = dray.run("--input", f"policy={first}", "--after", blocker, *python(READ))
    ended = dray("rm", first, check=False)
    assert ended.returncode == 4
    assert f"{first} is still needed by {reader}" in ended.stderr
    dray("stop", reader, blocker, check=False)
    dray("rm", reader, first)


def test_a_job_says_what_it_waits_for(dray: Dray) -> None:
    first = dray.run(*python(SLEEP))
    second = dray.run("--after", first, *python("print('second')"))
    assert wait_for(lambda: dray.show(second)["reason"]) == f"comes after {first}"
    assert dray.show(second)["after"] == {first: "ok"}
    assert f"after      {first}" in dray("show", second).stdout
    dray("stop", "--now", first)
    assert dray.wait(second)["state"] == "stopped"


def test_a_job_that_was_never_started_is_resumed_after_the_other(dray: Dray) -> None:
    """The other one is resumed first; the new one waits for it again."""
    dray.write("train.py", TRAINER)
    crashing = ("--", "python3", "train.py", "3", "0.1", "--every", "--crash-at=2")
    first = dray.run(*RESUMABLE, *crashing)
    second = dray.run("--after", first, *python("print('second')"))
    assert dray.wait(second)["state"] == "stopped"
    dray("resume", first)
    dray("resume", second)
    assert dray.wait(second)["state"] == "done"
    assert dray.show(first)["state"] == "done"


def test_a_job_that_could_never_start_is_not_resumed(dray: Dray) -> None:
    first = dray.run(*python("raise SystemExit(3)"))
    second = dray.run("--after", first, *python("pass"))
    assert dray.wait(second)["state"] == "stopped"
    told = dray("resume", second, check=False)
    assert told.returncode == 4
    assert f"{second} would never start: it comes after {first}, which failed" in told.stderr
    assert f"dray resume {first}, or run it anew" in told.stderr
    dray("rm", first)
    told = dray("resume", second, check=False)
    assert told.returncode == 4
    assert f"it comes after {first}, which has been removed" in told.stderr
    assert f"dray run --like {second}" in told.stderr
    assert dray.show(second)["state"] == "stopped"
    anew = dray.run("--like", second)
    assert dray.wait(anew)["state"] == "done"


def test_after_a_job_whose_keeper_was_killed(dray: Dray) -> None:
    first = dray.run(*python(SLEEP))
    second = dray.run("--after", first, *python("print('second')"))
    whatever = dray.run("--after", f"{first}:any", *python("print('whatever')"))
    wait_for(lambda: dray.show(first)["state"] == "running")
    keeper = int((dray.job_dir(first) / "alive").read_text())
    supervisor = int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])
    for pid in (keeper, supervisor):
        os.kill(pid, signal.SIGSTOP)
    for pid in (supervisor, keeper):
        os.kill(pid, signal.SIGKILL)
    assert dray.wait(second)["reason"].endswith(f"it comes after {first}, which was lost")
    assert dray.wait(whatever)["state"] == "done"


def test_a_job_may_come_after_all_of_an_array(dray: Dray) -> None:
    script = (
        "import dray\n"
        "jobs = dray.run_many([['python3', '-c', f'print({n})'] for n in range(3)])\n"
        "print(jobs.ids[0].rpartition('.')[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=dray.project,
        env=dray.env,
        capture_output=True,
        text=True,
        check=True,
    )
    array = done.stdout.strip()
    last = dray.run("--after", array, *python("print('last')"))
    assert dray.show(last)["after"] == {f"{array}.0-2": "ok"}
    assert dray.wait(last)["state"] == "done"
    assert {dray.show(f"{array}.{n}")["state"] for n in range(3)} == {"done"}


# -- what is read -------------------------------------------------------------------------------


def test_an_input_that_is_not_there_fails_the_job_and_is_told(dray: Dray) -> None:
    first = dray.run(*python("import time; time.sleep(3)"))
    job = dray.run("--input", f"policy={first}:nosuch.pt", "--retries", "3", *python(READ))
    shown = dray.wait(job)
    assert (shown["state"], len(shown["attempts"])) == ("failed", 1)
    assert f"its input policy, {first}:nosuch.pt, is not there" in shown["reason"]


def test_an_input_that_a_job_here_did_not_write_is_refused_at_once(dray: Dray) -> None:
    first = trained(dray)
    told = refused(dray, "--input", f"policy={first}:nosuch.pt", *python("pass"))
    assert f"{first}, which is done, has no output nosuch.pt" in told
    job = dray.run("--input", f"policy={first}:model.txt", *python("pass"))
    assert dray.wait(job)["state"] == "done"


def test_a_link_does_not_lead_an_input_elsewhere(dray: Dray, tmp_path: Path) -> None:
    first = trained(dray)
    (tmp_path / "secret").write_text("secret")
    (dray.job_dir(first) / "outputs/out").symlink_to(tmp_path / "secret")
    job = dray.run("--input", f"policy={first}:out", *python("pass"))
    assert "leads out of the job's outputs" in dray.wait(job)["reason"]


def test_an_input_comes_from_another_cluster(dray: Dray, hpc: Hpc) -> None:
    hpc.offer(dray)
    first = trained(dray)
    there = dray.run("--on", "hpc", "--input", f"policy={first}", *python(READ))
    assert dray.wait(there)["state"] == "done"
    assert dray.log(there) == "trained\n"
    one = "import os; print(open(os.environ['DRAY_INPUT_POLICY']).read())"
    here = dray.run("--input", f"policy={first}:model.txt", *python(one))
    assert dray.wait(here)["state"] == "done"
    assert dray.log(here) == "trained\n"
    told = refused(dray, "--on", "hpc", "--after", first, *python("pass"))
    assert f"{first} runs on local: a job on hpc cannot wait for it" in told
    running = dray.run(*python(SLEEP))
    told = refused(dray, "--on", "hpc", "--input", f"policy={running}", *python("pass"))
    assert "has not ended" in told
    dray("stop", "--now", running)


# -- Slurm --------------------------------------------------------------------------------------


def test_slurm_holds_the_job_back_itself(dray: Dray, hpc: Hpc) -> None:
    hpc.offer(dray)
    first = dray.run("--on", "hpc", *python(SLEEP))
    second = dray.run("--on", "hpc", "--after", first, *python("print('second')"))
    numbers = [
        json.loads((dray.job_dir(job) / "scheduler.json").read_text())["id"]
        for job in (first, second)
    ]
    shown = hpc.slurm.call("scontrol", "-o", "show", "job", numbers[1])
    assert f"Dependency=afterany:{numbers[0]}" in shown
    dray("stop", "--now", first)
    assert dray.wait(second)["state"] == "stopped"


def test_a_chain_of_batch_jobs_is_one_job(dray: Dray, hpc: Hpc) -> None:
    """The batch job that Slurm waits for ends; the job goes on as another one."""
    hpc.offer(dray, resume_with="chain")
    dray.write("train.py", TRAINER)
    crashing = ("--", "python3", "train.py", "3", "1", "--every", "--crash-at=2")
    first = dray.run("--on", "hpc", "--retries", "1", *RESUMABLE, *crashing)
    second = dray.run("--on", "hpc", "--after", first, *python("print('second')"))
    shown = dray.wait(second)
    assert (shown["state"], shown["reason"]) == ("done", "")
    assert len(dray.show(first)["attempts"]) == 2
    assert dray.show(first)["state"] == "done"
    assert len(shown["attempts"]) == 1


def test_a_batch_job_that_slurm_has_forgotten_holds_nothing_up(dray: Dray, hpc: Hpc) -> None:
    """The job goes on under another number, which nobody could write down."""
    hpc.offer(dray)
    first = dray.run("--on", "hpc", *python("import time; time.sleep(8)"))
    (dray.job_dir(first) / "scheduler.json").write_text(json.dumps({"id": "999999"}))
    second = dray.run("--on", "hpc", "--after", first, *python("print('second')"))
    assert dray.wait(second)["state"] == "done"
    assert dray.show(first)["state"] == "done"
    begun, ended = dray.show(second)["attempts"][0]["started"], dray.show(first)["ended"]
    assert begun >= ended - 1
