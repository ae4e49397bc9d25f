"""Optuna, MLflow and TensorBoard as they come from PyPI, in an environment of their own."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import environment, wait_for
from tests.rigs.processes import free_ports

HERE = Path(__file__).parent
STARTING = 300.0  # seconds: MLflow's server imports for long, on a busy machine


@pytest.fixture(scope="session")
def tools() -> Path:
    """The bin folder of the environment."""
    return environment("sweeps")


@pytest.fixture(scope="session")
def ask(tools: Path) -> Callable[..., Any]:
    """Runs a script of this folder with that environment's Python; its stdout is JSON."""

    def ask(script: str, *arguments: str | Path) -> Any:
        words = [tools / "python", HERE / script, *arguments]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=STARTING)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return ask


@pytest.fixture(scope="session")
def mlflow_server(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real MLflow server, on the loopback, with a database of its own."""
    folder = tmp_path_factory.mktemp("mlflow")
    (port,) = free_ports(1)
    words = [tools / "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    words += ["--default-artifact-root", str(folder / "artifacts")]
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, (folder / "log").read_text()
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, cwd=folder)
    try:
        wait_for(answers, STARTING)
        yield address
    finally:
        end_session(server)


def end_session(server: subprocess.Popen[bytes]) -> None:
    """End the server and the workers that it has started: they are its session."""
    import os
    import signal

    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, number)
            server.wait(20)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return
