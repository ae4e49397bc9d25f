"""Where the file that containers start from is made: pure.

On the cluster wherever that can be done, because only there are the layers of earlier images: a
file that is made here has to be sent whole each time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dray.errors import Refused
from dray.node.containers.container import APPTAINERS, ENROOT


class Road(NamedTuple):
    builder: str
    here: bool  # made on this machine, and sent as one file

    @property
    def format(self) -> str:
        return "sqsh" if self.builder == ENROOT else "sif"


class Place(NamedTuple):
    """A cluster, as far as it matters here."""

    name: str
    runtime: str  # its setting `container`
    convert: str  # its setting `convert`
    has: Collection[str]  # the builders on its login node
    modules: bool  # which may bring others


def choose(kind: str, place: Place, here: Collection[str]) -> Road:
    """For an image of this kind of source, with these builders on this machine."""
    wanted = runtime_of(place)
    fitting = (ENROOT,) if wanted == ENROOT else APPTAINERS
    there = next((name for name in fitting if name in place.has), "")
    own = next((name for name in fitting if name in here), "")
    # Enroot takes an image from a registry or an engine, not from layers.
    can_there = there or (place.modules and fitting[0])
    if wanted == ENROOT and kind != "registry":
        can_there = ""
    if place.convert != "laptop" and can_there:
        return Road(str(can_there), here=False)
    if place.convert != "cluster" and own:
        return Road(own, here=True)
    raise Refused(
        f"{place.name}: there is nothing to make a container image with", hint=way_out(wanted, kind)
    )


def runtime_of(place: Place) -> str:
    if place.runtime != "auto":
        return place.runtime
    only_enroot = ENROOT in place.has and not set(APPTAINERS) & set(place.has)
    return ENROOT if only_enroot else APPTAINERS[0]


def way_out(wanted: str, kind: str) -> str:
    if wanted == ENROOT and kind != "registry":
        return (
            "Enroot makes its images from a registry (docker://NAME) or on this machine: install "
            "enroot here, or give a .sqsh file."
        )
    return (
        "Install apptainer on this machine, or name the module that has it on the cluster "
        "(setting modules), or give a .sif file."
    )
