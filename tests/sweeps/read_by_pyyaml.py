"""Tells, as JSON, what dray says of each of the documents in a JSON file where it leaves them to
PyYAML; null where it reads one: read_by_pyyaml.py FILE SOURCES."""

import json
import sys

sys.path.insert(0, sys.argv[2])

from dray.config.migration.found import Text
from dray.config.yaml_subset import by_pyyaml
from dray.errors import ConfigError

with open(sys.argv[1]) as file:
    documents = json.load(file)
told = []
for one in documents:
    try:
        by_pyyaml(Text("a.yaml", one))
        told.append(None)
    except ConfigError as error:
        told.append(error.message)
json.dump(told, sys.stdout)
