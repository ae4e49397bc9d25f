"""Sweeps for other tools, as far as this machine can tell; see tests/sweeps for the tools."""

from __future__ import annotations

import csv
import http.server
import io
import json
import math
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from dray.cli.sweep_export import write_text
from dray.errors import ClusterError, NotFound, Refused, UsageError
from dray.node.metrics.tfevents import read
from dray.node.sweeps import mlflow as mlflow_requests
from dray.sweep import mlflow, space
from dray.sweep.export import event_files, optuna, tables, tensorboard, to_mlflow
from dray.sweep.export.points import points_of
from dray.sweep.study import Study, Trial

SPACE = space.whole(
    [
        space.from_flag(one)
        for one in (
            "agent.lr=1e-5..1e-1:log",
            "--num_envs=512,1024",
            "units=[64,64],[128]",
            "double==num_envs*2",
        )
    ]
)
STUDY = Study(id="policy-7f3k", space=SPACE, metric="Train/mean_reward", created=1.7e9, repeats=2)
VALUES = {"agent.lr": 0.001, "--num_envs": 512, "units": (64, 64), "double": 1024}


def trial(number: int, state: str = "done", **more: Any) -> Trial:
    known: dict[str, Any] = {
        "number": number,
        "configuration": number // 2,
        "job": f"policy-7f3k.{number}",
        "cluster": "euler",
        "values": VALUES,
        "state": state,
        "value": 12.5,
        "step": 900,
        "rungs": {100: 3.0, 300: math.nan},
        "gpu_seconds": 60.0,
    }
    return Trial(**{**known, **more})


# -- tables -------------------------------------------------------------------------------------


def test_csv_has_a_line_for_each_trial() -> None:
    trials = [trial(1, "failed", value=None, reason="=cmd|' /C calc'!A0"), trial(0)]
    first, second = csv.DictReader(io.StringIO(tables.as_csv(STUDY, trials)))
    assert (first["trial"], first["value"], first["agent.lr"]) == ("0", "12.5", "0.001")
    assert json.loads(first["units"]) == [64, 64]
    assert second["value"] == ""
    assert second["reason"].startswith("'=")  # a spreadsheet does not compute it


def test_json_has_everything_and_is_json() -> None:
    text = tables.as_json(STUDY, [trial(0), trial(1, value=math.inf)])
    told = json.loads(text, parse_constant=lambda name: pytest.fail(name))
    assert told["sweep"]["id"] == "policy-7f3k"
    assert [one["value"] for one in told["configurations"][0]["trials"]] == [12.5, "inf"]


# -- TensorBoard --------------------------------------------------------------------------------


def accumulated(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_tensorboard_reads_curves_and_parameters(tmp_path: Path) -> None:
    trials = [trial(0), trial(1, "pruned"), trial(2, "queued")]
    curves = {STUDY.metric: {"policy-7f3k.0": [(1, 1.0), (2, 2.0)]}}
    assert tensorboard.write(tmp_path, STUDY, trials, curves) == 2
    assert {one.name for one in tmp_path.iterdir()} == {"policy-7f3k.0", "policy-7f3k.1"}
    first = accumulated(tmp_path / "policy-7f3k.0")
    points = [(one.step, one.value) for one in first.Scalars("Train/mean_reward")]
    assert points == [(1, 1.0), (2, 2.0), (900, 12.5)]
    content = first.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    start = metadata.parse_session_start_info_plugin_data(content)
    assert start.hparams["agent.lr"].number_value == 0.001
    assert start.hparams["units"].string_value == "[64,64]"
    second = accumulated(tmp_path / "policy-7f3k.1")
    content = second.summary_metadata[metadata.SESSION_START_INFO_TAG].plugin_data.content
    again = metadata.parse_session_start_info_plugin_data(content)
    assert again.group_name == start.group_name  # repeats of the same configuration
    content = second.summary_metadata[metadata.SESSION_END_INFO_TAG].plugin_data.content
    assert metadata.parse_session_end_info_plugin_data(content).status == event_files.FAILURE


def test_an_export_can_be_repeated(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        tensorboard.write(tmp_path, STUDY, [trial(0, value=value, rungs={})])
    (file,) = (tmp_path / "policy-7f3k.0").iterdir()
    (point,) = read(str(file), 0, re.compile(b"mean_reward"))[0]
    assert point[:3] == ("Train/mean_reward", 900, 2.0)


def test_texts_are_shown(tmp_path: Path) -> None:
    parts = [event_files.version(1.0), event_files.string("params/lr", "0.001 é", 1.0)]
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"".join(parts))
    (found,) = accumulated(tmp_path).Tensors("params/lr/text_summary")
    assert found.tensor_proto.string_val[0].decode() == "0.001 é"


def test_a_value_beyond_all_floats_is_written(tmp_path: Path) -> None:
    parts = [event_files.version(1.0), event_files.scalar("a", -1e300, 3, 1.0)]
    (tmp_path / "events.out.tfevents.1.x").write_bytes(b"".join(parts))
    assert accumulated(tmp_path).Scalars("a")[0].value == -math.inf


# -- points -------------------------------------------------------------------------------------


def test_a_curve_that_was_brought_along_is_not_changed() -> None:
    brought = {"policy-7f3k.0": [(300, 1.0), (900, 9.0)]}
    assert points_of(trial(0), brought) == [(300, 1.0), (900, 9.0)]
    assert [step for step, _ in points_of(trial(0), {})] == [100, 300, 900]


# -- Optuna -------------------------------------------------------------------------------------


def test_a_journal_has_what_optuna_chooses_apart_from_what_follows() -> None:
    *_, line = optuna.journal(STUDY, [trial(0)])
    assert line["params"] == {"agent.lr": 0.001, "--num_envs": 0, "units": 0}
    assert line["user_attrs"]["double"] == 1024
    assert json.loads(line["distributions"]["units"])["attributes"]["choices"][0] == "[64, 64]"
    assert line["intermediate_values"] == {"100": 3.0}


def test_a_value_that_is_not_of_the_space_is_an_attribute() -> None:
    odd = {**VALUES, "--num_envs": 7, "agent.lr": 5.0}
    *_, line = optuna.journal(STUDY, [trial(0, values=odd)])
    assert line["params"] == {"units": 0}
    assert line["user_attrs"]["--num_envs"] == 7


def test_a_journal_that_somebody_else_has_written_to_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    optuna.write(path, STUDY, [trial(0)])
    optuna.write(path, STUDY, [trial(0), trial(1)])
    assert len(path.read_text().splitlines()) == 5
    with path.open("a") as file:
        file.write('{"op_code": 2, "worker_id": "another", "study_id": 0}\n')
    before = path.read_text()
    with pytest.raises(Refused, match="not replaced"):
        optuna.write(path, STUDY, [trial(0)])
    assert path.read_text() == before


def test_a_journal_of_another_sweep_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    optuna.write(path, STUDY._replace(id="other-1"), [trial(0)])
    with pytest.raises(Refused, match="not written by dray alone for"):
        optuna.write(path, STUDY, [trial(0)])
    assert json.loads(path.read_text().splitlines()[0])["study_name"] == "other-1"


# -- MLflow -------------------------------------------------------------------------------------


def test_a_run_is_planned_with_names_that_mlflow_takes() -> None:
    plan = to_mlflow.planned(STUDY, trial(0, values={"+agent.lr": True, "x": (64, 64)}), {})
    assert plan.params == {"_agent.lr": "True", "x": "[64,64]"}
    assert plan.metrics[1] == {
        "key": "Train/mean_reward",
        "value": "NaN",
        "timestamp": 1700000000300,
        "step": 300,
    }
    states = ("done", "failed", "pruned", "stopped", "running")
    told = [to_mlflow.planned(STUDY, trial(0, state), {}).status for state in states]
    assert told == ["FINISHED", "FAILED", "KILLED", "KILLED", "RUNNING"]


def test_batches_keep_to_the_servers_limits() -> None:
    params = {f"p{at}": "v" for at in range(250)}
    metrics = [{"key": "m", "value": 1.0, "timestamp": at, "step": at} for at in range(3000)]
    long = {"note": "x" * 5000}
    found = list(mlflow_requests.batches(params, long, metrics))
    for batch in found:
        assert sum(map(len, batch.values())) <= 1000
        assert len(batch.get("params", ())) <= 100
        assert len(json.dumps(batch)) < 1_000_000
    assert sum(len(one.get("params", ())) for one in found) == 250
    assert sum(len(one.get("metrics", ())) for one in found) == 3000
    big = [{"key": "m" * 240, "value": 1.0, "timestamp": 1, "step": at} for at in range(20000)]
    assert all(len(json.dumps(one)) < 1_000_000 for one in mlflow_requests.batches({}, {}, big))


def test_credentials_go_nowhere_in_the_clear() -> None:
    token = {"MLFLOW_TRACKING_TOKEN": "t0ken"}
    assert mlflow.Server("https://x", token).headers["Authorization"] == "Bearer t0ken"
    assert "Authorization" in mlflow.Server("http://127.0.0.1:5000", token).headers
    with pytest.raises(Refused, match="not encrypted"):
        mlflow.Server("http://example.org:5000", token)
    with pytest.raises(UsageError, match="does not belong into an address"):
        mlflow.Server("https://me:secret@x", {})
    with pytest.raises(UsageError, match="not the address"):
        mlflow.Server("file:///tmp/mlruns", {})


class Odd(http.server.BaseHTTPRequestHandler):
    """A server that answers every request with the same."""

    answer: ClassVar[tuple[int, bytes]] = (200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.do_GET()

    def do_GET(self) -> None:
        code, body = self.answer
        self.send_response(code)
        self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[mlflow.Server]:
    with http.server.HTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield mlflow.Server(f"http://127.0.0.1:{server.server_port}", {})
        server.shutdown()
        thread.join()


RUN = '{"runs": [{"info": %s, "data": {}}]}'


@pytest.mark.parametrize(
    ("code", "body", "told"),
    [
        (200, "no JSON", "did not answer as it should"),
        (200, "[]", "did not answer as it should"),
        (200, "[" * 100_000, "did not answer as it should"),
        (200, '{"experiment": {"experiment_id": "1"}, "runs": 7}', "runs is no list"),
        (200, RUN % '{"run_id": "../../x"}', "not the id of a run"),
        (200, RUN % '{"run_id": "a", "start_time": "soon"}', "cannot be read"),
        (200, RUN % "[]", "cannot be read"),
        (302, "", "answered 302"),
        (401, "", "set MLFLOW_TRACKING_TOKEN"),
        (500, '{"error_code": "X", "message": "no \\u001b[2J"}', "answered 500"),
    ],
)
def test_a_server_that_answers_oddly_is_told(
    odd: mlflow.Server, monkeypatch: pytest.MonkeyPatch, code: int, body: str, told: str
) -> None:
    monkeypatch.setattr(Odd, "answer", (code, body.encode()))
    with pytest.raises(ClusterError) as error:
        list(odd.runs("1"))
    assert told in str(error.value)
    with pytest.raises((ClusterError, NotFound)):
        odd.create("1", "name", 0, {})


def test_a_file_of_another_kind_is_not_replaced(tmp_path: Path) -> None:
    trials = [trial(0), trial(1)]
    code = tmp_path / "train.py"
    code.write_text("import torch\n")
    for written in (tables.as_csv, tables.as_json):
        with pytest.raises(Refused, match="is not replaced"):
            write_text(code, written(STUDY, trials))
        own = tmp_path / written.__name__
        own.touch()
        write_text(own, written(STUDY, trials[:1]))
        write_text(own, written(STUDY, trials))
        assert own.read_text() == written(STUDY, trials)
    assert code.read_text() == "import torch\n"
    with pytest.raises(Refused, match="is not replaced"):
        write_text(tmp_path / "as_csv", tables.as_json(STUDY, trials))


def test_a_link_of_a_cloned_folder_does_not_choose_where_a_table_goes(tmp_path: Path) -> None:
    text = tables.as_csv(STUDY, [trial(0)])
    outside, link = tmp_path / "outside.txt", tmp_path / "out.csv"
    link.symlink_to(outside)
    for present in (False, True):
        if present:
            outside.touch()
        with pytest.raises(Refused, match="is not replaced"):
            write_text(link, text)
    assert outside.read_text() == ""
    outside.write_text(text)
    write_text(link, text)


def test_a_journal_is_not_looked_for_in_a_device(tmp_path: Path) -> None:
    link = tmp_path / "journal.log"
    link.symlink_to("/dev/zero")
    with pytest.raises(Refused, match="is not replaced"):
        optuna.write(link, STUDY, [trial(0)])
