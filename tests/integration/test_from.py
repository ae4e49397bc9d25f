"""A new job that takes something over from another one: its checkpoint, or its description."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.conftest import Dray

TRAINER = textwrap.dedent(
    """
    import json, os, sys
    folder, given = os.environ["DRAY_OUTPUTS"], os.environ.get("DRAY_CHECKPOINT")
    where = given and os.path.join(given, "state.json") if os.path.isdir(given or "") else given
    step = json.load(open(where))["step"] if where else 0
    print("from", step, os.environ.get("DRAY_CHECKPOINT_GIVEN", "0"), flush=True)
    partner = os.environ.get("DRAY_CHECKPOINT_PARTNER")
    print("with", open(partner).read() if partner else None)
    for _ in range(int(sys.argv[1])):
        step += 1
        for name in (f"ckpt_{step}.json", f"stats_{step}.json"):
            json.dump({"step": step}, open(f"{folder}/{name}", "w"))
    """
)
RULES = ("--checkpoint", "ckpt_*.json", "--checkpoint-number", r"ckpt_(\d+)")
PARTNER = ("--checkpoint-partner", "stats_{number}.json")
COMMAND = ("--", "python3", "train.py")


def trained(dray: Dray, *more: str) -> str:
    dray.write("train.py", TRAINER)
    job = dray.run(*RULES, *more, *COMMAND, "3")
    assert dray.wait(job)["state"] == "done"
    return job


def said(dray: Dray, *arguments: str) -> str:
    job = dray.run(*arguments)
    shown = dray.wait(job)
    assert shown["state"] == "done", shown["reason"]
    return dray.log(job)


def test_a_partner_comes_along(dray: Dray, tmp_path: Path) -> None:
    first = trained(dray, *PARTNER)
    log = said(dray, "--from", first, *RULES, *PARTNER, *COMMAND, "1")
    assert log == 'from 3 1\nwith {"step": 3}\n'
    dray("pull", first, str(tmp_path / "here"))
    path = str(tmp_path / "here/ckpt_2.json")
    log = said(dray, "--from", path, *RULES, *PARTNER, *COMMAND, "1")
    assert log == 'from 2 1\nwith {"step": 2}\n'


def test_what_is_not_whole_is_passed_over_and_told(dray: Dray) -> None:
    first = trained(dray)
    outputs = dray.job_dir(first) / "outputs"
    (outputs / "ckpt_4.json").write_text('{"step":')
    done = dray("run", "--from", first, *RULES, *COMMAND, "1")
    assert "passed over ckpt_4.json: it is not whole\n" in done.stderr
    assert f"begins from {first}:ckpt_3.json\n" in done.stderr
    refused = dray("run", "--from", f"{first}:ckpt_4.json", *RULES, *COMMAND, "1", check=False)
    assert refused.returncode == 4
    assert f"ckpt_4.json of {first} is not whole" in refused.stderr


def test_a_folder_of_this_machine(dray: Dray, tmp_path: Path) -> None:
    """A checkpoint that is a folder; or the newest one of a folder with the outputs of a run."""
    dray.write("train.py", TRAINER)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "state.json").write_text('{"step": 8}')
    assert said(dray, "--from", str(folder), *RULES, *COMMAND, "1").startswith("from 8 1\n")
    for step in (5, 6):
        (folder / f"ckpt_{step}.json").write_text(json.dumps({"step": step}))
    assert said(dray, "--from", str(folder), *RULES, *COMMAND, "1").startswith("from 6 1\n")


def test_names_that_mean_nothing_are_refused(dray: Dray, tmp_path: Path) -> None:
    first = trained(dray)
    (tmp_path / "empty.json").write_text("")
    secret = tmp_path / "secret.json"
    secret.write_text('{"step": 1}')
    (dray.job_dir(first) / "outputs/ckpt_9.json").symlink_to(secret)
    for given, why in (
        ("nothing", "Nor is there such a file here"),
        ("./nothing", "there is no such file or folder"),
        (f"{first}:ckpt_7.json", "no checkpoint is named ckpt_7.json; there are: ckpt_9.json"),
        (f"{first}:../job.json", "no checkpoint is named ../job.json"),
        (f"{first}:ckpt_9.json", "ckpt_9.json leads out of the outputs"),
        (str(tmp_path / "empty.json"), "empty.json: it is not whole"),
    ):
        refused = dray("run", "--from", given, *RULES, *COMMAND, "1", check=False)
        assert refused.returncode != 0, given
        assert why in refused.stderr
    assert len(json.loads(dray("ps", "--json").stdout)) == 1  # nothing was submitted


def test_what_was_given_and_is_gone_is_never_nothing(dray: Dray) -> None:
    first = trained(dray)
    job = dray.run("--from", first, "--retries", "0", *RULES, "--", "python3", "-c", "exit(1)")
    assert dray.wait(job)["state"] == "failed"
    (dray.job_dir(job) / "given/ckpt_3.json").unlink()
    dray("resume", job)
    shown = dray.wait(job)
    reason = f"its copy of {first}:ckpt_3.json, which it was to begin from, is not whole any more"
    assert (shown["state"], shown["reason"]) == ("failed", reason)


def test_a_job_like_another_one(dray: Dray) -> None:
    dray.write("dray.toml", '[job.resources]\ntime = "1h"\n')
    dray.write("train.py", TRAINER)
    described = ("--name", "ant", "--env", "A=1", "--secret", "KEY", "--retries", "2")
    described += ("--retry-on", "9", "--fail-on", "3", "--hold", "1s", "--total-time", "1h")
    first = dray.run(*described, *RULES, *PARTNER, *COMMAND, "2", KEY="x")
    dray.wait(first)
    dray.write("dray.toml", '[job]\nretries = 7\n[job.env]\nB = "2"\n')
    dray.write("train.py", "print('today')\n" + TRAINER)
    again = dray.run("--like", first, "--env", "C=3", "--time", "2h", KEY="y")
    assert again.startswith("ant-")
    old, new = dray.wait(first), dray.wait(again)
    assert dray.log(again).startswith("today\nfrom 0 0\n")
    same = ("command", "resume", "outputs", "secrets", "retries", "name", "folder", "project")
    same += ("retry_on", "fail_on", "hold", "limits")
    for key in same:
        if key == "resume":  # its grace goes with the time limit
            del old[key]["grace"], new[key]["grace"]
        assert new[key] == old[key], key
    assert (old["resources"]["time"], new["resources"]["time"]) == (3600, 7200)
    assert {name: new["env"].get(name) for name in "ABC"} == {"A": "1", "B": None, "C": "3"}
    other = dray.run("--like", first, "--", "python3", "train.py", "1", KEY="z")
    assert dray.wait(other)["command"] == ["python3", "train.py", "1"]


def test_only_what_is_written_down_here_is_repeated(dray: Dray) -> None:
    first = trained(dray)
    job_file = dray.job_dir(first) / "job.json"
    described = json.loads(job_file.read_text())
    job_file.write_text(json.dumps({**described, "command": ["touch", "pwned"], "secrets": ["A"]}))
    again = dray.run("--like", first)
    assert dray.wait(again)["command"] == ["python3", "train.py", "3"]
    (dray.home / "dray/store.db").unlink()
    refused = dray("run", "--like", first, check=False)
    assert refused.returncode == 4
    assert "is not known to have been submitted from here" in refused.stderr


def test_a_script_that_is_not_in_the_code_is_refused(dray: Dray) -> None:
    dray.write("train.py", TRAINER)
    refused = dray("run", "--", "python3", "trian.py", check=False)
    assert refused.returncode == 4
    assert "the command starts 'trian.py', which the job does not have" in refused.stderr
    assert "Did you mean 'train.py'?" in refused.stderr
    assert dray("ps").stdout.count("\n") <= 1
    told = dray("plan", "--", "env", "python3", "trian.py").stdout
    assert "note      'trian.py' is not in the project's folder. Did you mean 'train.py'?" in told


def test_from_python(dray: Dray) -> None:
    first = trained(dray)
    code = textwrap.dedent(
        f"""
        import dray
        job = dray.run(["python3", "train.py", "1"], checkpoint="ckpt_*.json",
                       start_from="{first}:ckpt_2.json")
        job.wait()
        print(job.id)
        again = dray.run(like=job.id, start_from="{first}")
        again.wait()
        print(again.id)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=dray.project,
        env=dray.env,
        capture_output=True,
        check=True,
    )
    ids = done.stdout.decode().split()
    assert [dray.log(one).split("\n")[0] for one in ids] == ["from 2 1", "from 3 1"]


def test_a_link_out_of_a_folder_is_not_followed(dray: Dray, tmp_path: Path) -> None:
    """A folder that somebody else has made must not decide what leaves this machine."""
    secret = tmp_path / "id_rsa"
    secret.write_text("PRIVATE")
    folder = dray.project / "runs/ckpt"
    folder.mkdir(parents=True)
    (folder / "model.bin").write_text("x")
    (folder / "optimizer.bin").symlink_to(secret)
    ended = dray("run", "--from", "runs/ckpt", "--", "true", check=False)
    assert ended.returncode == 4
    assert f"leads out of it, to {secret}" in ended.stderr
    (folder / "optimizer.bin").unlink()
    (folder / "optimizer.bin").symlink_to("model.bin")  # a link within it is the folder's own
    job = dray.run("--from", "runs/ckpt", "--", "sh", "-c", 'cat "$DRAY_CHECKPOINT"/optimizer.bin')
    assert dray.wait(job)["state"] == "done"
