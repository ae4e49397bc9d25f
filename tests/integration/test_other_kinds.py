"""Kinds of cluster that other packages bring, as docs/contributing/adding-a-cluster.md tells."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Dray

PAGE = Path(__file__).parents[2] / "docs/contributing/adding-a-cluster.md"
BLOCK = re.compile(r"`([\w./~-]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of the page, installed by pip into a folder of its own."""
    source, target = tmp_path_factory.mktemp("dray-lab"), tmp_path_factory.mktemp("site")
    written = dict(BLOCK.findall(PAGE.read_text()))
    assert list(written) == ["dray_lab.py", "pyproject.toml", "~/.config/dray/config.toml"]
    for name in ("dray_lab.py", "pyproject.toml"):
        (source / name).write_text(written[name])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-build-isolation", "--disable-pip-version-check", "--target", str(target)]
    ended = subprocess.run([*pip, str(source)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return target


@pytest.fixture
def lab(dray: Dray, site: Path) -> Dray:
    """With the page's own settings, on a disk of the test's."""
    settings = dict(BLOCK.findall(PAGE.read_text()))["~/.config/dray/config.toml"]
    dray.configure(settings.replace("/data/me", str(dray.home / "disk")))
    dray.env["PYTHONPATH"] = str(site)
    return dray


def test_the_page_is_followed_to_the_letter(lab: Dray) -> None:
    job = lab.run("--on", "bench", "--", "sh", "-c", "echo at the lab")
    assert lab.wait(job)["state"] == "done"
    assert lab.log(job) == "at the lab\n"
    assert (lab.home / "disk/dray/jobs" / job).is_dir()
    shown = json.loads(lab("cluster", "show", "--json", "bench").stdout)
    assert (shown["kind"], shown["capabilities"]["gpus"]) == ("lab", 1)
    listed = json.loads(lab("ps", "--json", "--all").stdout)
    assert [(one["id"], one["cluster"]) for one in listed] == [(job, "bench")]


def test_a_cluster_of_that_kind_can_be_added(lab: Dray) -> None:
    disk = lab.home / "other"
    add = ("cluster", "add", "other", "--kind", "lab", "--set", f"disk={disk}", "--set", "share=0")
    lab(*add)
    job = lab.run("--on", "other", "--", "true")
    assert lab.wait(job)["state"] == "done"
    assert (disk / "dray/jobs" / job).is_dir()
    shown = json.loads(lab("cluster", "show", "--json", "other").stdout)
    assert shown["settings"] == {"disk": str(disk), "share": "0"}
    wrong = lab(*add[:-1], "shares=1", "--replace", check=False)
    assert "a cluster of kind lab has no --shares" in wrong.stderr
    unknown = lab("cluster", "add", "other", "--kind", "labs", check=False)
    assert "there is local, slurm, pbs, ssh, kubernetes, ray, lab" in unknown.stderr


def test_its_settings_are_checked_like_all_others(lab: Dray) -> None:
    path = lab.configure('[clusters.bench]\nkind = "lab"\nshare = -1\n')
    ended = lab("ps", check=False)
    assert f"{path}:3: clusters.bench.share: '-1' is not a whole number" in ended.stderr
    lab.configure('[clusters.bench]\nkind = "lab"\ndisc = "/data"\n')
    ended = lab("ps", check=False)
    assert "unknown key. Did you mean 'disk'?" in ended.stderr
    assert "Valid keys here: disk, kind, share." in ended.stderr
    lab.configure('[clusters.bench]\nkind = "labs"\n')
    assert "there is local, slurm, pbs, ssh, kubernetes, ray, lab" in lab("ps", check=False).stderr


def test_a_project_may_set_what_the_kind_calls_harmless(lab: Dray) -> None:
    lab.write("dray.toml", "[clusters.bench]\nshare = 0\n")
    shown = json.loads(lab("cluster", "show", "--json", "bench").stdout)
    assert shown["capabilities"]["gpus"] == 0
    lab.write("dray.toml", '[clusters.bench]\ndisk = "/elsewhere"\n')
    refused = lab("run", "--on", "bench", "--", "true", check=False)
    assert refused.returncode != 0
    assert "dray trust" in refused.stderr


def announce(folder: Path, module: str, points: str) -> None:
    """A package as pip lays it out."""
    about = folder / "somebody-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[dray.clusters]\n{points}\n")
    (folder / "somebody.py").write_text(module)


BROKEN = [
    "import no_such_module",
    "KIND = 'none'",
    "from dray.job.options.kinds import Kind\nKIND = Kind((), cluster='somebody:Missing')",
    "from dray.job.options.kinds import Kind\nKIND = Kind((), cluster=lambda *_: 1 / 0)",
]


@pytest.mark.parametrize("module", BROKEN)
def test_a_broken_package_stops_only_what_uses_it(dray: Dray, module: str) -> None:
    announce(dray.home / "site", module, "broken = somebody:KIND")
    dray.env["PYTHONPATH"] = str(dray.home / "site")
    dray.configure('[clusters.theirs]\nkind = "broken"\n')
    job = dray.run("--", "true")
    assert dray.wait(job)["state"] == "done"
    assert job in dray("ps", "--all").stdout
    assert "theirs" in dray("cluster", "list").stdout
    refused = dray("run", "--on", "theirs", "--", "true", check=False)
    assert refused.returncode != 0
    assert "theirs is of kind broken, which cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_built_in_name_cannot_be_taken(dray: Dray) -> None:
    announce(dray.home / "site", "raise SystemExit('imported')", "local = somebody:KIND")
    dray.env["PYTHONPATH"] = str(dray.home / "site")
    dray.configure('[clusters.mine]\nkind = "local"\n')
    assert dray.wait(dray.run("--on", "mine", "--", "true"))["state"] == "done"


def test_a_projects_folder_brings_no_kind(dray: Dray) -> None:
    """Also where Python is started as ``python -m dray``, and so looks into it."""
    announce(dray.project, "open('imported', 'w')", "theirs = somebody:KIND")
    dray.write("dray.toml", '[clusters.x]\nkind = "theirs"\n')
    ended = subprocess.run(
        [sys.executable, "-m", "dray", "run", "--", "true"],
        cwd=dray.project,
        env=dray.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "unknown kind 'theirs'; there is local, slurm, pbs" in ended.stderr
    assert not (dray.project / "imported").exists()
