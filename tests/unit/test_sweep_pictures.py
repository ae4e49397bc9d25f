"""What matters in a sweep, and where the best lie: as text and as pictures."""

from __future__ import annotations

import math
import random
from xml.etree import ElementTree

from click.testing import CliRunner

from dray.cli.plot import Point, terminal_plot
from dray.cli.sweep_export import picture
from dray.errors import UsageError
from dray.node.sweeps import sampler
from dray.sweep import pictures, space
from dray.sweep.importance import importances
from dray.sweep.study import Study, Trial

SPACE = space.whole(
    [
        space.from_flag(one)
        for one in (
            "agent.lr=1e-5..1e-1:log",
            "agent.gamma=0.9..0.999",
            "activation=elu,relu",
            "unused=0.0..1.0",
            "also_unused=1..10:int",
        )
    ]
)
SVG = "{http://www.w3.org/2000/svg}"


def study(mode: str = "max") -> Study:
    return Study(id="policy-7f3k", space=SPACE, metric="Train/<reward> & more", mode=mode)


def trials(count: int, seed: int = 1, sign: int = 1) -> list[Trial]:
    """Trials in which the learning rate matters most, then the activation, and two not at all."""
    records, rng, found = space.records_of(SPACE), random.Random(seed), []
    for number in range(count):
        values = sampler.at_random(records, seed, number)
        away = abs(math.log10(values["agent.lr"]) + 3)
        value = -away - 0.8 * (values["activation"] == "relu") + rng.gauss(0, 0.1)
        found.append(
            Trial(number, number, f"policy-7f3k.{number}", "euler", values, "done", sign * value, 9)
        )
    return found


def test_what_matters_comes_first_and_what_does_not_has_no_share() -> None:
    for seed in range(5):
        for mode, sign in (("max", 1), ("min", -1)):
            found = importances(study(mode), trials(80, seed, sign))
            shares = {one.parameter.name: one.share for one in found}
            assert [one.parameter.name for one in found][:2] == ["agent.lr", "activation"]
            assert shares["unused"] + shares["also_unused"] < 0.15
            assert math.isclose(sum(shares.values()), 1.0)


def test_too_few_trainings_say_nothing() -> None:
    assert importances(study(), trials(11)) == []
    pruned = [one._replace(state="pruned") for one in trials(60)]
    assert importances(study(), pruned) == []
    assert pictures.terminal(study(), pruned) == [pictures.TOO_FEW]


def test_the_terminal_shows_where_the_best_lie() -> None:
    lines = pictures.terminal(study(), trials(60), 80)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("lr ")
    inside = lines[1].partition("▕")[2].partition("▏")[0]
    middle = [at for at, letter in enumerate(inside) if letter != " "]
    assert 6 <= min(middle) <= max(middle) <= 18  # around a thousandth, of 1e-5 to 0.1
    assert "elu (" in next(line for line in lines if line.startswith("activation"))


def test_pictures_are_whole_and_safe() -> None:
    for drawn in (pictures.importance_picture, pictures.parallel_picture):
        for found in (trials(60), trials(3), []):
            tree = ElementTree.fromstring(drawn(study(), found))
            texts = [one.text or "" for one in tree.iter(f"{SVG}text")]
            assert any("Train/<reward> & more" in text for text in texts)


def test_every_configuration_is_a_line_and_the_best_stands_out() -> None:
    found = [*trials(20), trials(1)[0]._replace(number=20, configuration=20, state="pruned")]
    tree = ElementTree.fromstring(pictures.parallel_picture(study(), found))
    lines = [one.get("stroke") for one in tree.iter(f"{SVG}polyline")]
    assert len(lines) == 21
    assert lines.count(pictures.BEST_COLOR) == 1
    assert lines[0] == "#cccccc"  # below all others
    texts = [one.text for one in tree.iter(f"{SVG}text")]
    assert "20 trained to the end, the best in orange; 1 cut short or running, in grey" in texts


def test_a_learning_rate_is_labelled_by_powers_of_ten() -> None:
    labels = [label for _, label in pictures.parameter_ticks(SPACE[0])]
    assert labels == ["1e-05", "0.0001", "0.001", "0.01", "0.1"]
    places = [place for place, _ in pictures.parameter_ticks(SPACE[0])]
    assert places == sorted(places)
    assert math.isclose(places[2], 0.5)


def test_what_could_be_chance_is_called_so() -> None:
    rng = random.Random(4)
    lucky = [one._replace(value=rng.random()) for one in trials(14)]
    assert not any(one.share for one in importances(study(), lucky))
    assert pictures.terminal(study(), lucky)[-1] == pictures.BY_CHANCE
    assert pictures.BY_CHANCE not in pictures.terminal(study(), trials(60))


def test_a_picture_is_not_called_what_it_is_not() -> None:
    told = CliRunner().invoke(picture, ["a-1", "--importance", "what.png"]).exception
    assert isinstance(told, UsageError)
    assert str(told) == "what.png: pictures are SVG files (what.svg)"


def test_of_few_trainings_it_is_said_that_this_is_a_guess() -> None:
    guess = "a rough guess, from 39 configurations: more trials tell better"
    assert pictures.terminal(study(), trials(39))[-1] == guess
    assert guess in pictures.importance_picture(study(), trials(39))
    assert "guess" not in "".join(pictures.terminal(study(), trials(40)))


def test_values_as_large_as_a_float_can_be_are_drawn() -> None:
    far = [one._replace(value=sign * 1.7e308) for one, sign in zip(trials(2), (1, -1), strict=True)]
    drawn = ElementTree.fromstring(pictures.parallel_picture(study(), far))
    lines = drawn.findall(f"{SVG}polyline")
    assert len(lines) == 2
    heights = {float(line.attrib["points"].rpartition(",")[2]) for line in lines}
    assert all(pictures.TOP <= one <= pictures.BOTTOM for one in heights)
    assert len(heights) == 2
    points = [Point(step, sign * 1.7e308, 1) for step, sign in ((0, 1), (10, -1))]
    plotted = terminal_plot(points, 60, 12, color=False)
    assert "e+300" in plotted
