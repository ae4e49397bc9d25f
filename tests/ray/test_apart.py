"""On a real Ray whose nodes do not see the root: what goes there, and what comes home."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.conftest import Dray, RayCluster, wait_for
from tests.contract.test_contract import RESUMABLE, TRAINER
from tests.integration.test_arrays import run_many
from tests.integration.test_population import TRAINER as POPULATION
from tests.integration.test_sweeps import RESUMES, start, study_folder, trials
from tests.integration.test_sweeps import TRAINER as TRIAL
from tests.ray.test_ray import COUNTING, WAIT, raw_log, steps, without_its_node
from tests.rigs.ray import GPUS

pytestmark = pytest.mark.ray

GPU = ("--gpus", "1", "--cpus", "1")  # the head has none
ON_GPU = ("--on", "ray", *GPU)


@pytest.fixture
def ray(dray: Dray, ray_cluster: RayCluster) -> RayCluster:
    root = Path(tempfile.mkdtemp(dir=ray_cluster.rig.own)) / "root"
    ray_cluster.offer(dray, root=str(root), setup=["unset TMPDIR"])
    dray.jobs = root / "jobs"
    dray.write("train.py", TRAINER)
    return ray_cluster


def test_a_job_finds_its_code_and_leaves_all_that_it_wrote(dray: Dray, ray: RayCluster) -> None:
    """Links that lead out of the outputs do not come, nor do pipes; names may be odd."""
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "out = Path(os.environ['DRAY_OUTPUTS'])\n"
        "(out / 'runs/ä b').mkdir(parents=True)\n"
        "(out / 'runs/ä b/ model\\n1.pt').write_bytes(b'x' * 20_000_001)\n"
        "(out / 'empty').touch()\n"
        "(out / 'latest').symlink_to(out / 'runs')\n"
        "(out / 'away').symlink_to('/etc')\n"
        "(out / 'up').symlink_to('../job.json')\n"
        "os.mkfifo(out / 'pipe')\n"
        "Path('elsewhere.txt').write_text('left')\n"
        "print(Path('part/words.txt').read_text(), os.environ['API_KEY'][:2])\n"
        "print(sorted(one for one in os.environ if 'STAND' in one))\n"
        "raise SystemExit(3)\n"
    )
    dray.write("part/words.txt", "hello")
    dray.write("main.py", code)
    flags = (*ON_GPU, "--secret", "API_KEY")
    job = dray.run(*flags, "--", "python3", "main.py", API_KEY="s3cr3t-v4lue")
    shown = dray.wait(job)
    assert (shown["state"], shown["attempts"][0]["exit_code"]) == ("failed", 3)
    assert dray.log(job) == "hello s3\n[]\n"
    outputs = dray.job_dir(job) / "outputs"
    found = {str(one.relative_to(outputs)) for one in outputs.rglob("*")}
    assert found == {"runs", "runs/ä b", "runs/ä b/ model\n1.pt", "empty", "latest"}
    assert (outputs / "latest").readlink() == Path("runs")
    assert (outputs / "runs/ä b/ model\n1.pt").read_bytes() == b"x" * 20_000_001
    assert (dray.job_dir(job) / "attempts/001/left/elsewhere.txt").read_text() == "left"
    assert not (dray.job_dir(job) / "secrets.json").exists()
    assert not (dray.job_dir(job) / "incoming").exists()
    assert "away leads out of the outputs" in (dray.job_dir(job) / "batch.log").read_text()


def test_a_job_goes_on_elsewhere_when_its_node_is_killed(dray: Dray, ray: RayCluster) -> None:
    """It goes on from a checkpoint that was brought home, and is stopped and resumed there."""
    job = dray.run("--on", "ray", "--gpus", str(GPUS), *RESUMABLE, *COUNTING)
    wait_for(lambda: len(steps(dray, job)) > 20, WAIT)
    before = len(steps(dray, job))
    with without_its_node(dray, ray, job):
        wait_for(lambda: len(steps(dray, job)) > before + 10, WAIT)
        dray("stop", job)
        assert dray.wait(job)["state"] == "stopped"
    known = [int(one) for one in steps(dray, job)]
    assert sorted(set(known)) == list(range(1, max(known) + 1))
    dray("resume", job)
    third = wait_for(lambda: (found := dray.show(job)["attempts"])[2:] and found[2], WAIT)
    assert third["from_checkpoint"]
    dray("stop", job)
    assert dray.wait(job)["state"] == "stopped"


def test_an_array_has_its_own_outputs_each(dray: Dray, ray: RayCluster) -> None:
    words = ["sh", "-c", 'echo "$1"; echo "$1" >"$DRAY_OUTPUTS/n"', "sh"]
    commands = [[*words, str(index)] for index in range(4)]
    ids = run_many(dray, commands, on="ray", gpus=1)
    dray("wait", "--timeout", "110s", ids[0].partition(".")[0])
    assert [dray.log(one) for one in ids] == [f"{index}\n" for index in range(4)]
    found = [(dray.job_dir(one) / "outputs/n").read_text() for one in ids]
    assert found == [f"{index}\n" for index in range(4)]


def test_nodes_of_a_job_meet_and_each_leaves_what_it_wrote(dray: Dray, ray: RayCluster) -> None:
    code = (
        "import os\n"
        "from pathlib import Path\n"
        "out, rank = Path(os.environ['DRAY_OUTPUTS']), os.environ['RANK']\n"
        "(out / f'of-{rank}').write_text(rank)\n"
        "(out / 'of-all').write_text(rank)\n"
        "Path('elsewhere.txt').write_text(rank)\n"
        "print(Path('part/words.txt').read_text(), rank, os.environ['WORLD_SIZE'], flush=True)\n"
    )
    dray.write("part/words.txt", "hello")
    dray.write("ranks.py", code)
    flags = ("--nodes", "2", "--launch", "srun")
    job = dray.run(*ON_GPU, *flags, "--", "python3", "ranks.py")
    assert dray.wait(job)["state"] == "done"
    assert raw_log(dray, job) == "hello 0 2\n"
    attempt = dray.job_dir(job) / "attempts/001"
    assert (attempt / "ranks/1.log").read_text() == "hello 1 2\n"
    outputs = dray.job_dir(job) / "outputs"
    found = {one.name: one.read_text() for one in outputs.iterdir()}
    assert found == {"of-0": "0", "of-1": "1", "of-all": "0"}
    left = dray.show(job)["attempts"][0]["left"]
    assert {(attempt / "left" / one).read_text() for one in left} == {"0", "1"}


def test_a_trial_is_compared_with_those_of_other_nodes(dray: Dray, ray: RayCluster) -> None:
    """Parameters are chosen on the head, results come home, and a trial hears how others did."""
    dray.write("train.py", TRIAL)
    space = ("--space", "reward=9,2", "--space", "how=fast,slow", "--sampler", "grid")
    flags = ("--stop", "asha", "--stop-first", "5", "--trials", "1", *RESUMES, *GPU)
    sweep = start(dray, "ray", *flags, *space)  # reward=9 fast
    dray("wait", "--timeout", "110s", sweep)
    assert [one["rungs"] for one in trials(dray, sweep)] == [{"5": 9.0, "15": 9.0}]
    dray("sweep", "add", sweep, "3")  # 9 slow, 2 fast, 2 slow
    ended = dray.wait(f"{sweep}-2.2")
    assert ended["state"] == "stopped"
    assert ended["reason"].startswith("pruned at step 5: 2 is not among the best third of ")
    pruned = trials(dray, sweep)[3]
    assert (pruned["state"], pruned["value"]) == ("pruned", 2.0)
    assert (dray.job_dir(f"{sweep}-2.2") / "outputs/model_1.txt").exists()
    dray("sweep", "stop", "--now", sweep)


def test_a_trial_goes_on_from_the_checkpoint_of_one_on_another_node(
    dray: Dray, ray: RayCluster, tmp_path: Path
) -> None:
    gates = tmp_path / "gates"
    gates.mkdir()
    dray.write("train.py", f"import json\nFOLDER = {str(gates)!r}\n{POPULATION}")
    flags = ("--sampler", "grid", "--seed", "1", "--space", "speed=0.2..0.8:step=0.2", *GPU)
    flags += ("--stop", "pbt", "--stop-first", "10", "--stop-total", "40")
    flags += ("--checkpoint", "model_*.json", "--checkpoint-number", r"model_(\d+)")
    sweep = start(dray, "ray", *flags)
    results = study_folder(dray, sweep) / "results"

    def has_passed(number: int) -> bool:
        path = results / f"{number}.json"
        return path.exists() and "20" in json.loads(path.read_text()).get("rungs", {})

    better = dray.job_dir(f"{sweep}.3") / "outputs"
    wait_for(lambda: all(has_passed(number) for number in (1, 2, 3)), WAIT)
    wait_for(lambda: (better / "model_24.json").exists(), WAIT)
    (gates / "go").touch()
    wait_for(lambda: len(dray.show(f"{sweep}.0")["attempts"]) == 2, WAIT)
    first, second = dray.show(f"{sweep}.0")["attempts"]
    reason = f"goes on from {sweep}.3: 2 at step 10 is in the worst quarter of 4"
    assert (first["outcome"], first["reason"]) == ("interrupted", reason)
    (gates / "end").touch()
    assert dray.wait(f"{sweep}.0")["state"] == "done"
    assert second["from_checkpoint"] == "model_24.json"
    dray("wait", "--timeout", "110s", sweep)
    assert [one["state"] for one in trials(dray, sweep)] == ["done"] * 4


# -- the way in ---------------------------------------------------------------------------------


def test_somebody_gets_into_a_job_and_sees_what_it_sees(dray: Dray, ray: RayCluster) -> None:
    dray.write("part/words.txt", "hello")
    job = dray.run(*ON_GPU, "--", "python3", "-c", "import time; time.sleep(600)")
    wait_for(lambda: (dray.job_dir(job) / "attempts/001/door.calls").exists(), WAIT)
    said = dray("exec", job, "--", "sh", "-c", 'cat part/words.txt; echo " $DRAY_ATTEMPT"').stdout
    assert said == "hello 1\n"
    assert dray("exec", job, "--", "sh", "-c", "exit 3", check=False).returncode == 3
    dray("stop", "--now", job)
    assert dray.wait(job)["state"] == "stopped"
    assert not (dray.job_dir(job) / "attempts/001/door.calls").exists()
