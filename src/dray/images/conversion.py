"""Chooses what makes the file that containers start from, and where. Pure.

It is made on the cluster wherever that is possible, because only there are the layers of earlier
images: a file that is made here has to be sent whole each time."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dray.errors import Refused
from dray.node.containers.known import RUNTIMES, named
from dray.node.containers.runtime import Runtime


class Builder(NamedTuple):
    """The program that makes an image's file."""

    name: str
    here: bool  # made on this machine, and sent as one file

    @property
    def runtime(self) -> type[Runtime]:
        return named(self.name) or RUNTIMES[0]

    @property
    def format(self) -> str:
        return self.runtime.format


class ConversionSite(NamedTuple):
    """What matters here of a cluster."""

    name: str
    runtime: str  # its setting `container`
    convert: str  # its setting `convert`
    builders: Collection[str]  # those on its login node
    modules: bool  # which may bring others


def choose_builder(source: str, site: ConversionSite, here: Collection[str]) -> Builder:
    """Choose the builder for an image of this kind of source; ``here`` are this machine's."""
    runtime = runtime_of(site)
    there = next((name for name in runtime.names if name in site.builders), "")
    own = next((name for name in runtime.names if name in here), "")
    can_there = there or (runtime.names[0] if site.modules else "")
    if source != "registry" and not runtime.converts_layers:
        can_there = ""
    if site.convert != "laptop" and can_there:
        return Builder(can_there, here=False)
    if site.convert != "cluster" and own:
        return Builder(own, here=True)
    raise Refused(
        f"{site.name}: there is nothing to make a container image with",
        hint=advice(runtime, source),
    )


def runtime_of(site: ConversionSite) -> type[Runtime]:
    """Return the runtime that the cluster's setting names, else the first that it has a program
    of."""
    there = [one for one in RUNTIMES if set(one.names) & set(site.builders)]
    return named(site.runtime) or next(iter(there), RUNTIMES[0])


def advice(runtime: type[Runtime], source: str) -> str:
    """Say what to do where nothing can make the image."""
    return runtime.advice if source == "registry" else runtime.advice_for_layers or runtime.advice
