"""Trainers with the habits of real ones: what they leave when they are killed, crash or hang."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.conftest import Dray

AT_ONCE = ("--backoff", "0.1s", "--retries", "3")


def trainer(dray: Dray, code: str) -> tuple[str, ...]:
    dray.write("train.py", textwrap.dedent(code))
    return ("--", "python3", "train.py")


def outputs(dray: Dray, job: str) -> Path:
    return dray.job_dir(job) / "outputs"


def test_a_run_that_only_saves_what_it_was_given_comes_to_an_end(dray: Dray) -> None:
    """rsl_rl saves model_k again when it goes on from model_k, in a new folder."""
    command = trainer(
        dray,
        """
        import json, os, time
        last, attempt = os.environ.get("DRAY_CHECKPOINT"), os.environ["DRAY_ATTEMPT"]
        folder = os.environ["DRAY_OUTPUTS"] + "/run" + attempt
        os.makedirs(folder)
        name = os.path.basename(last) if last else "model_0.json"
        json.dump({}, open(f"{folder}/{name}.tmp", "w"))
        os.replace(f"{folder}/{name}.tmp", f"{folder}/{name}")
        time.sleep(60)
        """,
    )
    job = dray.run("--checkpoint", "*/model_*.json", "--time", "1s", "--grace", "0.2s", *command)
    shown = dray.wait(job)
    assert shown["state"] == "failed"
    assert shown["reason"].endswith("twice without a new checkpoint")
    assert len(shown["attempts"]) == 3  # the first one has saved model_0


OVERWRITES = """
    import json, os, signal, sys, time
    path, attempt = os.environ["DRAY_OUTPUTS"] + "/last.json", os.environ["DRAY_ATTEMPT"]
    step = json.load(open(path))["step"] if os.path.exists(path) else 0
    print("begins at", step, flush=True)
    def save(step):
        json.dump({"step": step}, open(path, "w"))
    if attempt == "1":
        save(1)
        copy = path.replace("last.", "last.kept.")
        until = time.time() + 20
        while not os.path.exists(copy) and "copied" in sys.argv and time.time() < until:
            time.sleep(0.05)
        file = open(path, "w")
        file.write('{"step":')
        file.flush()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    save(step + 1)
"""
LAST = ("--checkpoint", "last.json", "--time", "3m")  # looked at every three seconds


def test_a_checkpoint_that_is_overwritten_survives_a_kill(dray: Dray) -> None:
    job = dray.run(*LAST, *trainer(dray, OVERWRITES), "copied")
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    assert "begins at 1\n" in dray.log(job)
    remark = "last.json was not whole: the copy of the one before took its place"
    assert remark in "\n".join(one for each in shown["attempts"] for one in each["remarks"])
    assert remark in dray("show", job).stdout
    assert (outputs(dray, job) / "last.json").read_text() == '{"step": 2}'


def test_a_run_never_begins_again_from_nothing_by_itself(dray: Dray) -> None:
    code = """
        import os, sys
        folder, attempt = os.environ["DRAY_OUTPUTS"], os.environ["DRAY_ATTEMPT"]
        print("begins at", sys.argv[1:], flush=True)
        if attempt == "1":
            open(folder + "/ckpt_1.json", "w").write("{}")
            sys.exit(3)
        open(folder + "/begun", "a").write(attempt)
    """
    flags = ("--checkpoint", "ckpt_*.json", "--resume-arg", "{name}")
    job = dray.run(*flags, *trainer(dray, code))
    assert dray.wait(job)["state"] == "failed"
    (outputs(dray, job) / "ckpt_1.json").write_text('{"cut')
    dray("resume", job)
    shown = dray.wait(job)
    assert shown["state"] == "failed"
    assert shown["reason"].startswith("it had come to ckpt_1.json")
    assert "dray resume --from scratch" in shown["reason"]
    assert not (outputs(dray, job) / "begun").exists()
    dray("resume", job, "--from", "scratch")
    assert dray.wait(job)["state"] == "done"
    assert (outputs(dray, job) / "begun").read_text() == "3"
    assert (outputs(dray, job) / ".set-aside-003/ckpt_1.json").exists()
    assert "1 checkpoint was set aside in .set-aside-003" in dray.log(job)
    log = dray.job_dir(job) / "attempts/003/log"
    assert log.stat().st_mode & 0o077 == 0


def test_a_checkpoint_that_cannot_be_loaded_is_passed_over(dray: Dray) -> None:
    """A folder that was cut between two of its files, before any other could tell what is usual."""
    code = """
        import os, sys
        folder, attempt = os.environ["DRAY_OUTPUTS"], os.environ["DRAY_ATTEMPT"]
        if attempt == "1":
            for name, time in (("step_1", 1000), ("step_2", 2000)):
                os.mkdir(f"{folder}/{name}")
                path = f"{folder}/{name}/model_{time}.json"
                open(path, "w").write("{}")
                os.utime(path, (time, time))
            sys.exit(1)
        last = os.path.basename(os.environ["DRAY_CHECKPOINT"])
        print("attempt", attempt, "from", last, flush=True)
        sys.exit(1 if last == "step_2" else 0)
    """
    job = dray.run("--checkpoint", "step_*", *AT_ONCE, *trainer(dray, code))
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    origins = [one["from_checkpoint"] for one in shown["attempts"]]
    assert origins == [None, "step_2", "step_1"]
    assert shown["attempts"][2]["remarks"] == ["passed over step_2: attempt 2 crashed from it"]


def test_a_trainer_that_has_done_all_may_still_write_its_model(dray: Dray) -> None:
    """As stable-baselines3 does after its last iteration, for longer than the grace."""
    code = """
        import json, os, time
        folder = os.environ["DRAY_OUTPUTS"]
        json.dump({}, open(folder + "/model_10.json", "w"))
        for _ in range(8):
            time.sleep(0.4)
            print("evaluating", flush=True)
        open(folder + "/final.zip", "w").write("whole")
    """
    dray.write(
        "dray.toml",
        """
        [job.resume]
        checkpoint = "model_*.json"
        number = 'model_(\\d+)'
        total = "--iterations"
        """,
    )
    command = trainer(dray, code)
    job = dray.run("--grace", "0.2s", "--time", "1m", *command, "--iterations", "10")
    shown = dray.wait(job)
    assert (shown["state"], shown["exit_code"]) == ("done", 0)
    assert (outputs(dray, job) / "final.zip").read_text() == "whole"
