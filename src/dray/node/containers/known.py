"""The runtimes that dray knows. Light: a laptop reads what they declare."""

from .apptainer import Apptainer
from .enroot import Enroot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple, Type  # noqa: F401

    from .runtime import Runtime  # noqa: F401

RUNTIMES = (Apptainer, Enroot)  # type: Tuple[Type[Runtime], ...]  # the first one is preferred
NAMES = tuple(name for runtime in RUNTIMES for name in runtime.names)
ENDINGS = tuple("." + runtime.format for runtime in RUNTIMES)  # of the files that dray makes


def named(name: str) -> "Optional[Type[Runtime]]":
    """Return the runtime that has a program of this name."""
    return next((runtime for runtime in RUNTIMES if name in runtime.names), None)


def of_format(ending: str) -> "Type[Runtime]":
    """Return the runtime whose image files end like this, without the dot."""
    return next((runtime for runtime in RUNTIMES if runtime.format == ending), RUNTIMES[0])
