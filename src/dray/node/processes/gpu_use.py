"""Measures how busy a job's GPUs are, through NVIDIA's own library, where there is one.

``nvidia-smi`` would be a program to start every few seconds; the library behind it answers within
a millisecond. It is asked in a thread of its own: where a GPU has fallen off the bus, it may never
answer, and the attempt has to go on."""

import re
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Sequence, Tuple  # noqa: F401

LIBRARY = "libnvidia-ml.so.1"
PACE = 5.0  # seconds between two looks
OLD = 60.0  # seconds after which what was seen says nothing any more
FINE = 0
INDEX = re.compile("[0-9]{1,4}$")


def visible_devices(variable: "Optional[str]") -> "Optional[List[str]]":
    """Parse CUDA_VISIBLE_DEVICES: indices, or names such as GPU-…; None where all are meant. What
    stands behind the first that is none of these is not seen by a command either."""
    if variable is None:
        return None
    found = []  # type: List[str]
    for one in variable.split(","):
        one = one.strip()
        if not INDEX.match(one) and not one.startswith(("GPU-", "MIG-")):
            break
        found.append(one)
    return found


class Library:
    """The functions that are needed. Raises OSError where there is no library or no driver."""

    def __init__(self, name: str = LIBRARY) -> None:
        import ctypes  # not for jobs without GPUs

        class Utilization(ctypes.Structure):
            _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]  # noqa: RUF012

        self.library = ctypes.CDLL(name)
        self.pointer, self.reference = ctypes.c_void_p, ctypes.byref
        self.utilization, self.number = Utilization, ctypes.c_uint
        out = ctypes.POINTER
        for function, arguments in (
            ("nvmlInit_v2", []),
            ("nvmlDeviceGetCount_v2", [out(ctypes.c_uint)]),
            ("nvmlDeviceGetHandleByIndex_v2", [ctypes.c_uint, out(ctypes.c_void_p)]),
            ("nvmlDeviceGetHandleByUUID", [ctypes.c_char_p, out(ctypes.c_void_p)]),
            ("nvmlDeviceGetUtilizationRates", [ctypes.c_void_p, out(Utilization)]),
        ):
            try:
                found = getattr(self.library, function)
            except AttributeError:
                raise OSError("{} has no {}".format(name, function))
            found.argtypes, found.restype = arguments, ctypes.c_int
        self._call("nvmlInit_v2")

    def _call(self, function: str, *arguments: "Any") -> None:
        code = getattr(self.library, function)(*arguments)
        if code != FINE:
            raise OSError("{} failed with {}".format(function, code))

    def devices(self, wanted: "Optional[Sequence[str]]") -> "List[Any]":
        """Return these GPUs, or all of them."""
        if wanted is None:
            count = self.number()
            self._call("nvmlDeviceGetCount_v2", self.reference(count))
            wanted = [str(index) for index in range(min(count.value, 64))]
        return [self._device(one) for one in wanted]

    def _device(self, name: str) -> "Any":
        handle = self.pointer()
        if INDEX.match(name):
            self._call("nvmlDeviceGetHandleByIndex_v2", int(name), self.reference(handle))
        else:
            uuid = name.encode("ascii", "replace")
            self._call("nvmlDeviceGetHandleByUUID", uuid, self.reference(handle))
        return handle

    def busy(self, device: "Any") -> int:
        """Return for how many percent of the last moment the GPU did anything."""
        rates = self.utilization()
        self._call("nvmlDeviceGetUtilizationRates", device, self.reference(rates))
        return min(int(rates.gpu), 100)


class Gauge:
    """Looks at the GPUs every few seconds, and knows since when all of them do nothing."""

    def __init__(self, wanted: "Optional[Sequence[str]]", name: str = LIBRARY) -> None:
        self.wanted = wanted
        self.name = name
        self.seen = None  # type: Optional[Tuple[float, float, Optional[float]]]
        self.thread = None  # type: Optional[threading.Thread]

    def _watch(self) -> None:
        try:
            library = Library(self.name)
            devices = library.devices(self.wanted)
            if not devices:
                return
            idle = None  # type: Optional[float]
            while True:
                shares = [library.busy(one) for one in devices]
                now = time.time()
                idle = (idle or now) if not any(shares) else None
                self.seen = (time.monotonic(), sum(shares) / len(shares), idle)
                time.sleep(PACE)
        except (OSError, ImportError, ValueError):  # nothing to measure here
            return

    def read(self) -> "Optional[Tuple[float, Optional[float]]]":
        """Return the use in percent, the mean of all GPUs, and since when it is 0, if it is; None
        where that is not known. The first call begins to look."""
        if self.thread is None:
            self.thread = threading.Thread(target=self._watch)
            self.thread.daemon = True
            self.thread.start()
        seen = self.seen
        if seen is None or time.monotonic() - seen[0] > OLD:
            return None
        return seen[1], seen[2]
