"""A pod whose job cannot be read fails its Job, instead of being followed by a thousand others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dray.clusters.kube.manifest import failure_policy


@pytest.mark.parametrize("content", [None, "not a description", "{}"])
def test_it_fails_the_job(tmp_path: Path, content: str | None) -> None:
    folder = tmp_path / "jobs/gone-7f3k"
    if content is not None:
        folder.mkdir(parents=True)
        (folder / "job.json").write_text(content)
    pod = [
        sys.executable,
        "-c",
        "import sys; from dray.node.__main__ import main; sys.exit(main(sys.argv[1:]))",
    ]
    ended = subprocess.run(
        [*pod, "pod", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    (rule,) = failure_policy()["rules"]
    assert rule["action"] == "FailJob"
    assert ended.returncode in rule["onExitCodes"]["values"]
    assert "description is damaged" in ended.stdout
