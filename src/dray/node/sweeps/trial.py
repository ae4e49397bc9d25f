"""A job as a trial of its sweep: it asks for its parameters before its first attempt, tells how it
does while it runs, and how it has ended.

Once it has its parameters, its description has the filled command and the variables in it, and it
is a job like any other."""

import json
import math

from ..checkpoints.origin import NothingToGoOnFrom
from ..formats import files
from ..formats.messages import print_message
from ..jobs import budget, policy, trouble
from ..metrics import sources
from . import asking, optuna_question, population, sampler, stopping
from .filling import fill
from .space import chosen_in, complete, point_of
from .study import Study

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import (  # noqa: F401
        Description,
        Exchange,
        Record,
        ResultRecord,
        StopRule,
        StudyRecord,
        TrialRecord,
    )
    from ..jobs.jobdir import JobDir
    from ..metrics.sources import Point, Watch
    from .asking import Results, Trials
    from .expressions import Condition
    from .mlflow_live import Live

    Inquire = Callable[[List[str], Record], Record]
    Choose = Callable[[StudyRecord, int, Trials, Results], TrialRecord]

DAMAGE = (ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError)
MOST_NUMBER = 10**6  # of a trial
NAMES_AT_MOST = 1000  # of metrics that are followed
NAMES_TOLD, LONGEST_TOLD = 20, 200  # of metrics, in a result; characters of each
CLOSED = "the sweep is closed: no further trial starts"


def is_trial(job: "Description") -> bool:
    return bool((job.get("sweep") or {}).get("id"))


def study_of(job_dir: "JobDir", job: "Description") -> Study:
    return Study(job_dir.root, job["sweep"]["id"])


# -- before the first attempt ---------------------------------------------------------------------


def ask(
    job_dir: "JobDir", job: "Description", inquire: "Optional[Inquire]" = None
) -> "Optional[policy.Decision]":
    """Get the parameters of a trial that has none yet, and fill its command; return its end
    instead, where it is not to start. ``job`` is changed, and written down. ``inquire`` asks a
    program in the command's environment, for a sampler that is only there."""
    if not is_trial(job):
        return None
    study = study_of(job_dir, job)
    if job["sweep"].get("values") is not None:
        if job["sweep"].get("template"):
            trouble.with_retries(lambda: take_over(job_dir, job, study))
        return None
    record = trouble.with_retries(study.record)
    if record is None:
        return policy.Decision("failed", "its sweep is missing or damaged: {}".format(study.file))
    try:
        choose = by_optuna(job, inquire) if is_optuna(record) else asking.choose
        number = job["sweep"]["trial"]
        is_asked = bool(job["sweep"].get("asked_for"))
        trial = trouble.with_retries(
            lambda: parameters_for(study, record, number, choose, is_asked)
        )
        if isinstance(trial, policy.Decision):
            return trial
        change(job, record, trial)
    except DAMAGE as error:
        return policy.Decision("failed", "no parameters: {}".format(error or repr(error)))
    trouble.with_retries(lambda: files.write_json(job_dir.job, job))
    return None


def parameters_for(
    study: Study,
    record: "StudyRecord",
    number: int,
    choose: "Choose" = asking.choose,
    is_asked: bool = False,
) -> "Any":  # Union[TrialRecord, policy.Decision]
    """Return the parameters of a trial: those that its configuration has already, or new ones; or
    why it does not start. One that the user has asked for starts in a closed sweep, too."""
    configuration = number // record["repeats"]
    known = study.parameters(configuration)
    if known is not None:  # of an attempt that was killed, or of another repeat
        return known
    if study.is_closed() and not is_asked:
        return policy.Decision("stopped", CLOSED)
    most, is_blind = record.get("max_failures"), record.get("sampler") in asking.BLIND
    results = study.results() if most is not None or not is_blind else {}
    failed = asking.failures(results)
    if most is not None and failed > most and not is_asked:
        which = "1 trial of the sweep has" if failed == 1 else "{} trials of the sweep have"
        reason = "{} failed, more than max_failures = {}".format(which.format(failed), most)
        return policy.Decision("stopped", "the sweep is closed: " + reason)
    trials = {} if is_blind else study.trials()
    study.keep_cache()
    return study.give(configuration, choose(record, configuration, trials, results))


def is_optuna(study: "StudyRecord") -> bool:
    return optuna_question.is_optuna(study.get("sampler") or "")


def by_optuna(job: "Description", inquire: "Optional[Inquire]") -> "Choose":
    """Return what has a configuration chosen by a sampler of Optuna's."""

    def choose(
        study: "StudyRecord", configuration: int, trials: "Trials", results: "Results"
    ) -> "TrialRecord":
        if inquire is None:
            raise optuna_question.NoAnswer("there is no Optuna to ask")
        question = optuna_question.question(study, configuration, trials, results)
        python = optuna_question.python_of(study, job["command"])
        answer = inquire(python + optuna_question.MODULE, question)
        return optuna_question.chosen(study, configuration, answer)

    return choose


def take_over(job_dir: "JobDir", job: "Description", study: Study) -> None:
    """Carry out what was decided at a rung: go on from another trial's checkpoint, with other
    parameters. Where that is not there any more, the trial goes on as it is."""
    number = job["sweep"]["trial"]
    result, record = study.result(number), study.record()
    wanted = result.get("exchanges") or []
    if record is None or len(wanted) <= result.get("taken", 0):
        return
    try:
        point_of(record["space"], wanted[-1]["values"])
        population.take_over(job_dir, str(wanted[-1]["job"]), job["resume"])
        change(job, record, {"values": wanted[-1]["values"], "by": "population"})
        result["values"] = wanted[-1]["values"]
        files.write_json(job_dir.job, job)
    except (NothingToGoOnFrom,) + DAMAGE as error:
        print_message("it goes on as it is: {}".format(error or repr(error)))
    result["taken"] = len(wanted)
    study.tell(number, result)


def change(job: "Description", study: "StudyRecord", trial: "TrialRecord") -> None:
    """Make the description that of a trial with these parameters, whatever it had before."""
    part, values = job["sweep"], trial["values"]
    repeat = part["trial"] % study["repeats"]
    seed = study["seed"] + repeat
    template = part.get("template") or job["command"]
    job["command"] = fill(template, study["space"], values, part["trial"], repeat, seed)
    names = (job["id"], study["id"], part["trial"], seed)
    stale = variables(*names, values=part.get("values") or {})
    env = {key: one for key, one in (job.get("env") or {}).items() if stale.get(key) != one}
    job["env"] = dict(variables(*names, values=values), **env)
    job["metrics"] = dict(job.get("metrics") or {}, main=watched(job, study))  # type: ignore[typeddict-item]
    part = dict(part, values=values)  # type: ignore[assignment]
    if is_population(study):
        part["template"] = template
    job["sweep"] = part


def is_population(study: "StudyRecord") -> bool:
    return (study.get("stop") or {}).get("rule") == stopping.EVEN


def as_filled(
    job: "Description", study: "StudyRecord", told: "Dict[str, Any]"
) -> "Optional[Description]":
    """Return the description of a trial with the parameters that somebody tells; None if they are
    not of the sweep's space. What follows from others is computed, whatever is told."""
    configuration = job["sweep"]["trial"] // study["repeats"]
    try:
        point_of(study["space"], told)
        chosen = chosen_in(study["space"], told)
        change(job, study, {"values": complete(study["space"], chosen, configuration)})
    except DAMAGE:
        return None
    return job


def variables(
    job_id: str, sweep: str, number: int, seed: int, values: "Dict[str, Any]"
) -> "Dict[str, str]":
    return {
        "DRAY_SWEEP": sweep,
        "DRAY_TRIAL": str(number),
        "DRAY_SEED": str(seed),
        "DRAY_PARAMS": json.dumps(values, sort_keys=True),
        "WANDB_RUN_GROUP": sweep,
        "WANDB_RUN_ID": job_id,
        "WANDB_RESUME": "allow",
    }


def watched(job: "Description", study: "StudyRecord") -> "List[str]":
    """Return the names of the metrics that matter: the sweep's, then those of its conditions. Where
    the sweep names none, the trainer's own come first: what a pattern reads from the log bears the
    first of these names, and must not be taken for that of a condition."""
    own = list((job.get("metrics") or {}).get("main") or ())
    pattern = (job.get("metrics") or {}).get("pattern")
    if pattern and not own:
        own = [sources.name_in_log(pattern)]
    first = asking.names_of(study) or own
    found = first + [one.name for one in conditions_of(study) if one.name] + own
    return sorted(set(found), key=found.index)


def conditions_of(study: "StudyRecord") -> "List[Condition]":
    wanted = study.get("stop_if")
    if not wanted:
        return []
    from .expressions import Condition, NotAnExpression  # with ast: not for every sweep

    found = []
    for text in wanted:
        try:
            found.append(Condition(str(text)))
        except NotAnExpression as error:  # the laptop had it checked
            print_message("stop_if: {}".format(error))
    return found


# -- while it runs ------------------------------------------------------------------------------


class Following:
    """Follows the metrics of a trial while an attempt runs: its values at rungs, and whether it is
    to go on."""

    def __init__(self, job_dir: "JobDir", job: "Description") -> None:
        self.study = study_of(job_dir, job)
        self.record = self.study.record() or {}  # type: StudyRecord
        self.number = job["sweep"]["trial"]
        self.job = job
        self.job_dir = job_dir
        self.points = {}  # type: Dict[str, stopping.Points]
        self.conditions = conditions_of(self.record)
        self.met = ""  # the first condition that holds
        self.is_exchange = False  # whether it is to go on from another trial's checkpoint
        self.settled = 0  # the rung at which all that run were compared with
        self.result = self.study.result(self.number)
        self.live = self._tell_mlflow()
        self._take_up()

    def _take_up(self) -> None:
        """Go on with what an earlier attempt has told. One that was pruned, and goes on all the
        same, is not pruned again."""
        is_first = not self.result
        if self.result.get("state") == "pruned":
            self.result["promoted"] = True
        self.result["job"], self.result["state"] = self.job_dir.id, "running"
        self.result.pop("reason", None)
        if is_first:
            return
        try:
            self._read_earlier()
        except Exception as error:  # the trainer's own files: they must not end the attempt
            print_message("earlier values of the trial could not be read: {!r}".format(error))
        self.write()

    def _read_earlier(self) -> None:
        for found in sources.all_points(self.job, self.job_dir):
            for points in found.values():
                for point in points:
                    self._add(point)

    def _tell_mlflow(self) -> "Optional[Live]":
        if not self.record.get("mlflow"):
            return None
        from . import mlflow_live  # with threads and HTTP: not for every sweep

        return mlflow_live.follow(self.job_dir, self.job, self.record)

    def note(self, point: "Point") -> None:
        """Take a point of any metric."""
        self._add(point)
        if self.live is not None:
            self.live.add(point.name, point.step, point.value)
        for one in self.conditions:
            names = [one.name] if one.name else asking.names_of(self.record) or [point.name]
            if not self.met and point.name in names and one.holds(point.step, point.value):
                self.met = "{}{} (step {})".format(stopping.CONDITION, one.text, point.step)

    def _add(self, point: "Point") -> None:
        if point.name in self.points or len(self.points) < NAMES_AT_MOST:
            self.points.setdefault(point.name, stopping.Points()).add(point.step, point.value)

    def look(self, watch: "Watch", last: bool = False) -> str:
        """Compare the trial with others, where it has come to another rung; say why it is to end,
        or ''. ``last``: it has ended, and takes over nothing any more; a condition that holds is
        written down as the reason."""
        self._go_live(watch, last)
        points = self._own_points(watch)
        rule = self.record.get("stop")
        known = [int(step) for step in self._rungs()]
        passed = stopping.newly_passed(rule, points, known) if rule and points else []
        for rung in passed:
            level = points.level(rung) if points else None
            self._rungs()[str(rung)] = level if level is not None and math.isfinite(level) else None
        if passed:
            self.write(watch)
        if self.result.get("promoted"):
            return ""
        if last and self.met:
            self.result["reason"] = self.met
        if is_population(self.record):
            is_over = last or not points or is_at_end(rule, points)
            return self.met or ("" if is_over else self._exchange_at(self._newest_rung()))
        reasons = [self._why_not_on(rung) for rung in passed]
        return self.met or next((one for one in reasons if one), "")

    def _go_live(self, watch: "Watch", last: bool) -> None:
        """Let MLflow be told of the trial, from now on or no longer."""
        if self.live is None:
            return
        if not self.live.names:
            main = (watch.value() or {}).get("name")  # type: ignore[call-overload]
            self.live.names = [main] if main else []
        (self.live.end if last else self.live.begin)()

    def _newest_rung(self) -> int:
        """Return where a trial of a population is compared; 0 where nothing is to be learnt there
        any more. The first ones to come to a rung find nobody: they look again, as others come."""
        rung = max(map(int, self._rungs()), default=0)
        exchanges = self.result.get("exchanges") or []
        done = max(self.settled, exchanges[-1]["step"] if exchanges else 0)
        return rung if rung > done else 0

    def _exchange_at(self, rung: int) -> str:
        """Say from which trial this one goes on, having written that down; '' where it goes on by
        itself."""
        if not rung:
            return ""
        results, trials = self.study.results(), self.study.trials()
        results[self.number] = self.result
        if not any(may_come_to(rung, results.get(number)) for number in trials):
            self.settled = rung
        values = {
            number: asking.rungs_of(one)[rung]
            for number, one in results.items()
            if rung in asking.rungs_of(one)
        }
        mode = self.record.get("mode") or "max"
        better = [
            number
            for number in population.better_ones(mode, self.number, values)
            if number in trials and self._can_give(results[number])
        ]
        if not better:
            return ""
        rng = sampler.rng_of(self.record["seed"], -1 - rung * MOST_NUMBER - self.number)
        other = better[int(rng.random() * len(better))]
        theirs = results[other].get("values") or trials[other]["values"]
        space, rule = self.record["space"], self.record.get("stop") or {}
        taken = population.changed(space, rule, theirs, self.number, rng)
        exchange = {"step": rung, "job": results[other]["job"], "values": taken}  # type: Exchange
        self.result.setdefault("exchanges", []).append(exchange)
        if not self.write():
            self.result["exchanges"].pop()
            return ""
        self.is_exchange = True
        return "goes on from {}: {:.4g} at step {} is in the worst quarter of {}".format(
            results[other]["job"], values[self.number], rung, len(values)
        )

    def _can_give(self, result: "ResultRecord") -> bool:
        """Return whether another trial has a checkpoint to go on from. From that of a training that
        is done there is nothing to go on to: the parameters would never be trained with."""
        rules, name = self.job["resume"], result.get("job", "")
        if result.get("state") == "done":
            return False
        if population.has_checkpoint(self.job_dir.root, name, rules):
            return True
        return name in self.study.resumable_elsewhere()

    def _why_not_on(self, rung: int) -> str:
        others = [
            asking.rungs_of(one)[rung]
            for number, one in self.study.results().items()
            if number != self.number and rung in asking.rungs_of(one)
        ]
        own = asking.rungs_of(self.result)[rung]
        rule, mode = self.record.get("stop") or {}, self.record.get("mode") or "max"
        return stopping.why_not_on(rule, mode, rung, own, others)

    def _rungs(self) -> "Dict[str, Optional[float]]":
        return self.result.setdefault("rungs", {})

    def _own_points(self, watch: "Optional[Watch]") -> "Optional[stopping.Points]":
        """Return the points of the sweep's metric."""
        name = self.record.get("metric") or ""
        if not name and watch is not None:
            name = (watch.value() or {}).get("name") or ""  # type: ignore[call-overload]
        return self.points.get(name)

    def write(self, watch: "Optional[Watch]" = None) -> bool:
        """Write down how the trial does; return whether that went well. A disk that is full must
        not end it."""
        points = self._own_points(watch)
        level = points.level() if points else None
        if points and level is not None:
            self.result["step"] = points.last_step()
            self.result["value"] = in_json(level)
        if self.record.get("objectives"):
            self.result["objectives"] = [
                in_json(self.points[name].level()) if name in self.points else None
                for name in asking.names_of(self.record)
            ]
        if self.points:
            self.result["metrics"] = self._names_told()
            self.result["levels"] = self._levels(self.result["metrics"])
        try:
            self.study.tell(self.number, self.result)
        except OSError as error:
            print_message("how the trial does could not be written down: {}".format(error))
            return False
        return True

    def _names_told(self) -> "List[str]":
        """Return the names of metrics that were seen, those that the sweep asks for first."""
        asked = asking.names_of(self.record) + [one.name for one in self.conditions]
        names = sorted(self.points, key=lambda name: (name not in asked, name))
        return [name for name in names if len(name) <= LONGEST_TOLD][:NAMES_TOLD]

    def _levels(self, names: "List[str]") -> "Dict[str, float]":
        """Return what these metrics are by now, those that are numbers."""
        found = {}
        for name in names:
            level = self.points[name].level()
            if level is not None and math.isfinite(level):
                found[name] = level
        return found


# -- when it has ended --------------------------------------------------------------------------


def tell_end(job_dir: "JobDir", job: "Description", end: "policy.Decision") -> None:
    """Write down how a trial has ended, if it ever began."""
    if not is_trial(job) or job["sweep"].get("values") is None:
        return
    study, number = study_of(job_dir, job), job["sweep"]["trial"]
    try:
        attempts = job_dir.records()
        result = study.result(number)  # type: ResultRecord
        cause = attempts[-1].get("cause") if attempts else ""
        result["state"] = "pruned" if cause == policy.PRUNED else state_of(str(end.state))
        if result["state"] == "done" and has_met_condition(result):
            result["state"] = "pruned"  # it ended before the supervisor could end it
        else:
            result["reason"] = end.reason
        result["job"] = job_dir.id
        result["gpu_seconds"] = budget.spent(attempts) * budget.gpus_of(job)
        study.tell(number, result)
    except OSError as error:
        print_message("how the trial has ended could not be told: {}".format(error))
        return
    record = study.record()
    if record and record.get("mlflow"):
        from . import mlflow_live  # with threads and HTTP: not for every sweep

        mlflow_live.tell_end(job_dir, job, record, result, attempts)


def in_json(level: "Optional[float]") -> "Any":
    """Return a value as results have it: what is not a number as a text."""
    return level if level is None or math.isfinite(level) else "nan"


def is_at_end(rule: "Optional[StopRule]", points: "stopping.Points") -> bool:
    """Return whether a whole training is behind this one: it could only take over parameters that
    it is not trained with any more."""
    total = (rule or {}).get("total")
    return bool(total) and points.last_step() >= total  # type: ignore[operator]


def may_come_to(rung: int, result: "Optional[ResultRecord]") -> bool:
    """Return whether a trial that has begun is still on its way to a rung. Before its first one it
    has told nothing."""
    return not result or (result.get("state") == "running" and rung not in asking.rungs_of(result))


def has_met_condition(result: "ResultRecord") -> bool:
    """Return whether a condition held at the last look."""
    return str(result.get("reason") or "").startswith(stopping.CONDITION)


def state_of(state: str) -> str:
    return state if state in ("done", "stopped") else "failed"
