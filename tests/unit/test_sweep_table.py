"""The rows of ``sweep status`` and ``sweep best``."""

from __future__ import annotations

import json
from typing import Any

from dray.sweep import space, table
from dray.sweep.study import Objective, Stop, Study, Trial

SPACE = space.whole(
    [space.from_flag(one) for one in ("agent.lr=1e-5..1e-1:log", "--num_envs=512,1024,2048")]
)


def study(**more: Any) -> Study:
    return Study(id="policy-7f3k", space=SPACE, metric="Train/mean_reward", **more)


def trial(number: int, state: str = "done", value: float | None = None, **more: Any) -> Trial:
    repeats = more.pop("repeats", 1)
    return Trial(
        number=number,
        configuration=number // repeats,
        job=f"policy-7f3k.{number}",
        cluster="euler",
        values={"agent.lr": 0.00031, "--num_envs": 1024} if state != "queued" else {},
        state=state,
        value=value,
        step=more.pop("step", 1500 if state == "done" else 300),
        **more,
    )


def test_the_best_are_judged_on_whole_trainings_alone() -> None:
    trials = [
        trial(0, "done", 10.0),
        trial(1, "pruned", 99.0),
        trial(2, "running", 98.0),
        trial(3, "done", 12.0),
        trial(4, "failed"),
        trial(5, "queued", step=None),
        trial(6, "done", float("nan")),
        trial(7, "stopped", 97.0),
    ]
    shown = table.best(study(), trials)
    assert [row[0] for row in shown.rows] == [".3", ".0"]
    told = "\n".join(shown.below)
    assert "1 running, 1 pruned, 1 stopped, 1 failed, 1 queued" in told
    assert ".1 was pruned with a better value, 99 at step 300" in told


def test_what_is_no_number_is_not_the_best() -> None:
    trials = [trial(number, "done", float("nan")) for number in range(3)]
    shown = table.best(study(), trials)
    assert shown.rows == ()
    assert shown.below == ("not judged: 3 done with NaN",)
    told = table.as_record(study(), [*trials, trial(3, "done", 1.0)])["configurations"]
    assert [one["rank"] for one in told] == [None, None, None, 1]


def test_less_is_better_where_the_mode_says_so() -> None:
    trials = [trial(0, "done", 10.0), trial(1, "done", 12.0), trial(2, "pruned", 11.0)]
    shown = table.best(study(mode="min"), trials)
    assert [row[0] for row in shown.rows] == [".0", ".1"]
    assert "was pruned" not in "\n".join(shown.below)


def test_repeats_are_one_row_with_their_spread() -> None:
    trials = [trial(n, "done", value, repeats=3) for n, value in enumerate([10.0, 12.0, 14.0])]
    shown = table.best(study(repeats=3), trials)
    assert shown.rows[0][:4] == (".0-2", "12 ± 2", "1500", "done")


def test_a_configuration_is_judged_when_all_its_repeats_are_done() -> None:
    both = study(repeats=2)
    begun = [trial(0, "done", 99.0, repeats=2), trial(1, "running", 5.0, repeats=2)]
    waiting = [trial(2, "done", 98.0, repeats=2)]  # the other is not known yet
    crashed = [trial(4, "done", 97.0, repeats=2), trial(5, "failed", 2.0, repeats=2)]
    ended = [trial(6, "done", 10.0, repeats=2), trial(7, "done", 12.0, repeats=2)]
    trials = [*begun, *waiting, *crashed, *ended]
    shown = table.best(both, trials)
    assert [row[:4] for row in shown.rows] == [(".6-7", "11 ± 1.4", "1500", "done")]
    assert shown.below == ("not judged, since not trained to the end: 2 running, 1 failed",)
    ranks = [one["rank"] for one in table.as_record(both, trials)["configurations"]]
    assert ranks == [None, None, None, 1]


def test_a_failed_repeat_counts_neither_for_the_value_nor_for_the_step() -> None:
    both = study(repeats=2)
    crashed = [trial(0, "failed", 2.0, step=4, repeats=2), trial(1, "done", 97.0, repeats=2)]
    ended = [trial(2, "done", 10.0, repeats=2), trial(3, "done", 10.0, repeats=2)]
    rows = table.status(both, [*crashed, *ended]).rows
    assert [row[0] for row in rows] == [".2-3", ".0-1"]  # what is done comes first
    assert rows[1][1:4] == ("97", "1500", "failed 1/2")


def test_what_is_hidden_is_said() -> None:
    trials = [trial(n, "done", float(n)) for n in range(5)]
    trials += [trial(n, "pruned", 1.0) for n in range(5, 12)]
    shown = table.status(study(), trials, most=6)
    assert len(shown.rows) == 6
    assert shown.below[0] == "6 more (6 pruned): --all shows them"
    assert table.status(study(), trials, most=99).below == ()
    assert "3 more (3 done): -n 5 shows them" in table.best(study(), trials, most=2).below


def test_a_trial_without_a_value_is_told() -> None:
    shown = table.status(study(), [trial(0, "done"), trial(1, "done", 2.0)])
    assert "1 done without a value of 'Train/mean_reward'" in shown.below[0]


def test_a_metric_that_nobody_reports_is_told_with_those_that_are_there() -> None:
    wrong = study(stop_if=("Losss > 3", "nan", "reward < 0 after 9"))
    trials = [trial(0, metrics=("reward", "Loss")), trial(1, "running")]
    told = table.status(wrong, trials).below
    assert "; there is reward, Loss" in told[0]
    assert told[1:] == ("stop_if Losss > 3: no trial has reported 'Losss'; there is reward, Loss",)
    assert table.never_seen(wrong, [trial(0), trial(1, "running")]) == []  # nothing is known yet
    best = table.best(wrong, trials).below
    assert best[0] == told[0]
    assert best[1:] == ("not judged, since not trained to the end: 1 running",)


def test_saved_time_is_what_the_pruned_would_have_used() -> None:
    trials = [
        trial(0, "done", 1.0, gpu_seconds=3600.0),
        trial(1, "done", 1.0, gpu_seconds=1800.0),
        trial(2, "pruned", 1.0, gpu_seconds=700.0),
        trial(3, "pruned", 1.0, gpu_seconds=5000.0),  # longer than most: it saved nothing
    ]
    assert table.saved_seconds(study(), trials) == 2000.0
    assert "15% saved by pruning" in table.status(study(), trials).above[1]


def test_before_any_training_is_whole_each_is_taken_at_its_own_pace() -> None:
    pruned = [trial(0, "pruned", 1.0, step=300, gpu_seconds=60.0)]
    assert table.saved_seconds(study(stop=Stop("asha", total=1500)), pruned) == 240.0
    assert table.saved_seconds(study(), pruned) == 0.0


def test_a_table_fits_into_its_width_and_names_what_does_not() -> None:
    many = space.whole([space.from_flag(f"a_parameter_{at}=0.0..1.0") for at in range(12)])
    values = {one.name: 0.123456 for one in many}
    wide = Study(id="policy-7f3k", space=many, metric="m")
    trials = [trial(n, "done", float(n))._replace(values=values) for n in range(3)]
    for width in (40, 60, 80, 200):
        shown = table.status(wide, trials, width)
        cells = zip(shown.header, *shown.rows, strict=True)
        used = sum(max(map(len, column)) for column in cells) + 2 * (len(shown.header) - 1)
        assert used <= width
        left = [f"a_parameter_{at}" for at in range(len(shown.header) - 4, 12)]
        told = f"no room for {', '.join(left)}: --json has them"
        assert (told in shown.below) == bool(left)


def test_fixed_values_take_no_column() -> None:
    known = space.whole([space.from_flag("task=Cartpole"), *SPACE])
    shown = table.status(Study(id="policy-7f3k", space=known), [trial(0, "done", 1.0)])
    assert shown.header[4:] == ("lr", "num_envs")


def test_values_are_short() -> None:
    shown = [table.show_value(one) for one in (3.1e-4, 1e-12, 123456.0, 4096, True, [64, 64], None)]
    assert shown == ["0.00031", "1e-12", "1.23e5", "4096", "True", "[64,64]", ""]


def test_machines_get_everything() -> None:
    trials = [trial(0, "done", 10.0), trial(1, "pruned", float("inf"), rungs={100: float("nan")})]
    told = json.loads(json.dumps(table.as_record(study(), trials), allow_nan=False))
    first, second = told["configurations"]
    assert (first["rank"], second["rank"]) == (1, None)
    assert second["trials"][0]["rungs"] == {"100": "nan"}
    assert told["counts"] == {"done": 1, "pruned": 1}


def test_the_reasons_of_failures_are_counted() -> None:
    trials = [
        trial(0, "failed", reason="exit code 1"),
        trial(1, "failed", reason="killed by signal 9 (out of memory)"),
        trial(2, "failed", reason="killed by signal 9 (out of memory)"),
        trial(3, "failed"),
        trial(4, "stopped", reason="stopped by you"),
    ]
    told = table.as_record(study(), trials)["failures"]
    assert told == [
        {"reason": "killed by signal 9 (out of memory)", "trials": 2},
        {"reason": "exit code 1", "trials": 1},
        {"reason": "no reason is known", "trials": 1},
    ]
    assert table.as_record(study(), trials[4:])["failures"] == []


def test_nothing_has_begun() -> None:
    shown = table.status(study(), [trial(0, "queued", step=None)])
    assert shown.rows == ()
    assert "queued 1" in shown.above[1]


def test_metrics_can_take_the_columns_of_the_parameters() -> None:
    of = {"repeats": 2, "metrics": ("Episode/alive", "Loss")}
    trials = [
        trial(0, "done", 2.0, levels={"Episode/alive": 1.0, "Loss": 0.5}, **of),
        trial(1, "done", 4.0, levels={"Episode/alive": 2.0}, **of),
        trial(2, "running", 1.0, **of),
    ]
    shown = table.status(study(repeats=2), trials, names=["Episode/alive", "Loss", "Los"])
    assert shown.header[4:] == ("alive", "Loss", "Los")
    assert [row[4:] for row in shown.rows] == [("1.5", "0.5", ""), ("", "", "")]
    assert "no trial has told 'Los'; there is Episode/alive, Loss" in shown.below


def test_columns_of_some_parameters_beside_metrics() -> None:
    trials = [trial(0, "done", 2.0, levels={"Loss": 0.5}, metrics=("Loss",))]
    names = ["num_envs", "Loss", "agent.lr", "lr"]
    shown = table.status(study(), trials, names=names)
    assert shown.header[4:] == ("num_envs", "Loss", "lr", "lr")
    assert [row[4:] for row in shown.rows] == [("1024", "0.5", "0.00031", "0.00031")]
    assert shown.below == ()


def test_a_metric_that_is_called_like_a_parameter_is_the_metric() -> None:
    trials = [trial(0, "done", 2.0, levels={"lr": 0.5}, metrics=("lr",))]
    shown = table.status(study(), trials, names=["lr"])
    assert [row[4:] for row in shown.rows] == [("0.5",)]


def test_parameters_of_the_same_last_name_are_told_apart() -> None:
    names = ("actor.opt.lr", "critic.opt.lr", "--num-envs", "lr", "env/seed")
    assert table.tails(names) == ["actor.opt.lr", "critic.opt.lr", "num_envs", "lr", "seed"]
    assert table.tails(("a.actor.lr", "a.critic.lr")) == ["actor.lr", "critic.lr"]


def test_where_no_metric_was_seen_it_is_said_where_they_come_from() -> None:
    shown = table.status(study(), [trial(0, "done")])
    assert shown.below == (
        "1 done without a value of 'Train/mean_reward': the sampler learns nothing from them",
        table.NO_METRICS,
    )
    assert table.NO_METRICS not in table.status(study(), [trial(0, metrics=("Loss",))]).below


def test_a_front_of_nothing_says_so() -> None:
    two = study(objectives=(Objective("Train/mean_reward", "max"), Objective("enrgy", "min")))
    trials = [trial(0, "done", 2.0, objectives=(2.0, None), metrics=("energy",))]
    shown = table.best(two, trials)
    assert "no configuration was trained to the end, and has a number of each" in shown.above[1]
    assert "1 done without a value of 'enrgy'" in shown.below[0]
    assert "there is energy" in shown.below[0]


def test_values_as_large_as_a_float_can_be_have_a_mean() -> None:
    huge = [trial(n, "done", 1.7e308, levels={"loss": 1.7e308}, repeats=2) for n in range(2)]
    shown = table.status(study(repeats=2), huge, names=["loss"])
    assert shown.rows[0][1] == "1.7e+308 ± 0"
    assert shown.rows[0][-1] == "1.7e+308"


def test_what_was_pruned_stands_in_the_order_in_which_go_on_takes_it() -> None:
    trials = [
        trial(0, "pruned", 9.0, step=130, rungs={100: 1.0}),
        trial(1, "pruned", 2.0, step=110, rungs={100: 5.0}),
        trial(2, "pruned", 0.5, step=301, rungs={100: 3.0, 300: 0.5}),
    ]
    shown = table.status(study(stop=Stop("asha", total=900)), trials)
    assert [row[0] for row in shown.rows] == [".2", ".1", ".0"]
    promising = sorted(trials, key=lambda one: table.promise(study(), one))
    assert [one.number for one in promising] == [2, 1, 0]
