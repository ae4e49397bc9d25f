"""The files of a cluster's jobs, through the agent beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from dray.clusters.agent import answers
from dray.clusters.agent.download import receive
from dray.clusters.agent.upload import Change, change_of
from dray.clusters.protocol import Appended, Found, Piece, Selection
from dray.errors import StorageError
from dray.job.model import Series, Snapshot
from dray.landing import Landing
from dray.node.code.packs import Entry
from dray.reporter import Progress
from dray.transport.link import AgentLink

if TYPE_CHECKING:
    from dray.node.formats.records import Asked, Rules

    Send = Callable[[str, Asked, Snapshot, Change, list[Entry], Progress], None]


class AgentFiles:
    """``top`` is where the jobs' directories are, for people to read; ``send`` uploads a
    snapshot."""

    def __init__(self, name: str, agent: AgentLink, top: str, send: Send) -> None:
        self.name = name
        self.agent = agent
        self.top = top
        self._send = send

    def path(self, job_id: str = "") -> str:
        return self.top + job_id

    def read_log(self, job_id: str, attempt: int, offset: int = 0, rank: int = 0) -> Piece:
        request: Asked = {"id": job_id, "attempt": attempt, "offset": offset, "rank": rank}
        with self.agent.call("log", request) as answer, answers.reading(self.name):
            size, _ = answers.log_piece(answer.record)
            return Piece(answer.payload(), size)

    def log_times(self, job_id: str, attempt: int) -> Sequence[tuple[float, int]]:
        answer = self.agent.ask("log-times", id=job_id, attempt=attempt)
        with answers.reading(self.name):
            return answers.log_times(answer)

    def curve(self, job_id: str, name: str = "") -> Series:
        return Series.from_dict(self.agent.ask("metrics", id=job_id, name=name))

    def pull(
        self, job_id: str, landing: Landing, progress: Progress, wanted: Selection
    ) -> tuple[int, int]:
        """List the outputs, then request the files that are wanted. The cluster learns nothing else
        about the local folder."""
        with answers.reading(self.name):
            globs, latest = list(wanted.globs), wanted.latest_checkpoint
            told = self.agent.ask("outputs", id=job_id, globs=globs, latest_checkpoint=latest)
            may_be = wanted.takes()
            found = [file for file in answers.output_files(told) if may_be(file.path)]
            asked = [file.path for file in found if landing.wants(file)]
        if not asked:
            return 0, len(found)
        with (
            self.agent.call("pull", {"id": job_id, "paths": asked}) as answer,
            answers.reading(self.name),
        ):
            coming = answers.promised_files(answer.record, set(asked))
            broken = receive(answer.stream, coming, landing, progress)
        if broken:
            raise StorageError(
                f"{self.name}: {len(broken)} files could not be read there, such as {broken[0]}",
                hint="Check their permissions; if the job was writing them, pull again.",
            )
        return len(coming), len(found)

    def appended(
        self, job_id: str, globs: Sequence[str], known: Mapping[str, int]
    ) -> Sequence[Appended]:
        request: Asked = {"id": job_id, "globs": list(globs), "known": dict(known)}
        with self.agent.call("appended", request) as answer, answers.reading(self.name):
            return answers.appended(answer.record, known, answer.payload())

    def sweep(self, sweep_id: str) -> Mapping[str, Any]:
        return self.agent.ask("sweep", id=sweep_id)

    def tell_others(self, sweep_id: str, others: Mapping[str, Any]) -> None:
        record: Any = dict(others)
        self.agent.ask("sweep-others", id=sweep_id, others=record)

    def close_sweep(self, sweep_id: str) -> None:
        self.agent.ask("sweep-close", id=sweep_id)

    def checkpoint(self, job_id: str, name: str, rules: Mapping[str, Any]) -> Found:
        told = cast("Rules", dict(rules))
        answer = self.agent.ask("checkpoint", id=job_id, name=name, rules=told)
        with answers.reading(self.name):
            return answers.checkpoint(answer)

    def fetch(self, job_id: str, found: Found, landing: Landing, progress: Progress) -> None:
        wanted = [file.path for file in found.files]
        with (
            self.agent.call("pull", {"id": job_id, "paths": wanted}) as answer,
            answers.reading(self.name),
        ):
            coming = answers.promised_files(answer.record, set(wanted))
            broken = receive(answer.stream, coming, landing, progress)
        if broken or len(coming) < len(wanted):
            raise StorageError(
                f"{self.name}: {found.path} of {job_id} changed while it was fetched",
                hint="Try again, or name an older checkpoint.",
            )

    def bring(self, given: Snapshot, progress: Progress) -> None:
        """Upload a snapshot. The first request sends no file: its answer says which ones are
        missing."""
        request: Asked = {"job": {"snapshot": given.id}}
        change = change_of(b"", given.manifest)
        self._send("bring", request, given, change, [], progress)
