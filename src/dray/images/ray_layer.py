"""Plans an image with Ray on top of another one, such that KubeRay can run it. Pure.

KubeRay starts a container's Ray by ``bash -lc``, where a login shell knows only the usual places,
and asks by ``wget`` whether it is well. Ray goes into the image's own Python: jobs import it there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dray.errors import UsageError
from dray.images.building import Build

VERSION = "2.60.0"  # the one that dray is tested with
OLDEST = (2, 52)  # which knows a token
NAME = "Dockerfile.ray"
NUMBERS = re.compile(r"(\d{1,4})\.(\d{1,4})\.\d{1,4}")
PYTHON = re.compile(r"[\w./][\w./+-]*")
PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w.,-]+\])?(?:(?:==|>=|<=|~=)[\w.]+)?")
IMAGE = re.compile(r"[A-Za-z0-9][\w./:@-]*")
USER = re.compile(r"[\w.-]*(?::[\w.-]+)?")
LAST_USER = re.compile(r"^\s*USER\s+(\S+)\s*$", re.M | re.I)

TEXT = """\
# {base} with Ray {version}, for KubeRay: written by dray image build --ray.
FROM {base}
USER root
SHELL ["/bin/sh", "-ec"]
# KubeRay starts Ray by bash, and asks by wget whether it is well.
RUN missing=; \\
    for one in bash wget; do command -v $one >/dev/null || missing="$missing $one"; done; \\
    if [ -z "$missing" ]; then exit 0; fi; \\
    if command -v apt-get >/dev/null; then \\
        apt-get update; \\
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; \\
        rm -rf /var/lib/apt/lists/*; \\
    elif command -v dnf >/dev/null; then dnf install -y $missing; dnf clean all; \\
    elif command -v microdnf >/dev/null; then microdnf install -y $missing; \\
    elif command -v apk >/dev/null; then apk add --no-cache $missing; \\
    else echo "the image lacks$missing, and has nothing to install that with" >&2; exit 1; fi
RUN {python} -m pip --version >/dev/null 2>&1 || {python} -m ensurepip; \\
    PIP_BREAK_SYSTEM_PACKAGES=1 PIP_ROOT_USER_ACTION=ignore \\
    {python} -m pip install --no-cache-dir {packages}
# By this Python, however that is started, and where a login shell finds it.
RUN python=$(command -v {python}); \\
    mkdir -p /usr/local/bin; \\
    rm -f /usr/local/bin/ray; \\
    printf '#!/bin/sh\\nexec %s -m ray.scripts.scripts "$@"\\n' "$python" >/usr/local/bin/ray; \\
    chmod 755 /usr/local/bin/ray; \\
    /usr/local/bin/ray --version
"""


class RayLayer(NamedTuple):
    """What goes on top: ``python`` is the image's own, ``packages`` come along with Ray."""

    version: str = VERSION
    python: str = "python3"
    packages: tuple[str, ...] = ()

    def text(self, base: str, user: str = "") -> str:
        """Return the Dockerfile. ``user``: whom the image's containers belong to, who is that
        again in the end."""
        wanted = [f"ray[default]=={self.version}", *self.packages]
        text = TEXT.format(
            base=require_image(base),
            version=self.version,
            python=self.python,
            packages=" ".join(f"'{one}'" for one in wanted),
        )
        return text + (f"USER {user}\n" if user and USER.fullmatch(user) else "")

    def build(self, base: str, tag: str | None, user: str = "") -> Build:
        """Plan the build, which can copy from nowhere."""
        own = tag or f"{base.partition('@')[0].rpartition('/')[2].partition(':')[0]}-ray:"
        own += self.version if own.endswith(":") else ""
        return Build(own, Path(NAME), Path(), {}, text=self.text(base, user))


def layer_of(version: str, python: str, packages: Sequence[str]) -> RayLayer:
    """Read what is wanted, as a user writes it."""
    numbers = NUMBERS.fullmatch(version)
    if numbers is None:
        raise UsageError(
            f"--ray {version}: that is no version of Ray",
            hint=f"Write it as --ray={VERSION}. A folder, or a Dockerfile, goes in front of --ray.",
        )
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise UsageError(
            f"Ray {version} knows no token: whoever reached its port would run programs there",
            hint="Use Ray 2.52 or newer.",
        )
    if not PYTHON.fullmatch(python):
        raise UsageError(f"--python {python}: name a program of the image, or its path")
    for one in packages:
        if not PACKAGE.fullmatch(one):
            raise UsageError(f"--with {one}: name packages of pip's: --with optuna,mlflow==3.1.0")
    return RayLayer(version, python, tuple(packages))


def require_image(name: str) -> str:
    if not IMAGE.fullmatch(name):
        raise UsageError(f"'{name}' is not the name of an image")
    return name


def user_in(dockerfile: str) -> str:
    """Return whom a Dockerfile names last, as far as that can be told before it is built."""
    found = LAST_USER.findall(dockerfile)
    return found[-1] if found and USER.fullmatch(found[-1]) else ""
