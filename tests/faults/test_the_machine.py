"""The machine that looks for faults finds those that are put in on purpose."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import dray
from tests.faults import cuts
from tests.faults.kinds import Local
from tests.faults.points import STAY, Point
from tests.faults.site import Site
from tests.faults.trial import surroundings, trial, undisturbed

pytestmark = [pytest.mark.faults]


@dataclass(frozen=True)
class Plant:
    """A mistake that somebody could make, written behind a module's code, and where it shows."""

    file: str
    code: str
    where: tuple[str, str, str, str]  # life, role, how, and the end of the file's name
    complaint: str


PLANTS = {
    "secrets of a killed keeper are left": Plant(
        "node/jobs/jobdir.py",
        "JobDir.drop_secrets = lambda self: None",
        ("train", "keeper", "kill", "/secrets.json"),
        "the secret is left",
    ),
    "a lost attempt is told as done": Plant(
        "node/attempt/outcomes.py",
        """
        def record_lost(job_dir, job, number, reason):
            record = {"outcome": "done", "reason": "", "exit_code": 0, "ended": time.time()}
            write_with_retries(job_dir.attempt(number).outcome, record)
        """,
        ("train", "supervisor", "kill", "/log"),
        "its command never ended",
    ),
}
UNSYNCED = "def sync_folder(path): pass"


class Patched(Local):
    """This machine, with a dray that has a mistake in it."""

    def __init__(self, code: Path) -> None:
        self.code = code

    def offer(self, site: Site) -> None:
        site.dray.env["PYTHONPATH"] = str(self.code)


def patched(folder: Path, file: str, code: str) -> Patched:
    shutil.copytree(Path(dray.__file__).parent, folder / "dray")
    with (folder / "dray" / file).open("a") as module:
        module.write("\n\n" + textwrap.dedent(code) + "\n")
    return Patched(folder)


@pytest.mark.parametrize("mistake", PLANTS)
def test_a_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    plant = PLANTS[mistake]
    kind = patched(tmp_path / "code", plant.file, plant.code)
    life, role, how, name = plant.where
    usual = undisturbed(kind, life)
    series = usual.series(role, how)
    places = [one for one in series.points() if series.what(one)[1].endswith(name)]
    verdicts = (trial(kind, point, usual) for point in places)
    assert any(plant.complaint in wrong for verdict in verdicts for wrong in verdict.wrong)


def test_a_missing_sync_is_found(tmp_path: Path) -> None:
    """The power goes when the job's id was printed: its directory may be gone."""
    kind = patched(tmp_path / "code", "node/formats/files.py", UNSYNCED)
    with surroundings(kind, messages=False) as site:
        told = cuts.record(site, kind)
        printed = next(number for number, call in enumerate(told.calls, 1) if call.what == "say")
        tried = (cuts.after(told, cuts.Cut("strict", seed, printed), None) for seed in range(20))
        assert any("not in ps" in wrong for found in tried for wrong in found)


def test_an_error_that_stays_is_met_again(request: pytest.FixtureRequest) -> None:
    """By a retry, or by whatever comes next; then it is over."""
    with surroundings(Local(request)) as site:
        site.shim.plan(Point("local", "train", "keeper", "ENOSPC+", 1).fault)
        site("run", "--", "/bin/true", shimmed=True)
        site.settle()
        assert site.shim.strikes() == STAY
