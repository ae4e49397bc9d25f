"""What users have is read as it is meant, is never run, and nothing of it is lost in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.config import migration
from dray.config.migration import assignments, isaaclab, protomotions, sbatch, shell
from dray.config.migration.found import Found, Text, cluster_name
from dray.errors import ConfigError, Refused, UsageError
from dray.job.options import binds
from dray.job.quantities import parse_duration


def values(content: str) -> dict[str, str]:
    return {name: one.value for name, one in shell.assignments(Text("f", content)).items()}


def note(found: Found, beginning: str) -> str:
    (said,) = [one for one in found.notes if one.startswith(beginning)]
    return said


# -- shell files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("A=", ""),
        ("export A=b", "b"),
        ("  export   A=b  ", "b"),
        ("A='b c'", "b c"),
        ('A="b c"  # why', "b c"),
        ("A=b # why", "b"),
        ("A=b#c", "b#c"),
        ("A='#b'", "#b"),
        ("A=b;", "b"),
        ('A="say \\"x\\" for \\$5"', 'say "x" for $5'),
        ("A=b\\ c", "b c"),
        ("A='b'\"c\"d", "bcd"),
        ("A='$HOME/x'", "$HOME/x"),
        ("A=$HOME/x", "$HOME/x"),
        ("A=${HOME}/x", "${HOME}/x"),
        ("A=${HOME:-/h}/x", "/h/x"),
        ("A=~/x", "~/x"),
        ("A=ü=1", "ü=1"),
        ("A=1\nA=2", "2"),
        ("A=b\nexport A", "b"),
        ("export A=b C=d", "b"),
    ],
)
def test_values_are_read_as_a_shell_would(line: str, value: str) -> None:
    assert values(line)["A"] == value


def test_references_to_names_set_before_are_filled_in() -> None:
    content = "ME=ada\nTOP=/home/$ME\nA=\"${TOP}/x\"\nB='${TOP}/x'\nC=$LATER\nLATER=1\nD=${ME:-no}"
    found = values(content)
    assert found["A"] == "/home/ada/x"
    assert found["B"] == "${TOP}/x"
    assert found["C"] == "$LATER"
    assert found["D"] == "ada"


@pytest.mark.parametrize(
    "line",
    ["A=$(touch ran)", 'A="x $(touch ran) y"', "A=`touch ran`", "A=${B%x}", 'A="${#B}"', "A=(a b)"],
)
def test_what_takes_a_shell_is_marked_and_never_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = shell.assignments(Text("f", f"{line}\nC=x$A\n"))
    assert found["A"] == shell.Assigned(line.removeprefix("A="), 1, computed=True)
    assert found["C"].computed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        ("A=1\nB='x\n", 2, "quote is not closed"),
        ('A="x', 1, "quote is not closed"),
        ("\n\nA = 1", 3, "is not NAME=value"),
        ("A=b c", 1, "'c' is not NAME=value"),
        ("rm -rf /", 1, "is not NAME=value"),
        ("1A=2", 1, "is not NAME=value"),
        ("A=b && c", 1, "is not NAME=value"),
        ("A=b|c", 1, "'|' must be in quotes"),
    ],
)
def test_a_malformed_line_is_told_with_its_place(content: str, line: int, says: str) -> None:
    with pytest.raises(ConfigError) as told:
        shell.assignments(Text("some/file", content))
    assert told.value.message.startswith(f"some/file:{line}: ")
    assert says in told.value.message


@given(st.text(st.characters(exclude_characters="'\n\r\0", exclude_categories=["Cs"])))
def test_anything_in_single_quotes_is_itself(text: str) -> None:
    assert values(f"A='{text}'") == {"A": text}


@given(st.text("AB=$ {}()'\"\\#;|&\n`-:x"))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    told = "f:"
    try:
        shell.assignments(Text("f", text))
    except ConfigError as error:
        told = error.message
    assert told.startswith("f:")


# -- #SBATCH ------------------------------------------------------------------------------------


def test_every_way_to_write_a_flag() -> None:
    script = """#!/bin/bash
#SBATCH --a-flag=1 --other 2
#SBATCH -c4 -N 1   # a remark
#SBATCH --exclusive
#SBATCH -p=gpu
#SBATCH --comment="two words"
##SBATCH --off=1
# SBATCH --off=2
echo '#SBATCH --off=3'
"""
    found = [(one.name, one.value, one.line) for one in sbatch.flags(Text("f", script))]
    assert found == [
        ("a-flag", "1", 2),
        ("other", "2", 2),
        ("cpus-per-task", "4", 3),
        ("nodes", "1", 3),
        ("exclusive", "", 4),
        ("partition", "gpu", 5),
        ("comment", "two words", 6),
    ]


@pytest.mark.parametrize("line", ["#SBATCH --x='1", "#SBATCH word", "#SBATCH --X=1"])
def test_a_flag_that_is_none(line: str) -> None:
    with pytest.raises(ConfigError, match="f:2: "):
        sbatch.flags(Text("f", f"\n{line}"))


def test_modules() -> None:
    script = "module load a b/1.2 # c\n  module add d; echo e\nml f\n# module load g\nmodule list"
    assert sbatch.modules(Text("f", script)) == ["a", "b/1.2", "d", "f"]


@pytest.mark.parametrize(
    ("slurm", "ours"),
    [
        ("90", "1h30m"),
        ("90:30", "1h30m30s"),
        ("23:00:00", "23h"),
        ("4:00:00", "4h"),
        ("1-12", "1d12h"),
        ("1-12:30", "1d12h30m"),
        ("2-00:00:01", "2d1s"),
        ("0", None),
        ("UNLIMITED", None),
        ("1:2:3:4", None),
        ("-1", None),
    ],
)
def test_times(slurm: str, ours: str | None) -> None:
    assert sbatch.duration(slurm) == ours


@given(st.integers(0, 40), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_times_stay_the_same(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    written = sbatch.duration(f"{days}-{hours:02}:{minutes:02}:{seconds:02}")
    assert (parse_duration(written) if written else 0) == total


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("2", (2, "")),
        ("rtx_3090:1", (1, "rtx_3090")),
        ("a100", (1, "a100")),
        ("gpu", (1, "")),
        ("a100:1,v100:1", (None, "")),
        ("", (None, "")),
    ],
)
def test_gpus(value: str, found: tuple[int | None, str]) -> None:
    assert sbatch.gpus(value) == found


# -- Isaac Lab ----------------------------------------------------------------------------------

ENV_CLUSTER = """\
# where we train
CLUSTER_JOB_SCHEDULER=SLURM
CLUSTER_ISAAC_SIM_CACHE_DIR=/scratch/ada/docker-isaac-sim
export CLUSTER_ISAACLAB_DIR="/home/${USER}/isaaclab"
CLUSTER_LOGIN='ada@euler.example.org'   # from the VPN
CLUSTER_SIF_PATH=/scratch/ada
REMOVE_CODE_COPY_AFTER_JOB=true
CLUSTER_PYTHON_EXECUTABLE=scripts/rsl_rl/train.py
MY_TOKEN=hush
"""
SUBMIT = """\
#!/usr/bin/env bash
module load eth_proxy
cat <<EOT > job.sh
#!/bin/bash
#SBATCH -n 1
#SBATCH --cpus-per-task=8
#SBATCH --gpus=rtx_3090:2
#SBATCH --time=23:00:00
#SBATCH --mem-per-cpu=4096
#SBATCH --mail-type=END
#SBATCH --mail-user=ada@example.org
#SBATCH --account=robots --qos long
#SBATCH --tmp=20G
#SBATCH --job-name="x-$(date +"%H:%M")"
export OMNI=1
EOT
"""


def isaac(env: str = ENV_CLUSTER, **beside: str) -> Found:
    names = {"base": ".env.base", "slurm": "submit_job_slurm.sh", "pbs": "submit_job_pbs.sh"}
    text = Text("docker/cluster/.env.cluster", env)
    assert isaaclab.recognises(text)
    texts = {names[key]: Text(names[key], content) for key, content in beside.items()}
    return isaaclab.read(text, texts)


def test_isaac_lab() -> None:
    found = isaac(base="DOCKER_USER_HOME=/root\nCLUSTER_LOGIN=old@host", slurm=SUBMIT, pbs="#PBS")
    assert found.name == "euler"
    assert found.cluster == {
        "host": "ada@euler.example.org",
        "root": "/home/$USER/dray",
        "account": "robots",
        "qos": "long",
        "gpu_type": "rtx_3090",
        "gpu_flag": "gpus",
        "mail": "ada@example.org",
        "modules": ["eth_proxy"],
        "extra": ["--tmp=20G"],
    }
    assert found.job == {
        "job.image": "isaac-lab-base",
        "job.recipe": "isaaclab/rsl_rl",
        "job.resources.gpus": 2,
        "job.resources.cpus": 8,
        "job.resources.memory": "32G",
        "job.resources.time": "23h",
    }
    assert "dray image push isaac-lab-base" in note(found, "CLUSTER_SIF_PATH = /scratch/ada")
    assert "kept below root" in note(found, "CLUSTER_ISAAC_SIM_CACHE_DIR")
    assert "recipes isaaclab/" in note(found, "DOCKER_USER_HOME")
    assert "dray run -- --task" in note(found, "CLUSTER_PYTHON_EXECUTABLE = scripts/rsl_rl/")
    assert "dray rm" in note(found, "REMOVE_CODE_COPY_AFTER_JOB")
    assert "dray does this itself" in note(found, "#SBATCH --job-name")
    assert "END and FAIL" in note(found, "#SBATCH --mail-type")
    assert "setup" in note(found, "export OMNI=1")
    assert note(found, "MY_TOKEN") == "MY_TOKEN: has no counterpart yet"  # not its value


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("export WANDB_API_KEY=hush", "export WANDB_API_KEY"),
        ("  export DB_PASSWORD='hush hush'  # mine", "export DB_PASSWORD"),
        ("export OMNI=1 HF_TOKEN=hush", "export OMNI, HF_TOKEN"),
        ("export OMNI=1;export HF_TOKEN=hush", "export OMNI, HF_TOKEN"),
        ("export PROXY=http://ada:hush@proxy:80", "export PROXY"),
        ("export WANDB=0123456789abcdefhush", "export WANDB"),
        ("#SBATCH --export=ALL,HF_TOKEN=hush$x", "#SBATCH --export HF_TOKEN"),
    ],
)
def test_what_may_be_secret_is_named_without_its_value(line: str, told: str) -> None:
    found = isaac(slurm=f"#!/bin/sh\n{line}\n")
    name = told.split()[-1]
    assert f"dray run --secret {name}" in note(found, f"{told}: ")
    assert "hush" not in str(found)


def test_what_may_be_secret_for_pbs() -> None:
    env = "CLUSTER_JOB_SCHEDULER=PBS\nCLUSTER_ISAACLAB_DIR=/x/isaaclab"
    found = isaac(env, pbs="#PBS -v HF_TOKEN=hush\n#PBS -v OMNI=1\nexport NETRC_PASS=hush\n")
    assert "dray run --secret HF_TOKEN" in note(found, "#PBS -v HF_TOKEN: ")
    assert "dray run --secret NETRC_PASS" in note(found, "export NETRC_PASS: ")
    assert found.cluster["extra"] == ["-v OMNI=1"]
    assert "hush" not in str(found)


@pytest.mark.parametrize(
    "line", ["export OMNI=1", "export OMNI_ALLOW_ROOT_1=/a:$B", "module purge"]
)
def test_what_is_no_secret_is_told_as_it_is(line: str) -> None:
    assert "add it to setup" in note(isaac(slurm=f"#!/bin/sh\n{line}\n"), f"{line}: ")


def test_isaac_lab_with_the_least() -> None:
    found = isaac("CLUSTER_ISAACLAB_DIR=/x/isaaclab/\nCLUSTER_LOGIN=me@10.0.0.7")
    assert found.cluster == {"host": "me@10.0.0.7", "root": "/x/dray"}
    assert found.name == "slurm-10-0-0-7"
    assert found.notes == ()


@pytest.mark.parametrize(
    ("base", "env", "image"),
    [
        ('DOCKER_NAME_SUFFIX=""', "", "isaac-lab-base"),
        ('DOCKER_NAME_SUFFIX="-mine"', "", "isaac-lab-base-mine"),
        ("DOCKER_NAME_SUFFIX=-mine", "DOCKER_NAME_SUFFIX=-other", "isaac-lab-base-other"),
        ("DOCKER_NAME_SUFFIX=$(whoami)", "", "isaac-lab-base"),
    ],
)
def test_the_suffix_is_part_of_the_images_name(base: str, env: str, image: str) -> None:
    least = "CLUSTER_ISAACLAB_DIR=/x/isaaclab\nCLUSTER_SIF_PATH=/x\n"
    found = isaac(least + env, base=base)
    assert found.job["job.image"] == image
    assert f"dray image push {image}" in note(found, "CLUSTER_SIF_PATH")
    assert any("DOCKER_NAME_SUFFIX" in one for one in found.notes) == ("$" in base)


@pytest.mark.parametrize(
    ("script", "recipe"),
    [
        ("scripts/reinforcement_learning/skrl/train.py", "isaaclab/skrl"),
        ("source/standalone/workflows/rl_games/train.py", "isaaclab/rl_games"),
        ("scripts/reinforcement_learning/sb3/play.py", None),
        ("my/own.py", None),
    ],
)
def test_a_trainers_recipe_is_told_rather_than_its_script(script: str, recipe: str | None) -> None:
    found = isaac(f"CLUSTER_ISAACLAB_DIR=/x/isaaclab\nCLUSTER_PYTHON_EXECUTABLE={script}")
    assert found.job.get("job.recipe") == recipe
    assert ("job.outputs" in found.job) == (recipe is None)  # the recipe knows them
    told = "dray run -- --task" if recipe else f"dray run -- python {script}"
    assert told in note(found, "CLUSTER_PYTHON_EXECUTABLE")


@pytest.mark.parametrize(
    ("scheduler", "script", "theirs"),
    [
        ("SLURM", {"slurm": "#SBATCH --mail-user={}"}, "name@mail"),
        ("PBS", {"pbs": '#PBS -m bea -M "{}"'}, "user@mail"),
    ],
)
def test_the_template_as_it_comes_is_not_taken_for_settings(
    scheduler: str, script: dict[str, str], theirs: str
) -> None:
    env = "CLUSTER_ISAACLAB_DIR=/some/path/on/cluster/isaaclab\nCLUSTER_LOGIN=username@cluster_ip"
    env += f"\nCLUSTER_JOB_SCHEDULER={scheduler}"
    found = isaac(env, **{key: one.format(theirs) for key, one in script.items()})
    assert found.cluster == {}
    assert found.name == scheduler.lower()
    assert sum("placeholder" in one for one in found.notes) == 3
    mine = isaac(env, **{key: one.format(f"{theirs}.org") for key, one in script.items()})
    assert mine.cluster == {"mail": f"{theirs}.org"}


PBS_SCRIPT = """
cat <<EOT > job.sh
#!/bin/bash
#PBS -l select=1:ncpus=8:mpiprocs=1:ngpus=2:system=polaris:mem=64gb
#PBS -l walltime=01:30:00,place=excl
#PBS -j oe
#PBS -q gpu
#PBS -P robots
#PBS -N isaaclab
#PBS -m bea -M ada@example.org
module load apptainer
EOT
"""


def test_isaac_lab_on_pbs() -> None:
    env = "CLUSTER_JOB_SCHEDULER=PBS\nCLUSTER_ISAACLAB_DIR=/x/isaaclab\nCLUSTER_LOGIN=me@hpc"
    found = isaac(env, pbs=PBS_SCRIPT, slurm=SUBMIT)
    assert found.kind == "pbs"
    assert found.cluster == {
        "host": "me@hpc",
        "root": "/x/dray",
        "dialect": "openpbs",
        "project": "robots",
        "queue": "gpu",
        "chunk": "system=polaris",
        "mail": "ada@example.org",
        "modules": ["apptainer"],
        "extra": ["-l place=excl"],
    }
    assert found.job == {
        "job.image": "isaac-lab-base",
        "job.outputs": ["logs"],
        "job.resources.gpus": 2,
        "job.resources.cpus": 8,
        "job.resources.memory": "64G",
        "job.resources.time": "1h30m",
    }
    assert "dray does this itself" in note(found, "#PBS -N isaaclab")


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("-l nodes=2:ppn=4:gpus=1", {"nodes": 2, "cpus": 4, "gpus": 1}),
        ("-l ncpus=4 -l mem=16000mb", {"cpus": 4, "memory": "16000M"}),
        ("-lwalltime=3600", {"time": "1h"}),
    ],
)
def test_other_ways_to_ask_pbs(line: str, job: dict[str, object]) -> None:
    env = "CLUSTER_JOB_SCHEDULER=PBS\nCLUSTER_ISAACLAB_DIR=/x/isaaclab"
    found = isaac(env, pbs=f"#PBS {line}\n")
    prefix = "job.resources."
    asked = {key: one for key, one in found.job.items() if key.startswith(prefix)}
    assert asked == {prefix + key: one for key, one in job.items()}


@pytest.mark.parametrize("line", ["-l 'select=1", "select=1"])
def test_a_pbs_line_that_cannot_be_read_is_named(line: str) -> None:
    env = "CLUSTER_JOB_SCHEDULER=PBS\nCLUSTER_ISAACLAB_DIR=/x/isaaclab"
    with pytest.raises(ConfigError, match=r"submit_job_pbs\.sh:1: "):
        isaac(env, pbs=f"#PBS {line}\n")


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--gres=gpu:a100:4", "job.resources.gpus", 4),
        ("--gres=gpu", "job.resources.gpus", 1),
        ("--gpus-per-node=2", "job.resources.gpus", 2),
        ("--nodes=2", "job.resources.nodes", 2),
        ("--mem=16G", "job.resources.memory", "16G"),
        ("--mem=4000", "job.resources.memory", "4000M"),
        ("--gpus=2 --mem-per-gpu=10G", "job.resources.memory", "20G"),
        ("--mem-per-cpu=1000", "job.resources.memory", "1000M"),
        ("-t 30", "job.resources.time", "30m"),
    ],
)
def test_resources_of_a_batch_script(flags: str, key: str, value: object) -> None:
    assert isaac(slurm=f"#SBATCH {flags}").job[key] == value


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--gpus=a100:1,v100:1", "one sort of GPUs"),
        ("--gres=tmp:10G", "one sort of GPUs"),
        ("--mem=0", "all of a node's memory"),
        ("--mem=lots", "cannot be read"),
        ("--time=UNLIMITED", "cannot read the time"),
        ("--nodes=2-4", "one number of nodes"),
        ("--ntasks=4", "a task for each GPU"),
        ("--array=0-5%1", "dray resumes jobs itself"),
        ("--partition=$PART", "a shell makes this value"),
        ("--cpus-per-task=many", "is not a whole number"),
        ("--account='a b'", "one word"),
    ],
)
def test_what_a_batch_script_asks_for_in_vain_is_noted(flag: str, says: str) -> None:
    found = isaac(slurm=f"#SBATCH {flag}")
    assert says in note(found, f"#SBATCH {flag.partition('=')[0]}")
    assert found.job == {"job.recipe": "isaaclab/rsl_rl", "job.image": "isaac-lab-base"}


# -- ProtoMotions -------------------------------------------------------------------------------

TRAIN_SLURM = """\
'''Constants for our cluster'''
import argparse, os
open("ran", "w")  # must never happen
CLUSTER_LOGIN_NODE = "login.example.org"
CLUSTER_BASE_DIR: str = "/work/robots/"
CONTAINER_IMAGES = {
    "isaacgym": "/work/images/gym.sqsh",
    "isaaclab": os.environ["IMAGE"],
}
PYTHON_EXECUTABLES = {"isaacgym": "python"}
DEFAULT_SLURM_ACCOUNT = "robots"
DEFAULT_SLURM_PARTITION = "a100,h100"
CONTAINER_MOUNTS = "/work:/work:rw,/data:/data"
UNRELATED = 1
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ngpu", type=int, default=4)
    parser.add_argument("-t", "--slurm-time", default="4:00:00")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--array-size", type=int, default=5)
"""


def proto(content: str, **beside: str) -> Found:
    text = Text("train_slurm.py", content)
    assert protomotions.recognises(text)
    return protomotions.read(text, {name: Text(name, one) for name, one in beside.items()})


def test_protomotions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = proto(TRAIN_SLURM)
    assert list(tmp_path.iterdir()) == []
    assert found.name == "example"
    assert found.cluster == {
        "host": "login.example.org",
        "root": "/work/robots/$USER/dray",
        "account": "robots",
        "partition": "a100,h100",
    }
    assert found.job == {
        "job.recipe": "protomotions",
        "job.resources.nodes": 2,
        "job.resources.gpus": 4,
        "job.resources.time": "4h",
    }
    gym = note(found, "CONTAINER_IMAGES.isaacgym = /work/images/gym.sqsh")
    assert "dray run --image /work/images/gym.sqsh" in gym
    assert "computed by Python" in note(found, "CONTAINER_IMAGES.isaaclab")
    mounts = note(found, "CONTAINER_MOUNTS = /work:/work:rw,/data:/data")
    assert "dray run --bind /work:/work:rw --bind /data:/data" in mounts
    assert binds(["/work:/work:rw", "/data:/data"])  # such a flag is taken
    assert "dray run --python python -- …" in note(found, "PYTHON_EXECUTABLES.isaacgym")
    assert "dray resumes" in note(found, "--array-size = 5")
    assert not [one for one in found.notes if "UNRELATED" in one]


def test_newer_protomotions_has_a_table() -> None:
    content = """\
SITE_DEFAULTS = {
    "login_node": "a100-login.example.org",
    "base_dir": "/scratch/{account}/experiments",
    "account": "robots",
    "container_images": {"newton": "/images/newton.sqsh"},
    "array_size": 5,
}
CLUSTER_LOGIN_NODE = SITE_DEFAULTS["login_node"]
"""
    found = proto(content, **{"slurm_site.yaml": "login_node: x"})
    assert found.cluster == {
        "host": "a100-login.example.org",
        "root": "/scratch/robots/experiments/$USER/dray",
        "account": "robots",
    }
    assert note(found, "CONTAINER_IMAGES.newton")
    assert note(found, "SITE_DEFAULTS.array_size = 5")
    assert "not read" in note(found, "slurm_site.yaml")


def test_protomotions_as_it_comes_is_not_taken_for_settings() -> None:
    found = proto('CLUSTER_LOGIN_NODE = "YOUR_CLUSTER"\nCLUSTER_BASE_DIR = "/path/to/your/x"')
    assert found.cluster == {}
    assert len(found.notes) == 2


def test_python_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"train_slurm\.py:3: not valid Python"):
        proto('CLUSTER_LOGIN_NODE = "x"\n\ndef (:\n')


# -- shell assignments of one's own -------------------------------------------------------------


def test_own_assignments() -> None:
    content = """\
export CLUSTER_HOST=euler
CLUSTER_USER=ada
SLURM_PARTITION="gpu"
SBATCH_TIMELIMIT=1-00:00:00
GPUS=a100:2
CPUS=6
MEM=32G
MODULES="gcc/12 cuda"
WORK_DIR=${SCRATCH}/runs
WANDB_API_KEY=hush
PYTHON=$(which python3)
"""
    found = assignments.read(Text("f", content), {})
    assert found.cluster == {
        "host": "ada@euler",
        "root": "$SCRATCH/runs",
        "partition": "gpu",
        "gpu_type": "a100",
        "modules": ["gcc/12", "cuda"],
    }
    assert found.job == {
        "job.resources.gpus": 2,
        "job.resources.cpus": 6,
        "job.resources.memory": "32G",
        "job.resources.time": "1d",
    }
    assert found.notes == (
        "WANDB_API_KEY: has no counterpart yet",
        f"PYTHON: {shell.COMPUTED}",
    )


def test_a_host_that_ssh_would_take_for_an_option_is_noted() -> None:
    found = assignments.read(Text("f", "HOST=-oProxyCommand=x"), {})
    assert found.cluster == {}
    assert "is not a host" in found.notes[0]


# -- which is which -----------------------------------------------------------------------------


def test_files_beside_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "docker/cluster"
    folder.mkdir(parents=True)
    (folder / ".env.cluster").write_bytes(ENV_CLUSTER.replace("\n", "\r\n").encode("utf-8-sig"))
    (folder / "submit_job_slurm.sh").write_bytes(SUBMIT.replace("\n", "\r\n").encode())
    (folder.parent / ".env.base").write_text("DOCKER_USER_HOME=/root\n")
    found = migration.read(folder / ".env.cluster")
    assert found.cluster["modules"] == ["eth_proxy"]
    assert found.job["job.resources.time"] == "23h"
    assert note(found, "DOCKER_USER_HOME")
    assert migration.read(tmp_path) == migration.read(folder) == found


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        ("hello\n", UsageError, "none of the formats"),
        ("", UsageError, "none of the formats"),
        ("A=1\n", UsageError, "none of the formats"),
        ("\0\0", UsageError, "no settings file"),
        ("#!/bin/sh\n#PBS -q gpu\n", Refused, "PBS is not read yet"),
        ("name: a address: http://h:1\nname: b\n", ConfigError, "file:2: a line has to begin with"),
        ('export RUNAI_URL="https://x"\n', Refused, "Run:ai is not read yet"),
    ],
)
def test_what_is_not_recognised(
    tmp_path: Path, content: str, error: type[UsageError], says: str
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    with pytest.raises(error, match=says) as told:
        migration.read(path)
    if error is UsageError:
        assert "Isaac Lab" in told.value.hint
        assert "ProtoMotions" in told.value.hint


def test_isaac_labs_list_of_ray_clusters_is_read(tmp_path: Path) -> None:
    """A blank line, on which Isaac Lab's own reader fails, and further words are no trouble."""
    path = tmp_path / ".cluster_config"
    path.write_text(
        "name: isaac ray/0 address: http://10.0.0.1:8265 num_gpu: 2\n\n"
        "# mine\nname:b address:https://x.org/ray\nname: c address: 10.0.0.3\n"
    )
    with pytest.raises(ConfigError, match=r"cluster_config:1: a line has to begin"):
        migration.read(path)
    path.write_text(path.read_text().replace("isaac ray", "isaac-ray"))
    first, second, third = (found := migration.read(path)), *found.others
    assert [one.name for one in (first, second, third)] == ["isaac-ray-0", "b", "c"]
    assert {one.kind for one in (first, second, third)} == {"ray"}
    assert first.cluster == {"address": "http://10.0.0.1:8265"}
    assert note(first, "num_gpu: 2").endswith("dray asks the cluster itself")
    assert second.cluster == {"address": "https://x.org/ray"}
    assert third.cluster == {}  # no address that can be used
    assert "must be the address of Ray's dashboard" in note(third, "address")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        migration.read(tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"HOST=a\nB=\xe9\n")
    with pytest.raises(ConfigError, match="latin:2: not UTF-8"):
        migration.read(tmp_path / "latin")
    with pytest.raises(UsageError, match="there is no"):
        migration.read(tmp_path)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("ada@euler.ethz.ch", "euler"),
        ("login1.euler.ethz.ch", "euler"),
        ("me@a100-login.example.org", "a100"),
        ("login.hpc.rwth-aachen.de", "rwth-aachen"),
        ("ssh.cluster.example.org", "example"),
        ("login-1", "login-1"),  # nothing else is known
        ("hpc", "hpc"),
        ("10.0.0.7", "slurm-10-0-0-7"),
        ("me@[fe80::1]", "slurm-fe80-1"),
        ("", "slurm"),
        ("_x_", "x"),
    ],
)
def test_a_name_is_made_from_the_host(host: str, name: str) -> None:
    assert cluster_name(host) == name
