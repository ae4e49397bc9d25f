"""Reads ProtoMotions' train_slurm.py: constants in Python source, which is parsed and never run."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

from dray.config.migration.found import Found, Gathering, Text, as_number, remote, shown
from dray.config.migration.sbatch import duration

WHAT = "ProtoMotions' protomotions/train_slurm.py"
SITE_FILE = "slurm_site.yaml"
BESIDE = (f"../{SITE_FILE}",)
PLACEHOLDERS = ("YOUR_", "/path/to/", "your_account")
SITE = "SITE_DEFAULTS"  # where newer versions have them all
SITE_NAMES = {
    "login_node": "CLUSTER_LOGIN_NODE",
    "base_dir": "CLUSTER_BASE_DIR",
    "account": "DEFAULT_SLURM_ACCOUNT",
    "partition": "DEFAULT_SLURM_PARTITION",
    "container_images": "CONTAINER_IMAGES",
    "container_mounts": "CONTAINER_MOUNTS",
    "python_executables": "PYTHON_EXECUTABLES",
}
SETTINGS = {
    "CLUSTER_LOGIN_NODE": "host",
    "CLUSTER_BASE_DIR": "root",
    "DEFAULT_SLURM_ACCOUNT": "account",
    "DEFAULT_SLURM_PARTITION": "partition",
}
NO_COUNTERPART = {
    "CONTAINER_IMAGES": "the job names its image: dray run --image {value}",
    "CONTAINER_MOUNTS": "the job names what its image sees: dray run {binds}",
    "PYTHON_EXECUTABLES": "the job names its Python: dray run --python {value} -- …",
}
COMPUTED = "computed by Python, which is not run here: write the value itself"


class Computed:
    """A value that is known only when the file is run."""


def recognises(text: Text) -> bool:
    return re.search(rf"^(?:CLUSTER_LOGIN_NODE|{SITE})\s*[:=]", text.content, re.M) is not None


def read(text: Text, beside: Mapping[str, Text]) -> Found:
    try:
        tree = ast.parse(text.content)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise text.error(line, f"not valid Python: {error.args[0]}") from error
    found = constants(tree)
    into = Gathering(text, PLACEHOLDERS)
    for name, value in found.items():
        _gather_one(name, value, found, into)
    _gather_defaults(argument_defaults(tree), into)
    into.set("job.recipe", "protomotions", "recipe")
    if SITE_FILE in beside:
        into.add_note(SITE_FILE, "not read: write its login_node, base_dir … as settings here")
    return into.found()


def constants(tree: ast.Module) -> dict[str, Any]:
    """Return the configuration's top-level constants; those of SITE_DEFAULTS by their older
    names."""
    found: dict[str, Any] = {}
    for statement in tree.body:
        target = assigned_name(statement)
        value = getattr(statement, "value", None)
        if target is None or value is None:
            continue
        if target == SITE:
            site = literal(value)
            if isinstance(site, dict):
                found |= {SITE_NAMES.get(key, f"{SITE}.{key}"): one for key, one in site.items()}
        elif target in SITE_NAMES.values() and not mentions(value, SITE):
            found[target] = literal(value)
    return found


def assigned_name(statement: ast.stmt) -> str | None:
    targets = (
        statement.targets
        if isinstance(statement, ast.Assign)
        else [statement.target]
        if isinstance(statement, ast.AnnAssign)
        else []
    )
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    return None


def mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


def literal(node: ast.expr) -> Any:
    """Return the value of a literal, else Computed; a table keeps the literals in it."""
    if isinstance(node, ast.Dict):
        return {
            key.value: literal(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        }
    try:
        return ast.literal_eval(node)
    except ValueError:
        return Computed()


def argument_defaults(tree: ast.Module) -> dict[str, Any]:
    """Return the defaults of add_argument("-x", "--xyz", …, default=y), by each of its names."""
    found: dict[str, Any] = {}
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
            continue
        if call.func.attr == "add_argument" and call.args:
            given = {one.arg: one.value for one in call.keywords}
            flags = [literal(one) for one in call.args] if "default" in given else []
            found |= {one: literal(given["default"]) for one in flags if isinstance(one, str)}
    return found


def _gather_one(name: str, value: Any, found: Mapping[str, Any], into: Gathering) -> None:
    if isinstance(value, Computed):
        into.add_note(name, COMPUTED)
    elif name in SETTINGS and isinstance(value, str):
        if name == "CLUSTER_BASE_DIR":
            account = str(found.get("DEFAULT_SLURM_ACCOUNT", ""))
            # Every user has a folder of their own there.
            value = remote(value.replace("{account}", account).rstrip("/") + "/$USER/dray")
        into.set(SETTINGS[name], value, shown(name, value))
    elif isinstance(value, dict):
        for key, one in value.items():
            _gather_one(f"{name}.{key}", one, found, into)
    else:
        why = NO_COUNTERPART.get(name.split(".")[0], "has no counterpart yet")
        binds = " ".join(f"--bind {one.strip()}" for one in str(value).split(","))
        word = shlex.quote(str(value))
        into.add_note(shown(name, value), why.format(value=word, binds=binds))


def _gather_defaults(found: Mapping[str, Any], into: Gathering) -> None:
    limit, count = found.get("--slurm-time"), found.get("--ngpu")
    if isinstance(limit, str):
        origin = shown("--slurm-time", limit)
        into.set("job.resources.time", duration(limit) or limit, origin)
    if isinstance(count, str | int):
        into.set("job.resources.gpus", as_number(str(count)), shown("--ngpu", count))
    if found.get("--nodes") not in (None, 1, "1"):
        nodes = as_number(str(found["--nodes"]))
        into.set("job.resources.nodes", nodes, shown("--nodes", found["--nodes"]))
    if "--array-size" in found:
        into.add_note(shown("--array-size", found["--array-size"]), "dray resumes jobs itself")
