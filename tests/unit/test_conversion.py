"""Where an image is made ready: by what is there, here and on the cluster."""

from __future__ import annotations

import re

import pytest

from dray.errors import Refused
from dray.images.conversion import Builder, ConversionSite, choose_builder

A, S, E = "apptainer", "singularity", "enroot"


@pytest.mark.parametrize(
    ("kind", "runtime", "convert", "there", "modules", "here", "expected"),
    [
        # On the cluster wherever it has what it takes.
        ("layers", "auto", "auto", [A], False, [A], (A, False)),
        ("layers", "auto", "auto", [S], False, [], (S, False)),
        ("layers", "auto", "auto", [A, E], False, [E], (A, False)),
        ("layers", "auto", "auto", [], True, [A], (A, False)),
        ("registry", "auto", "auto", [A], False, [], (A, False)),
        # Else here.
        ("layers", "auto", "auto", [], False, [A], (A, True)),
        ("layers", "auto", "laptop", [A], False, [S], (S, True)),
        ("registry", "auto", "laptop", [A], False, [A], (A, True)),
        # Enroot cannot do anything with layers.
        ("layers", "auto", "auto", [E], False, [E], (E, True)),
        ("layers", E, "auto", [A, E], False, [E], (E, True)),
        ("registry", E, "auto", [E], False, [], (E, False)),
    ],
)
def test_a_builder(
    kind: str,
    runtime: str,
    convert: str,
    there: list[str],
    modules: bool,
    here: list[str],
    expected: tuple[str, bool],
) -> None:
    site = ConversionSite("euler", runtime, convert, there, modules)
    assert choose_builder(kind, site, here) == Builder(*expected)


@pytest.mark.parametrize(
    ("kind", "runtime", "convert", "there", "here", "hint"),
    [
        ("layers", "auto", "auto", [], [], "Install apptainer on this machine"),
        ("layers", "auto", "laptop", [A], [], "Install apptainer on this machine"),
        ("layers", "auto", "cluster", [], [A], "Install apptainer on this machine"),
        ("layers", "auto", "auto", [E], [A], "a registry .* or on this machine: install enroot"),
        ("registry", "auto", "auto", [], [], "Install apptainer"),
    ],
)
def test_no_builder(
    kind: str, runtime: str, convert: str, there: list[str], here: list[str], hint: str
) -> None:
    site = ConversionSite("euler", runtime, convert, there, modules=False)
    with pytest.raises(Refused, match="euler: there is nothing to make") as caught:
        choose_builder(kind, site, here)
    assert re.search(hint, caught.value.hint)
