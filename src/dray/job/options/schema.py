"""A JSON schema of dray.toml, made from the options: editors complete and check the file by it.

It is never stricter than dray itself, and less strict where a pattern cannot say what a parser
does. Draft 7, which the editors' TOML servers read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dray.job import quantities
from dray.job.options import kinds, pod_values, ray_values, values
from dray.job.options.job import JOB
from dray.job.options.option import Option
from dray.job.options.other import NOTIFY, SNAPSHOT
from dray.node.containers.known import NAMES
from dray.node.notifications.notify import EVENTS

Schema = dict[str, Any]

DIALECT = "http://json-schema.org/draft-07/schema#"
AMOUNT = r"\d{1,15}(\.\d{1,15})?"
CLOCK = r"(\d{1,6}-)?\d{1,6}:[0-5]\d:[0-5]\d"
CLUSTER_NAME = "^[A-Za-z0-9][A-Za-z0-9_-]*$"


def text(pattern: str = "") -> Schema:
    return {"type": "string", "pattern": pattern} if pattern else {"type": "string"}


def whole_number(least: int) -> Schema:
    return {"anyOf": [{"type": "integer", "minimum": least}, text(r"^\d{1,9}$")]}


def several(of: Schema) -> Schema:
    return {"type": "array", "items": of}


DURATION = text(rf"^\s*({CLOCK}|({AMOUNT}[smhdwSMHDW])+)\s*$")
WORD = text(r"^\S+$")
VARIABLE = text("^[A-Za-z_][A-Za-z0-9_]*$")
# What a parser takes; one that is not here takes anything.
TAKEN: Mapping[Any, Schema] = {
    quantities.parse_count: whole_number(1),
    quantities.parse_duration: DURATION,
    quantities.parse_hours: {
        "anyOf": [{"type": "number", "exclusiveMinimum": 0}, text(rf"^\s*{AMOUNT}[hH]?\s*$")]
    },
    quantities.parse_moment: text(),
    quantities.parse_shortest: {"anyOf": [DURATION, {"enum": [0, "0", "none"]}]},
    quantities.parse_size: {
        "anyOf": [
            {"type": "integer", "minimum": 2**20},
            text(rf"^\s*{AMOUNT}\s*[KMGTPkmgtp]?([iI]?[bB])?\s*$"),
        ]
    },
    pod_values.absolute_path: text("^/"),
    pod_values.group_ids: {"anyOf": [whole_number(0), several(whole_number(0))]},
    pod_values.mapping: {
        "anyOf": [text(), {"type": "object", "additionalProperties": {"type": "string"}}]
    },
    pod_values.patch_table: {"type": ["string", "object"]},
    pod_values.object_name: text(f"^{pod_values.OBJECT_NAME.pattern}$"),
    pod_values.volume_texts: several(text("^(pvc|nfs|host):.*/")),
    ray_values.api_address: text(r"^https?://\S+$"),
    ray_values.token_source: text("^(env|file|command):"),
    values.binds: several(text()),
    values.caches: several(text(r"^\w[\w.-]*:[~/]")),
    values.count_from_zero: whole_number(0),
    values.counting_pattern: text(),
    values.env_name: VARIABLE,
    values.env_names: several(VARIABLE),
    values.env_patterns: several(text(r"^[A-Za-z_*?][A-Za-z0-9_*?]*$")),
    values.env_table: {
        "type": "object",
        "additionalProperties": {"type": ["string", "number"]},
        "propertyNames": {"pattern": VARIABLE["pattern"]},
    },
    values.events: several({"enum": list(EVENTS)}),
    values.exit_codes: several(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 255}, text(r"^\d{1,3}$")]}
    ),
    values.gpu_request: {
        "anyOf": [{"type": "number", "minimum": 0}, text(r"^([A-Za-z0-9_.-]+:)?[0-9.]+$")]
    },
    values.image: text(r"^[^-\s]\S*$"),
    values.job_name: text("^[a-z0-9][a-z0-9-]{0,39}$"),
    values.mailbox: text("@"),
    values.metric_pattern: text(),
    values.one_word: WORD,
    values.output_paths: several(text("^[^/]")),
    values.partner_name: text(r"\{number\}"),
    values.place_inside: text("^(/|$)"),
    values.absolute_path: text(r"^/+[^/]"),
    values.remote_path: text(r"^(/|~/|\$)"),
    values.runtime_name: {"enum": ["auto", *NAMES]},
    values.signal_name: text(),
    values.ssh_host: text(r"^[^-\s]\S*$"),
    values.text: text(),
    values.texts: several(text()),
    values.total_flag: text(r"^-\S*$"),
    values.words: text(),
    values.yes_or_no: {"enum": [True, False, "true", "false"]},
}


def schema() -> Schema:
    """Describe the whole file."""
    tables = nested([*JOB, *SNAPSHOT, *NOTIFY])
    tables["properties"]["clusters"] = {
        "type": "object",
        "propertyNames": {"pattern": CLUSTER_NAME},
        "additionalProperties": {
            "anyOf": [
                *({"$ref": f"#/definitions/{kind}"} for kind in kinds.BUILT_IN),
                {"$ref": "#/definitions/known already"},
                {"$ref": "#/definitions/of another package"},
            ]
        },
    }
    return {"$schema": DIALECT, "title": "dray.toml", **tables, "definitions": definitions()}


def nested(known: Iterable[Option]) -> Schema:
    """Describe tables, and tables in them, from the keys of their options."""
    top = table({})
    for option in known:
        place = top
        for name in option.table.split("."):
            place = place["properties"].setdefault(name, table({}))
        place["properties"][option.name] = described(option)
    return top


def table(properties: Schema, required: Iterable[str] = ()) -> Schema:
    found = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def definitions() -> dict[str, Schema]:
    """Describe a cluster of each kind, one that another file defines, and one of a kind that is
    not dray's own."""
    every: Schema = {}
    found = {}
    for kind in kinds.BUILT_IN:
        known = {one.name: described(one) for one in kinds.find(kind).options}
        found[kind] = table({**known, "kind": {"const": kind}}, ["kind"])
        for name, one in known.items():
            every.setdefault(name, {"anyOf": []})["anyOf"].append(one)
    del every["kind"]
    alike = {name: one["anyOf"] for name, one in every.items()}
    merged = {
        name: ways[0] if all(way == ways[0] for way in ways) else {"anyOf": ways}
        for name, ways in alike.items()
    }
    foreign = {"kind": {"type": "string", "not": {"enum": list(kinds.BUILT_IN)}}}
    return {
        **found,
        "known already": table(merged),
        "of another package": {"type": "object", "properties": foreign, "required": ["kind"]},
    }


def described(option: Option) -> Schema:
    """Describe the values that one option takes."""
    import tomllib  # only where the schema is written

    found = {
        "description": option.help,
        "examples": [tomllib.loads(f"value = {option.example}")["value"]],
        **taken(option),
    }
    return found if option.default is None else {**found, "default": option.default}


def taken(option: Option) -> Schema:
    if isinstance(option.parse, values.Choice):
        return {"enum": list(option.parse.choices)}
    return TAKEN.get(option.parse, {})
