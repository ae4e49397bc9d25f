"""Batch files: what is read, and what a mistake is told with."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.config import batch_file
from dray.config.batch_file import BatchFile, first_operator, split_words
from dray.errors import ConfigError
from dray.job.options import GpuRequest
from dray.launcher.batches.grouping import Named, groups_of, in_order

WHOLE = """
name = "nightly"
[defaults]
gpus = 1
time = "4h"
[[jobs]]
name = "train"
command = ["python", "train.py", "--task", "Isaac Cartpole"]
memory = "10G"
on = "euler"
[jobs.resume]
checkpoint = "logs/*.pt"
[[jobs]]
name = "evaluate"
after = ["train", "other-7f3k:any"]
inputs = { policy = "train:logs/model.pt" }
run = "python eval.py --seed {index} --note 'a; b'"
count = 3
gpus = "a100:2"
"""


def read(tmp_path: Path, text: str) -> BatchFile:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    return batch_file.read(path)


def test_every_key_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, WHOLE)
    assert (found.name, found.together) == ("nightly", False)
    assert found.defaults == {
        "job.resources.gpus": GpuRequest(1, None),
        "job.resources.time": 4 * 3600.0,
    }
    train, evaluate = found.jobs
    assert train.where == f"{tmp_path}/jobs.toml:6"
    assert train.command == ("python", "train.py", "--task", "Isaac Cartpole")
    assert train.settings == {
        "job.resources.memory": 10 << 30,
        "job.on": "euler",
        "job.resume.checkpoint": "logs/*.pt",
    }
    assert evaluate.after == ("train", "other-7f3k:any")
    assert evaluate.inputs == {"policy": "train:logs/model.pt"}
    assert evaluate.settings == {"job.resources.gpus": GpuRequest(2, "a100")}
    assert evaluate.commands[2] == ("python", "eval.py", "--seed", "2", "--note", "a; b")


def test_a_batch_is_called_as_its_file(tmp_path: Path) -> None:
    path = tmp_path / "My Jobs.toml"
    path.write_text('[[jobs]]\nrun = "true"\n')
    assert batch_file.read(path).name == "my-jobs"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('[[jobs]]\nrun = "true"\n[[jobs]]\nrun = "true"\ngpsu = 1\n', 5, "Did you mean 'gpus'?"),
        ('[[jobs]]\nrun = "true"\n[jobs.resume]\nchekpoint = "x"\n', 4, "'checkpoint'?"),
        ('[defaults]\ntimes = "4h"\n[[jobs]]\nrun = "true"\n', 2, "Did you mean 'time'?"),
        ('[[job]]\nrun = "true"\n', 1, "Did you mean 'jobs'?"),
        ('[[jobs]]\nname = "a"\n', 1, "either a command or a line to run"),
        ('[[jobs]]\nrun = "a"\ncommand = ["a"]\n', 2, "either a command or a line to run"),
        ('[[jobs]]\nrun = "python x.py && python y.py"\n', 2, "& means something to a shell"),
        ('[[jobs]]\nrun = "python {index}"\n', 2, "{index} stands for nothing without a count"),
        ('[[jobs]]\nrun = "a --seed={indx}"\ncount = 2\n', 2, "Did you mean {index}?"),
        ('[[jobs]]\nrun = "true"\ncount = 0\n', 3, "from 1 to"),
        ('[[jobs]]\nrun = "true"\nname = "0"\n', 3, "begins with a letter"),
        ('[[jobs]]\nrun = "true"\nname = "r1"\n', 3, "begins with a letter"),
        ('[[jobs]]\nrun = "true"\ntime = "soon"\n', 3, "time"),
        ('[[jobs]]\nrun = "true"\nafter = "other"\n', 3, "must be a list of texts"),
        ("jobs = 3\n", 1, "must be a list of tables"),
    ],
)
def test_a_mistake_is_told_with_its_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, text)
    assert f"jobs.toml:{line}: " in raised.value.message
    assert message in str(raised.value)


@pytest.mark.parametrize("line", ["a; b", "a | b", "a $X", 'a "$X"', "a `b`", "a > b", "a & b"])
def test_what_needs_a_shell_is_found(line: str) -> None:
    assert first_operator(line)
    with pytest.raises(ValueError, match="shell"):
        split_words(line)


@pytest.mark.parametrize("line", ["a ';' b", "a '$X'", r"a \$X", 'a ";" b', "a 'it\"s $5'"])
def test_what_is_quoted_is_no_operator(line: str) -> None:
    assert first_operator(line) == ""


# -- groups -------------------------------------------------------------------------------------


def grouped(tmp_path: Path, text: str) -> list[tuple[str, bool, int]]:
    found = groups_of(read(tmp_path, text))
    return [(one.name, one.is_array, len(one.jobs)) for one in found]


def test_jobs_without_a_name_that_are_alike_become_an_array(tmp_path: Path) -> None:
    jobs = "".join(f'[[jobs]]\nrun = "python train.py {n}"\n' for n in range(3))
    other = '[[jobs]]\nrun = "python train.py 9"\ngpus = 2\n'
    named = '[[jobs]]\nrun = "python train.py 8"\nname = "own"\n'
    assert grouped(tmp_path, jobs + other + named) == [
        ("train", True, 3),
        ("train-2", False, 1),
        ("own", False, 1),
    ]


def test_a_count_is_an_array_of_its_own(tmp_path: Path) -> None:
    assert grouped(tmp_path, '[[jobs]]\nrun = "a {index}"\ncount = 2\n' * 2) == [
        ("a", True, 2),
        ("a-2", True, 2),
    ]


def test_those_that_come_first_are_submitted_first(tmp_path: Path) -> None:
    text = (
        '[[jobs]]\nname = "c"\nrun = "c"\nafter = ["b", "a"]\n'
        '[[jobs]]\nname = "b"\nrun = "b"\ninputs = { x = "a:out" }\n'
        '[[jobs]]\nname = "a"\nrun = "a"\ncount = 2\n'
    )
    groups = groups_of(read(tmp_path, text))
    named = Named(groups, "batch-7f3k")
    assert [one.name for one in in_order(groups, named)] == ["a", "b", "c"]
    assert named.ids("a", groups[0].entry) == ["batch-7f3k.a.0", "batch-7f3k.a.1"]
    assert named.ids("a.1", groups[0].entry) == ["batch-7f3k.a.1"]
    with pytest.raises(ConfigError, match="a has 2"):
        named.ids("a.2", groups[0].entry)


def test_a_circle_is_refused(tmp_path: Path) -> None:
    text = (
        '[[jobs]]\nname = "a"\nrun = "a"\nafter = ["b"]\n'
        '[[jobs]]\nname = "b"\nrun = "b"\nafter = ["a"]\n'
    )
    groups = groups_of(read(tmp_path, text))
    with pytest.raises(ConfigError, match="a after b after a"):
        in_order(groups, Named(groups, "batch-7f3k"))


@pytest.mark.parametrize("name", ["host", "rank1", "r2", "7", "a" * 31])
def test_a_name_that_means_something_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"jobs\.toml:2: .*a name is of small letters"):
        read(tmp_path, f'[[jobs]]\nname = "{name}"\nrun = "true"\n')


def test_a_program_may_be_called_so(tmp_path: Path) -> None:
    (group,) = groups_of(read(tmp_path, '[[jobs]]\nrun = "host"\n'))
    assert group.name == "job-host"


def test_two_jobs_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"jobs.toml:4: there are two jobs called 'a'|two jobs"):
        groups_of(read(tmp_path, '[[jobs]]\nname = "a"\nrun = "a"\n' * 2))


def test_braces_that_are_the_programs_own_stay(tmp_path: Path) -> None:
    path = tmp_path / "batch.toml"
    path.write_text('[[jobs]]\nrun = "a {index} --name={id}-{node}"\ncount = 2\n')
    assert batch_file.read(path).jobs[0].commands[1] == ("a", "1", "--name={id}-{node}")
