"""Images in parts: what is sent, what arrives, and what is made of it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dray.clusters.local import LocalImages
from dray.clusters.protocol import ImagePart
from dray.errors import NotFound, Refused, UsageError
from dray.images import push, source
from dray.images.archive import Layers
from dray.images.push import Source
from dray.images.verbs import check_machine, pick
from dray.node.code.packs import hash_of
from dray.node.containers.converting import CannotConvert, assemble, convert
from dray.node.containers.images import Images, hex_of
from dray.node.formats import files
from dray.node.jobs.jobdir import JobDir
from dray.transport.channel import LinkLost

PART = push.PART


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def source_of(*layers: bytes, kind: str = "layers") -> Source:
    contents = {digest_of(content): content for content in layers}

    @contextmanager
    def read(wanted: frozenset[str]) -> Iterator[Layers]:
        yield ((digest, io.BytesIO(contents[digest])) for digest in contents if digest in wanted)

    return Source(
        id=digest_of(b"".join(layers)),
        name="train:1",
        kind=kind,
        format="sif",
        architecture="amd64",
        size=sum(map(len, layers)),
        layers=tuple(contents),
        config="{}",
        read=read,
    )


@pytest.fixture
def store(tmp_path: Path) -> LocalImages:
    return LocalImages(str(tmp_path))


def send(image: Source, store: LocalImages) -> push.Sent:
    lacking = store.look(image.id, image.layers).lacking
    return push.send(image, lacking, store, lambda done, total: None)


def content_of(store: LocalImages, digest: str) -> bytes:
    sink = io.BytesIO()
    assemble(Images(store.root.path), digest, sink)
    return sink.getvalue()


def test_layers_arrive_in_parts_and_come_out_as_they_were(store: LocalImages) -> None:
    large, small = os.urandom(PART // 2) * 5, b"small"
    image = source_of(large, small)
    sent = send(image, store)
    assert sent.layers == 2
    assert len(Images(store.root.path).parts(image.layers[0])) == 3
    assert [content_of(store, digest) for digest in image.layers] == [large, small]


def test_only_what_is_lacking_is_sent(store: LocalImages) -> None:
    below, before, after = os.urandom(1 << 20), os.urandom(1 << 10), os.urandom(2 << 10)
    send(source_of(below, before), store)
    sent = send(source_of(below, after), store)
    assert sent.layers == 1
    assert 2 << 10 <= sent.bytes < 3 << 10
    assert send(source_of(below, after), store) == push.Sent(0, 0)


class Cut(LocalImages):
    """A link that breaks for good at the second part."""

    def take(self, part: ImagePart) -> None:
        if part.offset:
            raise LinkLost("no connection to hpc")
        super().take(part)


def test_what_has_arrived_before_the_link_broke_is_not_sent_again(tmp_path: Path) -> None:
    content = os.urandom(2 * PART)
    image = source_of(content)
    with pytest.raises(LinkLost) as caught:
        send(image, Cut(str(tmp_path)))
    assert "not sent again" in caught.value.hint
    store = LocalImages(str(tmp_path))
    assert store.look(image.id, image.layers).lacking == {image.layers[0]: [[0, PART]]}
    sent = send(image, store)
    assert PART <= sent.bytes < PART * 1.01
    assert content_of(store, image.layers[0]) == content


def test_a_part_that_is_lost_on_the_way_is_sent_once_more(tmp_path: Path) -> None:
    class Flaky(LocalImages):
        tries = 0

        def take(self, part: ImagePart) -> None:
            self.tries += 1
            if self.tries == 1:
                raise LinkLost("no connection to hpc")
            super().take(part)

    store = Flaky(str(tmp_path))
    image = source_of(b"content")
    send(image, store)
    assert content_of(store, image.layers[0]) == b"content"


def test_a_layer_is_whole_only_from_its_first_part_to_its_last(store: LocalImages) -> None:
    image = source_of(b"abcdef")
    (layer,) = image.layers

    def take(offset: int, content: bytes, *, is_last: bool = False) -> None:
        store.take(ImagePart(layer, offset, len(content), is_last, gzip.compress(content)))

    take(4, b"ef", is_last=True)
    take(0, b"ab")
    assert Images(store.root.path).whole(layer) is None
    take(2, b"cd")
    assert content_of(store, layer) == b"abcdef"


def test_a_layer_that_is_not_what_its_digest_says_is_thrown_away(store: LocalImages) -> None:
    image = source_of(b"right")
    (layer,) = image.layers
    store.take(ImagePart(layer, 0, 5, True, gzip.compress(b"wrong")))
    with pytest.raises(CannotConvert, match="damaged: push the image again"):
        content_of(store, layer)
    assert list(store.look(image.id, image.layers).lacking) == [layer]


def test_a_part_that_is_no_gzip_is_thrown_away_with_its_layer(store: LocalImages) -> None:
    image = source_of(b"content")
    store.take(ImagePart(image.layers[0], 0, 7, True, bytes(20)))
    with pytest.raises(CannotConvert, match="damaged"):
        content_of(store, image.layers[0])
    assert list(store.look(image.id, image.layers).lacking) == list(image.layers)


def test_layers_stay_as_long_as_another_image_needs_them_to_be_made(store: LocalImages) -> None:
    first, second = source_of(b"base", b"one"), source_of(b"base", b"two")
    for image in (first, second):
        send(image, store)
        store.announce(image.record("", keep_layers=False))
    Path(Images(store.root.path).folder, hex_of(first.id) + ".sif").touch()
    Images(store.root.path).drop_layers(first.record("", keep_layers=False))
    assert Images(store.root.path).lacking(list(second.layers)) == {}
    assert list(Images(store.root.path).lacking(list(first.layers))) == [first.layers[1]]


def test_an_image_that_is_being_made_is_not_removed(store: LocalImages) -> None:
    image = source_of(b"content")
    store.announce(image.record("", keep_layers=True))
    lock = Images(store.root.path).lock(image.id)
    with lock, pytest.raises(Refused, match="being made ready by a job"):
        store.remove(image.id)
    store.remove(image.id)
    assert store.listing() == []


def test_what_a_queued_job_goes_by_is_not_written_over(tmp_path: Path) -> None:
    """Another laptop may announce the same image, made into another file."""
    store = LocalImages(str(tmp_path))
    image = source_of(b"content")
    job = JobDir(str(tmp_path / "jobs/image-1"))
    for folder in (job.attempts, job.outputs):
        os.makedirs(folder)
    files.write_json(job.job, {"id": "image-1", "resources": {}, "resume": {}})
    with files.Lock(job.alive):  # somebody cares for it
        store.announce(image.record("image-1", keep_layers=True))
        store.announce(source_of(b"other")._replace(id=image.id).record("", keep_layers=True))
        assert (Images(store.root.path).record(image.id) or {})["layers"] == list(image.layers)
        assert store.look(image.id, image.layers).job == "image-1"


def test_ctrl_c_sends_nothing_more(store: LocalImages) -> None:
    taken = []

    class Slow(LocalImages):
        def take(self, part: ImagePart) -> None:
            time.sleep(0.2)
            taken.append(part.offset)

    sending = push.Sending(Slow(store.root), 0, lambda done, total: None, 0)

    def send_until_interrupted() -> None:
        with sending:
            for number in range(2 * push.SENDERS):
                sending.add(ImagePart("x", number, 1, False, b"x"), arrived=False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send_until_interrupted()
    assert len(taken) == push.SENDERS  # those that were on their way


def test_an_image_file_becomes_ready_as_it_is_and_its_parts_go(store: LocalImages) -> None:
    image = source_of(b"SIF", kind="file")
    send(image, store)
    store.announce(image.record("image-train", keep_layers=True))
    root = hash_of(os.path.realpath(Images(store.root.path).folder).encode())[:12]
    of_a_killed_one = Path(Images(store.root.path).folder, f".new-{hex_of(image.id)}-{root}-x")
    of_another_image = Path(Images(store.root.path).folder, ".new-other")
    # The same image for another root, in the scratch that both share.
    of_another_root = Path(tempfile.mkdtemp(prefix=f".new-{hex_of(image.id)}-"))
    for folder in (of_a_killed_one, of_another_image):
        folder.mkdir()
    convert(Images(store.root.path), image.id)
    assert of_another_image.exists()
    of_another_root.rmdir()
    ready = Images(store.root.path).file(image.id)
    assert ready is not None
    assert Path(ready).read_bytes() == b"SIF"
    assert not os.path.exists(Images(store.root.path).layer(image.layers[0]))
    assert store.look(image.id, image.layers).ready
    left = [name for name in os.listdir(Images(store.root.path).folder) if name.startswith(".new")]
    assert left == [".new-other"]


def test_removing_an_image_leaves_the_layers_of_others(store: LocalImages) -> None:
    first, second = source_of(b"base", b"one"), source_of(b"base", b"two")
    for image in (first, second):
        send(image, store)
        store.announce(image.record("", keep_layers=True))
    store.remove(first.id)
    assert [record["id"] for record in store.listing()] == [second.id]
    assert list(Images(store.root.path).lacking(list(first.layers))) == [first.layers[1]]
    assert Images(store.root.path).lacking(list(second.layers)) == {}


@pytest.mark.parametrize("name", ["../../etc", "sha256:12", "sha256:" + "G" * 64, ""])
def test_nothing_but_a_digest_names_a_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a digest"):
        hex_of(name)
    with pytest.raises(ValueError, match="not a digest"):
        Images(str(tmp_path)).layer(name)


# -- what a name means ---------------------------------------------------------------------------


def test_a_sif_tells_its_architecture(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0004\x00" + b"\0" * 100)
    found = source.find(str(path), tmp_path / "cache")
    assert (found.kind, found.format, found.architecture) == ("file", "sif", "arm64")
    assert found.id == digest_of(path.read_bytes())
    with pytest.raises(Refused, match="made for arm64, and euler is amd64"):
        check_machine(found, "x86_64", "euler")


def test_a_changed_file_is_another_image(tmp_path: Path) -> None:
    path = tmp_path / "x.sqsh"
    path.write_bytes(b"hsqs one")
    first = source.find(str(path), tmp_path / "cache").id
    assert source.find(str(path), tmp_path / "cache").id == first
    path.write_bytes(b"hsqs other")
    assert source.find(str(path), tmp_path / "cache").id == digest_of(b"hsqs other")


def test_a_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sif"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(UsageError, match="not an image that can be run"):
        source.find(str(path), tmp_path)
    with pytest.raises(NotFound, match="no image file"):
        source.find(str(tmp_path / "y.sif"), tmp_path)


def test_an_image_of_a_registry_is_named_by_its_digest_if_it_has_one(tmp_path: Path) -> None:
    pinned = "docker://a/b@sha256:" + "a" * 64
    assert source.find(pinned, tmp_path).id == "sha256:" + "a" * 64
    assert source.find("docker://a/b:1", tmp_path).id != source.find("docker://a/b:2", tmp_path).id


def test_an_image_is_picked_by_name_or_id() -> None:
    records = [
        {"name": "train:1", "id": "sha256:aaaa11", "jobs": []},
        {"name": "train:2", "id": "sha256:aaaa22", "jobs": []},
    ]
    assert pick("train:2", records, "hpc")["id"] == "sha256:aaaa22"
    assert pick("aaaa1", records, "hpc")["id"] == "sha256:aaaa11"
    with pytest.raises(NotFound):
        pick("", records[:1], "hpc")  # a variable that is not set, say
    with pytest.raises(Refused, match="several images"):
        pick("train", records, "hpc")
    with pytest.raises(NotFound, match=r"no image 'trian:1'.*train:1"):
        pick("trian:1", records, "hpc")
