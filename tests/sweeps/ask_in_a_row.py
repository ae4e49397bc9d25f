"""Asks Optuna for one configuration after the other, each time in a process of its own, and prints
them all. Of three that were asked for, the last two have no result yet."""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")  # as on a node
source, folder, text, count = sys.argv[1:5]
package = Path(source).parents[1]
sys.path.insert(0, str(package.parents[1]))

import cmaes  # noqa: E402, F401  (both once, for all processes)
import optuna  # noqa: E402, F401

from dray.node.sweeps import optuna_child, optuna_question  # noqa: E402

os.chdir(folder)
study: Any = json.loads(text)
trials: Any = {}


def result_of(number: int) -> Any:
    if number % 10 == 9:
        return {"state": "failed"}
    values = {"lr": 1.0, "n": 9, **trials[number]["values"]}  # which may not be there
    value = (values["lr"] - 0.3) ** 2 + 0.01 * abs(values["n"] - 4)
    other = (values["lr"] - 0.6) ** 2  # where there are two metrics
    return {"state": "done", "value": value, "objectives": [value, other]}


for number in range(int(count)):
    results = {one: result_of(one) for one in range(number - 2)}
    question = optuna_question.question(study, number, trials, results)
    Path(optuna_child.QUESTION).write_text(json.dumps(question))
    pid = os.fork()
    if pid == 0:
        os._exit(optuna_child.main())
    assert os.waitpid(pid, 0)[1] == 0
    answer = json.loads(Path(optuna_child.ANSWER).read_text())
    trials[number] = optuna_question.chosen(study, number, answer)
print(json.dumps([trials[one] for one in sorted(trials)]))
