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
if len(complete) > 1 and len(study.directions) == 1:
    importances = optuna.importance.get_param_importances(study)
several = len(study.directions) > 1
asked = study.ask({k: v for one in complete[:1] for k, v in one.distributions.items()})
told = {
    "name": name,
    "direction": [one.name for one in study.directions] if several else study.direction.name,
    "best": None if several or not complete else study.best_trial.number,
    "front": sorted(one.number for one in study.best_trials) if complete else [],
    "importances": importances,
    "next": asked.params,
    "trials": [
        {
            "state": one.state.name,
            "value": one.values if several else one.value,
            "params": one.params,
            "intermediate": one.intermediate_values,
            "attrs": one.user_attrs,
        }
        for one in study.trials[:-1]
    ],
}
json.dump(told, sys.stdout)
