"""The training that newcomers try first resumes exactly, and its curve can be drawn."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dray.demo
from dray.cli.plot import Point, read_curve, round_ticks, svg_plot, terminal_plot

TRAIN = Path(dray.demo.__file__).with_name("train.py")
PATIENCE = 60.0  # seconds, for a machine that is busy with other things


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(TRAIN), *arguments]


def environment(outputs: Path, attempt: int) -> dict[str, str]:
    return {**os.environ, "DRAY_OUTPUTS": str(outputs), "DRAY_ATTEMPT": str(attempt)}


def train(outputs: Path, *arguments: str, attempt: int = 1) -> str:
    done = subprocess.run(
        command(*arguments),
        env=environment(outputs, attempt),
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def checkpoint(outputs: Path, iteration: int) -> Path:
    return outputs / "checkpoints" / f"iteration_{iteration:05d}.json"


def checkpoint_names(outputs: Path) -> list[str]:
    return sorted(path.name for path in (outputs / "checkpoints").iterdir())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def curve_length(outputs: Path) -> int:
    path = outputs / "curve.csv"
    return len(read_curve(path)) if path.exists() else 0


@pytest.fixture
def interrupted() -> list[Point]:
    """A curve of 100 iterations in three attempts."""
    attempts = [1] * 30 + [2] * 50 + [3] * 20
    return [Point(i, 5.0 * i, attempt) for i, attempt in enumerate(attempts, start=1)]


def test_resumed_training_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(whole, "--iterations", "12", "--save-every", "5")
    train(parts, "--iterations", "8", "--save-every", "5")
    resume = ("--resume", str(checkpoint(parts, 5)))
    train(parts, "--iterations", "12", "--save-every", "5", *resume, attempt=2)

    expected = read_curve(whole / "curve.csv")
    found = read_curve(parts / "curve.csv")
    assert [p.iteration for p in expected] == list(range(1, 13))
    assert [(p.iteration, p.value) for p in found] == [(p.iteration, p.value) for p in expected]
    assert [p.attempt for p in found] == [1] * 5 + [2] * 7
    assert checkpoint(parts, 12).read_bytes() == checkpoint(whole, 12).read_bytes()


def test_seed_decides_the_curve(tmp_path: Path) -> None:
    curves = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        train(tmp_path / name, "--iterations", "4", "--seed", seed)
        curves.append(read_curve(tmp_path / name / "curve.csv"))
    assert curves[0] == curves[1] != curves[2]


def test_cut_row_is_replaced_on_resuming(tmp_path: Path) -> None:
    train(tmp_path, "--iterations", "3")
    whole = (tmp_path / "curve.csv").read_text()
    (tmp_path / "curve.csv").write_text(whole + "4,2")
    train(tmp_path, "--iterations", "4", "--resume", str(checkpoint(tmp_path, 3)))
    assert (tmp_path / "curve.csv").read_text().startswith(whole)
    assert [p.iteration for p in read_curve(tmp_path / "curve.csv")] == [1, 2, 3, 4]


def test_training_from_the_start_begins_a_new_curve(tmp_path: Path) -> None:
    train(tmp_path, "--iterations", "3")
    train(tmp_path, "--iterations", "2", attempt=2)
    assert [(p.iteration, p.attempt) for p in read_curve(tmp_path / "curve.csv")] == [
        (1, 2),
        (2, 2),
    ]


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    train(tmp_path, "--iterations", "5", "--save-every", "1")
    assert checkpoint_names(tmp_path) == [f"iteration_0000{i}.json" for i in (3, 4, 5)]


def test_going_back_does_not_remove_the_checkpoint_just_written(tmp_path: Path) -> None:
    train(tmp_path, "--iterations", "6", "--save-every", "1")
    train(tmp_path, "--iterations", "1")
    assert checkpoint(tmp_path, 1).exists()


def test_progress_and_result_are_printed(tmp_path: Path) -> None:
    printed = train(tmp_path, "--iterations", "10").splitlines()
    final = read_curve(tmp_path / "curve.csv")[-1].value
    assert [line.split()[:2] for line in printed] == [["iteration", "10"], ["finished", "with"]]
    assert f"{final:.1f}" in printed[-1]


def test_signal_asks_for_a_checkpoint_and_training_continues(tmp_path: Path) -> None:
    endless = command("--iterations", "100000", "--save-every", "100000")
    with subprocess.Popen(
        endless, env=environment(tmp_path, 1), stdout=subprocess.DEVNULL
    ) as process:
        try:
            wait_until(lambda: curve_length(tmp_path) >= 2)
            assert checkpoint_names(tmp_path) == []
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda: any((tmp_path / "checkpoints").glob("*.json")))
            length = curve_length(tmp_path)
            wait_until(lambda: curve_length(tmp_path) > length)
        finally:
            process.terminate()
    assert process.returncode == -signal.SIGTERM
    (name,) = checkpoint_names(tmp_path)
    iteration = int(re.findall(r"\d+", name)[0])
    assert iteration >= 2

    # What was saved on demand is as good as any other checkpoint.
    until = str(iteration + 1)
    train(tmp_path, "--iterations", until, "--resume", str(checkpoint(tmp_path, iteration)))
    assert read_curve(tmp_path / "curve.csv")[-1].iteration == iteration + 1


@pytest.mark.parametrize("cut", ["3", "3,", "3,30.5", "3,30.5,1"])
def test_half_written_last_line_is_left_out(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("iteration,mean_return,attempt\n1,10.50,1\n2,20.00,2\n" + cut)
    assert read_curve(path) == [Point(1, 10.5, 1), Point(2, 20.0, 2)]


@pytest.mark.parametrize("content", ["", "iterat", "iteration,mean_return,attempt\n"])
def test_curve_without_rows_is_empty(tmp_path: Path, content: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(content)
    assert read_curve(path) == []


@pytest.mark.parametrize(
    ("low", "high", "most", "expected"),
    [
        (0, 500, 3, [0, 250, 500]),
        (0, 487.5, 6, [0, 100, 200, 300, 400, 500]),
        (-3, 9, 3, [-5, 0, 5, 10]),
        (0, 0, 2, [0, 0.5, 1]),
    ],
)
def test_ticks_are_round_and_span_the_data(
    low: float, high: float, most: int, expected: list[float]
) -> None:
    assert round_ticks(low, high, most) == expected


@pytest.mark.parametrize(("width", "height"), [(40, 8), (80, 20), (200, 50)])
def test_terminal_plot_keeps_to_its_size(interrupted: list[Point], width: int, height: int) -> None:
    plot = terminal_plot(interrupted, width, height, color=False)
    assert "\x1b" not in plot
    assert len(plot.splitlines()) == height
    assert max(len(line) for line in plot.splitlines()) <= width


def test_terminal_plot_can_be_read_without_color(interrupted: list[Point]) -> None:
    lines = terminal_plot(interrupted, 80, 20, color=False).splitlines()
    assert lines[-3].endswith("iteration")
    assert lines[-2].split() == ["0", "20", "40", "60", "80", "100"]
    assert re.findall(r"attempt \d", lines[-1]) == ["attempt 1", "attempt 2", "attempt 3"]
    assert lines[0].count("┊") == 2
    # Each name stands right below the line at which its attempt begins.
    for name, column in (("attempt 2", lines[0].index("┊")), ("attempt 3", lines[0].rindex("┊"))):
        assert lines[-1].index(name) == column


def test_color_changes_nothing_but_the_color(interrupted: list[Point]) -> None:
    colored = terminal_plot(interrupted, 80, 20, color=True)
    assert {"\x1b[36m", "\x1b[33m", "\x1b[35m"} <= set(re.findall(r"\x1b\[\d+m", colored))
    plain = terminal_plot(interrupted, 80, 20, color=False)
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


@pytest.mark.parametrize("value", [-7.0, 0.0, 12.0])
def test_terminal_plot_of_a_single_point(value: float) -> None:
    plot = terminal_plot([Point(1, value, 1)], 60, 10, color=False)
    assert any("\u2801" <= character <= "\u28ff" for character in plot)


def test_terminal_plot_of_nothing_says_so() -> None:
    assert terminal_plot([], 80, 20, color=False) == "no iterations yet"


SVG = "{http://www.w3.org/2000/svg}"


def test_picture_has_one_line_per_attempt_and_they_join(interrupted: list[Point]) -> None:
    picture = ElementTree.fromstring(svg_plot(interrupted, "Cart-pole <3 & more"))
    lines = picture.findall(f"{SVG}polyline")
    assert len({line.get("stroke") for line in lines}) == len(lines) == 3
    places = [line.get("points", "").split() for line in lines]
    assert places[0][-1] == places[1][0]
    assert places[1][-1] == places[2][0]
    dashed = [line for line in picture.findall(f"{SVG}line") if line.get("stroke-dasharray")]
    assert len(dashed) == 2
    texts = [text.text for text in picture.findall(f"{SVG}text")]
    assert {"Cart-pole <3 & more", "attempt 1", "attempt 2", "attempt 3", "iteration"} <= set(texts)


@pytest.mark.parametrize("points", [[], [Point(1, 0.0, 1)], [Point(41, -3.5, 2)]])
def test_picture_of_hardly_anything(points: list[Point]) -> None:
    picture = ElementTree.fromstring(svg_plot(points, "early"))
    assert len(picture.findall(f"{SVG}polyline")) == len(points)
