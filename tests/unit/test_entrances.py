"""How running jobs were last entered, as doctor tells it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dray.clusters.pbs import PbsCluster
from dray.clusters.protocol import Entrance
from dray.clusters.slurm import SlurmCluster
from dray.errors import ClusterError, Refused
from dray.home import Home
from dray.launcher.entrances import Entrances
from dray.transport.channel import LinkLost


def cluster(entrance: Entrance) -> Any:
    return SimpleNamespace(name="far", sessions=SimpleNamespace(entrance=lambda: entrance))


def test_what_went_wrong_is_told_until_it_goes_right(tmp_path: Path) -> None:
    there = cluster(Entrance("kubectl exec"))
    entrances = Entrances(Home(tmp_path, tmp_path, tmp_path))
    (first,) = entrances.findings(there)
    assert (first.ok, first.detail) == (True, "kubectl exec; not used yet")
    for error in (ClusterError("no exec here"), LinkLost("gone"), Refused("it waits")):
        with pytest.raises(type(error)), entrances.remembered(there, "train-1a2b"):
            raise error
    (found,) = entrances.findings(there)  # neither a lost link nor a job that waits is its fault
    assert not found.ok
    assert found.detail.endswith("into train-1a2b: no exec here")
    with entrances.remembered(there, "train-3c4d"):
        pass
    (found,) = entrances.findings(there)
    assert found.ok
    assert found.detail.endswith("into train-3c4d")


def test_where_there_is_no_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = SlurmCluster("old", {"host": "login"}, tmp_path, tmp_path)
    monkeypatch.setattr(slurm, "known_facts", lambda: {"slurm": "slurm 20.02.7"})
    (found,) = Entrances(Home(tmp_path, tmp_path, tmp_path)).findings(slurm)
    assert found.ok
    assert "there is no way into running jobs" in found.detail
    assert "20.02.7" in found.detail


def test_the_way_into_jobs_of_pbs(tmp_path: Path) -> None:
    pbs = PbsCluster("pbs", {"host": "login"}, tmp_path, tmp_path)
    (found,) = Entrances(Home(tmp_path, tmp_path, tmp_path)).findings(pbs)
    assert found.ok
    assert "from the job to the login node" in found.detail
