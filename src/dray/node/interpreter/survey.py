"""What a Python consists of: run by itself, with ``-I -S -c`` and this text, it prints it as JSON.

The libraries of a process are those that its loader has found, so nothing here has to know how it
looks for them. A copy is asked the same question, and must have found everything in itself.
"""

import importlib
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..formats.records import Survey

# What the node side imports, at once or later, and what these import only when they are used.
MODULES = (
    "_socket",
    "ast",
    "base64",
    "bisect",
    "bz2",
    "calendar",
    "collections",
    "contextlib",
    "ctypes",
    "encodings.idna",
    "encodings.latin_1",
    "errno",
    "fcntl",
    "fnmatch",
    "functools",
    "getpass",
    "glob",
    "grp",
    "gzip",
    "hashlib",
    "hmac",
    "http.client",
    "importlib",
    "importlib.machinery",
    "importlib.util",
    "io",
    "itertools",
    "json",
    "locale",
    "lzma",
    "marshal",
    "math",
    "operator",
    "os",
    "pkgutil",
    "pwd",
    "random",
    "re",
    "resource",
    "select",
    "shlex",
    "shutil",
    "signal",
    "socket",
    "ssl",
    "stat",
    "struct",
    "subprocess",
    "sys",
    "tempfile",
    "termios",
    "threading",
    "time",
    "traceback",
    "types",
    "typing",
    "unicodedata",
    "urllib.error",
    "urllib.parse",
    "urllib.request",
    "zipfile",
    "zlib",
)
# Those the node side can do without, where a Python was built without them.
OPTIONAL = ("bz2", "lzma", "ssl")
# Loaded by the C library itself, not before it needs them: to end a thread, to look up a user or a
# host. Other C libraries have none of them.
LATE_LIBRARIES = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
EXTENSIONS = "lib-dynload"
# For a terminal, a screen or a database, or for Python's own tests.
UNWANTED = ("_curses", "_dbm", "_gdbm", "_sqlite3", "_test", "_tkinter", "readline", "xx", "_xx")
UNWANTED_TOO = ("_ctypes_test", "nis", "ossaudiodev")
BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def import_modules() -> None:
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            if name not in OPTIONAL:
                raise


def extensions_in(folder: str) -> "List[str]":
    """Return the extension modules that can be used here, and import them."""
    found = []
    for file in sorted(os.listdir(folder)):
        name = file.split(".")[0]
        if file.endswith(".so") and not name.startswith(UNWANTED) and name not in UNWANTED_TOO:
            try:
                importlib.import_module(name)
            except Exception:  # a library of it is missing
                continue
            found.append(os.path.join(folder, file))
    return found


def load_late_libraries() -> None:
    import ctypes

    for name in LATE_LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            pass


def mapped_files() -> "List[str]":
    """Return the files that this process runs: its program, its loader, its libraries."""
    with open("/proc/self/maps", "rb") as file:
        lines = [line.rstrip(b"\n").split(None, 5) for line in file]
    paths = {os.fsdecode(one[5]) for one in lines if one[5:] and one[5].startswith(b"/")}
    return sorted(filter(is_program, paths))  # beside them there are tables of the C library


def is_program(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def certificates() -> "Optional[str]":
    """Return the file of the certificate authorities that this Python trusts, if there is one."""
    try:
        import ssl
    except ImportError:
        return None
    places = ssl.get_default_verify_paths()
    below = os.path.join(places.capath or "/", "ca-certificates.crt")
    files = [one for one in (places.cafile, below) + BUNDLES if one and os.path.isfile(one)]
    return files[0] if files else None


def imported_from(folder: str) -> "List[str]":
    """Return the files of this folder that were imported."""
    files = [getattr(one, "__file__", None) for one in list(sys.modules.values())]
    below = os.path.join(folder, "")
    return sorted({one for one in files if one and one.startswith(below) and one.endswith(".py")})


def survey() -> "Survey":
    archive, library = sys.path[:2]  # with -I -S there is nothing before them
    folder = os.path.join(library, EXTENSIONS)
    import_modules()
    extensions = extensions_in(folder) if os.path.isdir(folder) else []
    load_late_libraries()
    return {
        "prefix": sys.base_prefix,
        "archive": archive,
        "library": library,
        "imported": imported_from(library),
        "extension_files": extensions,
        "mapped": mapped_files(),
        "certificates": certificates(),
    }


if __name__ == "__main__":
    print(json.dumps(survey()))
