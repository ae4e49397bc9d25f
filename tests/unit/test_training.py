"""The library for one's own trainer, in a fresh interpreter: what it reads is its environment."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dray.programs import shipping

BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")  # has no dray


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shipping.install(tmp_path_factory.mktemp("root"))


class Trainer:
    """Runs a piece of Python as a dray job would see it: nothing but the node's file."""

    def __init__(self, folder: Path, app: Path) -> None:
        self.folder = folder
        self.app = app

    def __call__(self, code: str, **env: str) -> str:
        ended = subprocess.run(
            [BASE_PYTHON, "-c", f"import dray.training as t\n{code}"],
            cwd=self.folder,
            env={"PYTHONPATH": str(self.app), **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    def reports(self) -> list[dict[str, object]]:
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def trainer(tmp_path: Path, app: Path) -> Trainer:
    return Trainer(tmp_path, app)


def test_it_is_harmless_outside_dray(trainer: Trainer) -> None:
    code = "print(t.resume_path(), t.should_checkpoint(), t.seconds_left(), t.report(step=1, a=2))"
    assert trainer(code) == "None False None None"
    assert list(trainer.folder.iterdir()) == []


def test_it_needs_nothing_but_the_standard_library(trainer: Trainer) -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith('dray')])"
    assert trainer(code) == "['dray', 'dray.training']"


def test_any_other_dray_goes_first(trainer: Trainer) -> None:
    """Of whichever place: in the folder of the script, or installed (further down the path)."""
    theirs = trainer.folder / "site" / "dray"
    (theirs / "training").mkdir(parents=True)
    (theirs / "__init__.py").write_text("whose = 'theirs'")
    (theirs / "training" / "__init__.py").write_text("")
    path = f"{trainer.app}:{theirs.parent}"
    assert trainer("import dray; print(dray.whose)", PYTHONPATH=path) == "theirs"


def test_a_trainer_finds_only_names_of_ours_in_the_file(app: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(app).namelist()}
    assert tops == {"__main__.py", "__main__.pyc", "dray", "dray_node", "dray_startup"}


def test_resume_path_is_the_checkpoint(trainer: Trainer) -> None:
    assert trainer("print(t.resume_path())", DRAY_CHECKPOINT="/a/b.pt") == "/a/b.pt"


def test_a_signal_asks_for_one_checkpoint(trainer: Trainer) -> None:
    code = """
import os, signal
seen = []
signal.signal(signal.SIGUSR2, lambda *_: seen.append("mine"))
first = t.should_checkpoint()
os.kill(os.getpid(), signal.SIGUSR2)
print(first, t.should_checkpoint(), t.should_checkpoint(), seen)
"""
    asked = trainer(code, DRAY_CHECKPOINT_SIGNAL="USR2", DRAY_DEADLINE="1", DRAY_GRACE="1")
    assert asked == "False True False ['mine']"


def test_a_trainer_that_never_asks_does_not_handle_the_signal(trainer: Trainer) -> None:
    code = "import signal; print(signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL)"
    assert trainer(code, DRAY_CHECKPOINT_SIGNAL="USR1") == "True"


def test_without_a_signal_the_deadline_asks_once(trainer: Trainer) -> None:
    code = "import os, time\nos.environ['DRAY_DEADLINE'] = str(time.time() + LEFT)\n"
    code += "print(t.should_checkpoint(), t.should_checkpoint())"
    assert trainer(code.replace("LEFT", "1000"), DRAY_GRACE="30") == "False False"
    assert trainer(code.replace("LEFT", "50"), DRAY_GRACE="30") == "True False"


def test_one_can_save_by_time_alone(trainer: Trainer) -> None:
    assert trainer("print(t.should_checkpoint(every=0), t.should_checkpoint(9))") == "True False"


def test_reports_of_all_attempts_are_one_file(trainer: Trainer) -> None:
    outputs = str(trainer.folder)
    trainer("t.report(step=1, reward=2, loss='0.5')", DRAY_OUTPUTS=outputs, DRAY_ATTEMPT="1")
    with (trainer.folder / "metrics.jsonl").open("a") as file:
        file.write('{"attempt": 1, "st')  # killed in the middle of a line
    trainer("t.report(2, reward=float('nan'))", DRAY_OUTPUTS=outputs, DRAY_ATTEMPT="2")
    lines = (trainer.folder / "metrics.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[2])
    assert (first["attempt"], first["step"], first["values"]) == (1, 1, {"reward": 2, "loss": 0.5})
    assert (last["attempt"], last["step"], last["values"]) == (2, 2, {"reward": None})


def test_only_rank_zero_reports(trainer: Trainer) -> None:
    code = "t.report(1, rank_is=t.rank())"
    for number in ("0", "1"):
        trainer(code, DRAY_OUTPUTS=str(trainer.folder), RANK=number)
    trainer(code, DRAY_OUTPUTS=str(trainer.folder), SLURM_PROCID="2")
    assert [one["values"] for one in trainer.reports()] == [{"rank_is": 0.0}]


def test_a_report_that_cannot_be_written_does_not_end_the_training(trainer: Trainer) -> None:
    assert trainer("t.report(1, a=1); print('on')", DRAY_OUTPUTS="/dev/null/no") == "on"


SAVE = """
import os
for content in ("one", "two"):
    with t.save_atomically("sub/model.pt") as path:
        open(path, "w").write(content)
        assert path.endswith(".pt") and (content == "one") != os.path.exists("sub/model.pt")
try:
    with t.save_atomically("sub/model.pt") as path:
        open(path, "w").write("half")
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
for content in ("one", "two"):
    with t.save_atomically("folder") as path:
        os.mkdir(path)
        open(path + "/" + content, "w").write(content)
"""


def test_what_is_saved_appears_whole(trainer: Trainer) -> None:
    trainer(SAVE)
    assert (trainer.folder / "sub/model.pt").read_text() == "two"
    assert [path.name for path in (trainer.folder / "sub").iterdir()] == ["model.pt"]
    assert [path.name for path in (trainer.folder / "folder").iterdir()] == ["two"]
