"""What Isaac Lab's ray scripts are given, read as a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.config import task_file, yaml_subset
from dray.config.batch_file import BatchFile
from dray.config.task_file import number_of, read_wrapped
from dray.errors import ConfigError, UsageError
from dray.job.options import GpuRequest

# As in task_runner's documentation; the second is indented as YAML has it.
INDEPENDENT = """
pip: []
py_modules: ["my_package/my_package"]
concurrent: false
tasks:
  - name: "Isaac-Cartpole-Manager"
    py_args: "-m torch.distributed.run --nnodes=1 --nproc_per_node=2 train.py --task=Cartpole"
    num_gpus: 2
    num_cpus: 10
    memory: 10737418240
  - name: "script need some dependencies"
    py_args: "script.py --option 'an arg'"
    num_gpus: 0.5
    num_cpus: "1*2"
    memory: 10*1024*1024*1024
"""
ONE_TORCHRUN = """
concurrent: true
tasks:
- name: "train-1"
  py_args: >
    -m torch.distributed.run --nproc_per_node=1 --nnodes=2 --node_rank=0 --rdzv_id=123
    --rdzv_backend=c10d --rdzv_endpoint=localhost:5555 train.py --task=Cartpole --distributed
  num_gpus: 1
  node:
    specific: "hostname"
    hostname: "xxx"
- name: "train-2"
  py_args: >
    -m torch.distributed.run --nproc_per_node=1 --nnodes 2 --node_rank 1 --rdzv_id=123
    --rdzv_backend=c10d --rdzv_endpoint=10.0.0.1:5555 train.py --task=Cartpole --distributed
  num_gpus: 1
"""


@pytest.fixture(autouse=True)
def _own_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by dray itself, whatever is installed here."""
    monkeypatch.setattr(yaml_subset, "by_pyyaml", lambda text: None)


def read(tmp_path: Path, text: str) -> BatchFile:
    path = tmp_path / "tasks.yaml"
    path.write_text(text)
    return task_file.read(path)


def test_tasks_become_jobs(tmp_path: Path) -> None:
    found = read(tmp_path, INDEPENDENT)
    assert (found.name, found.together) == ("tasks", False)
    assert found.defaults == {"job.env": {"PYTHONPATH": "my_package"}}
    first, second = found.jobs
    assert (first.name, second.name) == ("isaac-cartpole-manager", "script-need-some-dependenc")
    assert first.where.endswith("tasks.yaml:6")
    assert first.command[:4] == ("python", "-m", "torch.distributed.run", "--nnodes=1")
    assert second.command == ("python", "script.py", "--option", "an arg")
    assert second.settings == {
        "job.resources.gpus": GpuRequest(0.5),
        "job.resources.cpus": 2,
        "job.resources.memory": 10 << 30,
    }


def test_the_nodes_of_one_torchrun_become_one_job(tmp_path: Path) -> None:
    found = read(tmp_path, ONE_TORCHRUN)
    (job,) = found.jobs
    assert not found.together
    assert job.command == ("python", "train.py", "--task=Cartpole", "--distributed")
    assert job.settings["job.resources.nodes"] == 2
    assert job.settings["job.launch"] == "torchrun"
    assert any("one torchrun" in note for note in found.notes)
    assert any("the scheduler chooses the node" in note for note in found.notes)


@pytest.mark.parametrize(
    ("before", "after", "line", "message"),
    [
        ("pip: []", 'pip: ["x"]', 2, "nothing is installed"),
        ("num_gpus: 2", "num_gpu: 2", 8, "Did you mean 'num_gpus'?"),
        ("num_gpus: 2", 'num_gpus: "two"', 8, "only numbers"),
        ("memory: 10737418240", "memory: 9**9**9**9", 10, "not arithmetic"),
        ("script.py --option 'an arg'", "script.py; rm x", 12, "; means something to a shell"),
        ("concurrent: false", "concurrent: 3", 4, "true or false"),
    ],
)
def test_a_mistake_is_told_with_its_line(
    tmp_path: Path, before: str, after: str, line: int, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, INDEPENDENT.replace(before, after, 1))
    assert f"tasks.yaml:{line}: " in raised.value.message
    assert message in str(raised.value)


def test_a_torchrun_that_lacks_a_node_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="torchrun on 2 nodes, and 1 tasks of it"):
        read(tmp_path, ONE_TORCHRUN.partition('- name: "train-2"')[0])


@pytest.mark.parametrize(
    ("text", "number"), [("2*2", 4), ("10*1024**3", 10 << 30), ("7//2", 3), (1.5, 1.5), ("-3+4", 1)]
)
def test_arithmetic_is_read(text: object, number: float) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize("text", ["__import__('os')", "1/0", "9**9**9", "a", "", "1 if 1 else 2"])
def test_nothing_but_arithmetic_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"arithmetic|numbers|large"):
        number_of(text)


def test_sub_jobs_are_read() -> None:
    words = "--gpu_per_worker 1 2 --cpu_per_worker 4 --ram_gb_per_worker=8 --sub_jobs"
    found = read_wrapped([*words.split(), "python", "a.py", "+", "python", "b.py", "+python c.py"])
    assert [one.command for one in found.jobs] == [
        ("python", "a.py"),
        ("python", "b.py"),
        ("python", "c.py"),
    ]
    gpus = [one.settings["job.resources.gpus"].number for one in found.jobs]
    assert gpus == [1, 2, 2]
    assert found.jobs[0].settings["job.resources.memory"] == 8 << 30
    assert found.jobs[0].settings["job.resources.cpus"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu_per_worker", "1"], "--sub_jobs is missing"),
        (["--num_workers", "2", "--sub_jobs", "a"], "share = 2"),
        (["--test", "--sub_jobs", "a"], "dray cluster check"),
        (["--gpu_per_workers", "2", "--sub_jobs", "a"], "Did you mean 'gpu_per_worker'?"),
        (["--sub_jobs", "a && b"], "means something to a shell"),
    ],
)
def test_what_sub_jobs_cannot_be_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_wrapped(words)
    assert message in str(raised.value)


def test_any_number_of_tasks_may_have_one_name(tmp_path: Path) -> None:
    task = '- {name: "a", py_args: "x.py"}\n'
    given = 'tasks:\n- {name: "a-2", py_args: "x.py"}\n' + task * 5000
    names = [one.name for one in read(tmp_path, given).jobs]
    assert names[:4] == ["a-2", "a", "a-3", "a-4"]
    assert len(set(names)) == 5001
