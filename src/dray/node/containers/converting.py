"""Converts the layers of an image to the one file that containers start from.

This is the command of a job like any other, on a compute node: what it prints is the job's log."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zlib

from ..code.packs import hash_of
from ..formats import files, leases, mounts
from . import container
from .images import Images, Part, hex_of  # noqa: F401
from .known import of_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, Iterator, List, Type  # noqa: F401

    from ..formats.records import ImageRecord, Record
    from .runtime import Runtime

PIECE = 1 << 20
UNKNOWN_SIZE = 20 << 30  # of an image in a registry
GZIP = 31  # zlib's word for gzip with a header
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


class CannotConvert(Exception):
    """An image that could not be converted; the message says what is wrong, and what to do."""


def main(image: str) -> int:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.environ["DRAY_OUTPUTS"])))
    files.Lock.leased = leases.are_needed(root)
    try:
        convert(Images(root), image)
    except (CannotConvert, OSError) as error:
        sys.stderr.write("{}\n".format(error))
        return 1
    return 0


def convert(images: Images, image: str) -> None:
    """Make an image's file once, also when several ask for it at the same time."""
    with images.lock(image):
        record = images.record(image)
        if record is None:
            raise CannotConvert("there is no image {} here: push it again".format(image))
        if images.file(image) is not None:
            return
        target = os.path.join(images.folder, "{}.{}".format(hex_of(image), record["format"]))
        # A node's scratch is shared with other roots, where the same image may be being made.
        root = hash_of(os.path.realpath(images.folder).encode("utf-8", "surrogateescape"))
        unfinished = ".new-{}-{}-".format(hex_of(image), root[:12])
        place = scratch_place(images, record)
        for folder in (place, images.folder):
            clear(folder, unfinished)  # of one that was killed: nobody else is at it
        scratch = tempfile.mkdtemp(prefix=unfinished, dir=place)
        finished = tempfile.mkdtemp(prefix=unfinished, dir=images.folder)
        try:
            made = make(images, record, scratch, finished)
            with open(made, "rb") as file:
                os.fsync(file.fileno())
            os.replace(made, target)
            files.sync_folder(images.folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(finished, ignore_errors=True)
        if not record["keep_layers"]:
            images.drop_layers(record)


def clear(folder: str, prefix: str) -> None:
    for name in os.listdir(folder):
        if name.startswith(prefix):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def scratch_place(images: Images, record: "ImageRecord") -> str:
    """Choose the node's own disk, if it has room for the layers and for their unpacked files. A
    disk in memory would use up the job's."""
    place = tempfile.gettempdir()
    if (
        mounts.file_system(place, [(place, kind) for place, kind, _ in mounts.read_mounts()])
        in mounts.IN_MEMORY
    ):
        return images.folder
    usage = os.statvfs(place)
    has_room = usage.f_bavail * usage.f_frsize > 3 * (record["size"] or UNKNOWN_SIZE)
    return place if has_room else images.folder


def make(images: Images, record: "ImageRecord", scratch: str, finished: str) -> str:
    made = os.path.join(finished, "image")
    if record["source"] == "file":
        with open(made, "wb") as file:
            assemble(images, record["layers"][0], file)
        return made
    runtime = of_format(record["format"])
    if record["source"] == "registry" or not runtime.converts_layers:
        build(runtime, record["name"], made, scratch)
    else:
        say("reading {} layers".format(len(record["layers"])))
        layout = Layout(os.path.join(scratch, "oci"))
        for digest in record["layers"]:
            with layout.open(digest) as file:
                assemble(images, digest, file)
        build(runtime, layout.finish(record["config"]), made, scratch)
    return made


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


def assemble(images: Images, digest: str, sink: "Any") -> None:
    """Write the layer out, and check it against its digest."""
    parts = images.whole(digest)
    if parts is None:
        raise CannotConvert("the layer {} is not here: push the image again".format(digest))
    check = hashlib.sha256()
    try:
        for content in contents_of(parts):
            check.update(content)
            sink.write(content)
        is_whole = check.hexdigest() == hex_of(digest)
    except zlib.error:
        is_whole = False
    if not is_whole:
        files.remove_tree(images.layer(digest))
        raise CannotConvert("the layer {} came damaged: push the image again".format(digest))


def contents_of(parts: "List[Part]") -> "Iterator[bytes]":
    for part in parts:
        unpacker = zlib.decompressobj(GZIP)
        with open(part.path, "rb") as file:
            piece = file.read(PIECE)
            while piece:
                yield unpacker.decompress(piece)
                piece = file.read(PIECE)


class Layout:
    """An image as an OCI layout; uncompressed, so that nothing is unpacked twice."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.blobs = os.path.join(folder, "blobs", "sha256")
        self.digests = []  # type: List[str]
        os.makedirs(self.blobs)

    def open(self, digest: str) -> "BinaryIO":
        """Open a file for that layer; the lowest comes first."""
        self.digests.append(digest)
        return open(self._blob(digest), "wb")

    def finish(self, config: str) -> str:
        """Complete the layout; return the reference that names it as a source."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": self._add(CONFIG_TYPE, config.encode("utf-8")),
            "layers": [self._describe(LAYER_TYPE, digest) for digest in self.digests],
        }
        entry = self._add(MANIFEST_TYPE, files.encode(manifest))
        self._write("index.json", {"schemaVersion": 2, "manifests": [entry]})
        self._write("oci-layout", {"imageLayoutVersion": "1.0.0"})
        return "oci:" + self.folder

    def _blob(self, digest: str) -> str:
        return os.path.join(self.blobs, hex_of(digest))

    def _describe(self, kind: str, digest: str) -> "Record":
        size = os.path.getsize(self._blob(digest))
        return {"mediaType": kind, "digest": "sha256:" + hex_of(digest), "size": size}

    def _add(self, kind: str, content: bytes) -> "Record":
        digest = hashlib.sha256(content).hexdigest()
        files.write_bytes(self._blob(digest), content, durable=False)
        return self._describe(kind, digest)

    def _write(self, name: str, value: "Record") -> None:
        files.write_json(os.path.join(self.folder, name), value, durable=False)


def build(runtime: "Type[Runtime]", reference: str, target: str, scratch: str) -> None:
    """Make an image file with the first of the runtime's programs that is installed."""
    program = next((name for name in runtime.names if shutil.which(name)), None)
    if program is None:
        names = " nor ".join(runtime.names)
        there_is = "there is neither {}" if len(runtime.names) > 1 else "there is no {}"
        raise CannotConvert(
            there_is.format(names) + " on this node: load a module that has it "
            '(setting modules), or set convert = "laptop" for this cluster'
        )
    argv, variables = runtime.conversion(program, reference, target, scratch)
    carry_out(argv, target, variables)


def carry_out(argv: "List[str]", target: str, variables: "Dict[str, str]") -> None:
    say(" ".join(argv))
    env = dict(os.environ, **variables)
    said = []  # type: List[str]
    try:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
            errors="replace",
        )
    except OSError as error:
        raise CannotConvert("{} cannot be started: {}".format(argv[0], error.strerror))
    assert process.stdout is not None
    for line in process.stdout:
        say(line.rstrip("\n"))
        said = said[-50:] + [line]
    code = process.wait()
    if code or not os.path.exists(target):
        why = container.advised(container.complaint_in("".join(said)))
        message = "{} failed with exit code {}: {}"
        raise CannotConvert(message.format(" ".join(argv[:2]), code, why))
