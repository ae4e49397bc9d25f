"""The node side and the trainers' library as one file, named by its content."""

from __future__ import annotations

import io
import marshal
import sys
from functools import cache
from pathlib import Path

from dray.node import files
from dray.node.packs import hash_of

ENTRY = b"""import sys

from dray_node.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
# The second is for trainers, which find it by PYTHONPATH. Its parent has no __init__.py: such a
# namespace package gives way to any other dray that a trainer can import.
PACKAGES = {"dray_node": "node", "dray/training": "training"}
NAMESPACE = "dray/"
EPOCH = (2020, 1, 1, 0, 0, 0)  # fixed, so that equal sources make equal files


@cache
def sources() -> dict[str, bytes]:
    code = Path(__file__).parent.parent
    found = {
        f"{package}/{path.name}": path.read_bytes()
        for package, folder in PACKAGES.items()
        for path in sorted((code / folder).glob("*.py"))
    }
    return {"__main__.py": ENTRY, **found}


def name_of(content: dict[str, bytes]) -> str:
    everything = b"\0".join(key.encode() + b"\0" + value for key, value in content.items())
    return f"dray-node-{hash_of(sys.version.encode() + everything)[:16]}.pyz"


@cache
def name() -> str:
    return name_of(sources())


def build(content: dict[str, bytes]) -> bytes:
    """Sources for any Python, and beside them what this one compiles them to, for a quick start."""
    import zipfile  # rarely needed: the file is built once for each version

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(NAMESPACE, EPOCH), b"")  # Python needs it named
        for name, source in content.items():
            archive.writestr(zipfile.ZipInfo(name, EPOCH), source)
            archive.writestr(zipfile.ZipInfo(f"{name}c", EPOCH), compiled(name, source))
    return buffer.getvalue()


def compiled(name: str, source: bytes) -> bytes:
    """What Python keeps in a .pyc, of the kind that is never compared with its source again."""
    from importlib.util import MAGIC_NUMBER, source_hash

    code = compile(source, name, "exec", dont_inherit=True)
    unchecked_hash = (0b01).to_bytes(4, "little")
    return MAGIC_NUMBER + unchecked_hash + source_hash(source) + marshal.dumps(code)


def install(root: Path) -> Path:
    """Put the file below ``root`` unless it lies there already."""
    content = sources()
    path = root / "node" / name_of(content)
    if not path.exists():
        files.make_folder(str(path.parent))
        files.write_bytes(str(path), build(content))
    return path
