"""Tells, as JSON, how PyYAML reads each of the documents in a JSON file: read_yaml.py FILE."""

import json
import sys

import yaml

with open(sys.argv[1]) as file:
    documents = json.load(file)
told = []
for one in documents:
    try:
        told.append({"content": yaml.safe_load(one)})
    except yaml.YAMLError as error:
        told.append({"error": str(error)})
json.dump(told, sys.stdout, default=str)
