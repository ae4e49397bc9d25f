"""The verbs from Python."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import dray as package
from dray import errors
from dray.description import describing
from dray.errors import NotFound, TimedOut, UsageError
from dray.job import options
from dray.job.keywords import JobSettings, LimitSettings, keyword
from dray.job.model import JobSpec, JobState, JobView, Resources
from dray.store import Store


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAY_HOME", str(tmp_path / "dray"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")


def test_the_public_names_are_these() -> None:
    verbs = {"Job", "Jobs", "jobs", "run", "run_many", "__version__"}
    settings = {"JobSettings", "LimitSettings"}
    views = {"Attempt", "JobSpec", "JobState", "JobView", "Series"}
    families = {one.__name__ for one in errors.DrayError.__subclasses__()}
    assert set(package.__all__) == {
        *verbs,
        *settings,
        *views,
        *families,
        "DrayError",
        "ConfigError",
    }
    assert all(hasattr(package, name) for name in package.__all__)
    assert package.NotFound is NotFound
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing  # type: ignore[attr-defined]


def test_importing_dray_imports_nothing_heavy() -> None:
    heavy = "{'click', 'sqlite3', 'pathlib'}"
    code = f"import sys, dray; print(sorted({heavy} & set(sys.modules)))"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "[]\n"


def test_a_trainer_imports_nothing_of_dray_but_its_library() -> None:
    """Where dray is installed; where it is not, see tests/unit/test_training.py."""
    code = "import sys, dray.training; print([one for one in sys.modules if one[:4] == 'dray'])"
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert seen.stdout == "['dray', 'dray.training']\n"


def test_the_curve_of_a_job() -> None:
    code = "import dray.training as t; t.report(step=3, reward=0.5, loss=2)"
    job = package.run([sys.executable, "-c", code])
    assert job.wait(timeout=60) == "done"
    assert job.curve() == ("reward", ((3, 0.5, 1),))
    job.remove()


def test_run_wait_logs_pull_remove(tmp_path: Path) -> None:
    code = "open('logs/x', 'w').write('1'); print('hello', flush=True)"
    job = package.run([sys.executable, "-c", code], on="local", cpus=1, outputs=["logs"])
    assert job.wait(timeout=60) == "done"
    assert b"".join(job.logs()) == b"hello\n"
    assert (job.pull(tmp_path / "home") / "logs/x").read_text() == "1"
    assert (job.pull(tmp_path / "one", only=["logs/*"]) / "logs/x").exists()
    assert [one.id for one in package.jobs()] == [job.id]
    assert package.Job(job.id).show().state == "done"
    with pytest.warns(DeprecationWarning, match=r"Job\.show\(\)\.state"):
        assert job.state == "done"
    with pytest.warns(DeprecationWarning, match=r"Job\.show\(\)"):
        assert job.view.id == job.id
    job.remove()
    with pytest.raises(NotFound):
        package.Job(job.id)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_an_interrupted_pull_has_brought_is_replaced_by_the_next(tmp_path: Path) -> None:
    code = "open('logs/a', 'w').write('1'); open('logs/b', 'w').write('2' * 3000000)"
    job = package.run([sys.executable, "-c", code], on="local", cpus=1, outputs=["logs"])
    assert job.wait(timeout=60) == "done"
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("my own")
    with files_no_larger_than(2_000_000), pytest.raises(OSError, match="File too large"):
        job.pull(folder)
    assert os.listdir(folder / "logs") == ["a"]
    outputs = tmp_path / "dray/local/jobs" / job.id / "outputs"
    (outputs / "logs/a").write_text("new")
    job.pull(folder)
    assert (folder / "logs/a").read_text() == "new"
    assert (folder / "logs/b").stat().st_size == 3_000_000
    job.remove()


@pytest.mark.parametrize("many", [False, True], ids=["a job", "an array"])
def test_ids_get_longer_where_a_cluster_claims_all_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    monkeypatch.setattr(describing, "ID_LETTERS", "a")  # so that there is one of each length
    claimed = [f"true-{'a' * letters}{'.0' if many else ''}" for letters in range(4, 9)]
    with closing(Store(tmp_path / "dray/store.db")) as store:
        for job_id in claimed:
            spec = JobSpec(id=job_id, name="true", command=("evil",), resources=Resources())
            store.save([JobView(spec=spec, cluster="evil", state=JobState.DONE)])
    job = package.run_many([["true"]])[0] if many else package.run(["true"])
    assert job.id == f"true-{'a' * 9}{'.0' if many else ''}"
    assert job.wait(timeout=60) == "done"


def test_stop_and_resume() -> None:
    job = package.run([sys.executable, "-c", "import time; time.sleep(60)"], snapshot=False)
    with pytest.raises(TimedOut):
        job.wait(timeout=0.2)
    assert job.stop(now=True) == "stopped"
    job.resume()
    assert job.show().state in ("queued", "running")
    assert job.stop(now=True) == "stopped"


def test_following_the_log_ends_with_the_job() -> None:
    code = "import time\nfor i in range(3): print(i, flush=True); time.sleep(0.1)"
    job = package.run([sys.executable, "-c", code])
    assert b"".join(job.logs(follow=True)) == b"0\n1\n2\n"


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UsageError, match="Did you mean 'gpus'"):
        package.run(["true"], gpu=1)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="one text"):
        package.run("python train.py")
    with pytest.raises(UsageError, match="time"):
        package.run(["true"], time="soon")


def test_several_jobs_are_waited_for_and_stopped_together() -> None:
    codes = ["print(1)", "raise SystemExit(3)", "print(2)"]
    jobs = package.run_many([[sys.executable, "-c", code] for code in codes], cpus=1)
    assert jobs.wait(timeout=60) == ["done", "failed", "done"] == jobs.states()
    assert [view.id for view in jobs.show()] == jobs.ids == [job.id for job in jobs]
    assert jobs.stop() == ["done", "failed", "done"]  # there is nothing to stop
    assert isinstance(jobs[1:], package.Jobs)
    assert (len(jobs), jobs[1:].ids, jobs[0].id) == (3, jobs.ids[1:], jobs.ids[0])
    assert sorted(package.jobs().ids) == sorted(jobs.ids)
    lasting = package.run_many([["sleep", "60"]] * 2, snapshot=False)
    with pytest.raises(TimedOut, match="2 jobs are still active"):
        lasting.wait(timeout=0.2)
    assert lasting[:1].stop(now=True) == ["stopped"]
    assert lasting.stop(now=True) == ["stopped", "stopped"]
    lasting[0].remove()
    with pytest.raises(NotFound, match="any more"):
        lasting.states()
    assert package.run_many([]).wait() == []


# -- keywords -------------------------------------------------------------------------------------


def test_every_setting_is_a_keyword_with_a_type() -> None:
    names = [keyword(option) for option in options.JOB]
    assert len(set(names)) == len(names)
    assert set(JobSettings.__annotations__) == set(names) - {"on"}
    assert set(LimitSettings.__annotations__) == {keyword(option) for option in options.LIMITS}


def test_an_earlier_name_of_a_setting_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="main= is now called metrics=") as warned:
        job = package.run(["true"], main=["reward"])  # type: ignore[call-arg]
    assert [one.filename for one in warned] == [__file__]
    assert job.show().spec.metrics.main == ("reward",)
    again = package.run(["true"], metrics=["reward"], container_home="scratch").show()
    assert again.spec.metrics.main == ("reward",)
    with (
        pytest.warns(DeprecationWarning, match="main="),
        pytest.raises(UsageError, match="metrics: it is given twice, as main too"),
    ):
        package.run(["true"], metrics=["a"], main=["b"])  # type: ignore[call-arg]
    assert package.jobs().wait(timeout=60) == ["done", "done"]
