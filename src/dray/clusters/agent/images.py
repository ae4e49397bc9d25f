"""The images of a cluster behind a login node, through its agent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dray.clusters.agent import answers
from dray.clusters.protocol import Conversion, ImagePart, ImageState
from dray.transport.link import AgentLink

if TYPE_CHECKING:
    from dray.node.formats.records import Asked, ImageRecord


class AgentImages:
    def __init__(self, cluster: str, agent: AgentLink, settings: Mapping[str, Any]) -> None:
        self.cluster = cluster
        self.agent = agent
        self.conversion = Conversion.of(settings, agent.python)

    def look(self, image: str, layers: Sequence[str]) -> ImageState:
        answer = self.agent.ask("image", id=image, layers=list(layers))
        with answers.reading(self.cluster):
            return answers.image_state(answer, layers)

    def announce(self, record: Mapping[str, Any]) -> None:
        self.agent.ask("image-announce", record=cast("ImageRecord", dict(record)))

    def take(self, part: ImagePart) -> None:
        request: Asked = {
            "layer": part.layer,
            "offset": part.offset,
            "length": part.length,
            "last": part.is_last,
            "sha256": hashlib.sha256(part.content).hexdigest(),
        }
        with self.agent.call("image-part", request, Bytes(part.content)):
            pass

    def listing(self) -> list[dict[str, Any]]:
        answer = self.agent.ask("images")
        with answers.reading(self.cluster):
            return answers.image_records(answer)

    def remove(self, image: str) -> None:
        self.agent.ask("image-remove", id=image)


class Bytes:
    """A payload that is in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.size = len(content)

    def pieces(self) -> Iterator[bytes]:
        yield self.content
