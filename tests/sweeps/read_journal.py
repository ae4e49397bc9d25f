"""Tells, as JSON, what Optuna reads from a journal: read_journal.py FILE."""

import json
import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = JournalStorage(JournalFileBackend(sys.argv[1]))
(name,) = optuna.get_all_study_names(storage)
study = optuna.load_study(study_name=name, storage=storage)
complete = [one for one in study.trials if one.state == optuna.trial.TrialState.COMPLETE]
importances = {}
if len(complete) > 1:
    importances = optuna.importance.get_param_importances(study)
asked = study.ask({k: v for one in complete[:1] for k, v in one.distributions.items()})
told = {
    "name": name,
    "direction": study.direction.name,
    "best": study.best_trial.number if complete else None,
    "importances": importances,
    "next": asked.params,
    "trials": [
        {
            "state": one.state.name,
            "value": one.value,
            "params": one.params,
            "intermediate": one.intermediate_values,
            "attrs": one.user_attrs,
        }
        for one in study.trials[:-1]
    ],
}
json.dump(told, sys.stdout)
