"""Slurm, from a laptop over SSH: the batch job is the job itself."""

from __future__ import annotations

import math
import os
import re
import shlex
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from dray.cluster import Progress
from dray.errors import ClusterError, Refused, StorageError
from dray.model import Capabilities, Finding, JobSpec, JobView, Plan, Snapshot
from dray.node import files
from dray.node.packs import Entry, Packs, entries, hash_of
from dray.quantities import show_size
from dray.snapshot.pack import write_pack
from dray.transport import zipapp
from dray.transport.ssh import AgentLink, BaseMissing
from dray.transport.tree import make_way

ROOT = "@ROOT@"  # the agent knows what the root's variables stand for there
LITTLE_SPACE = 1 << 30
CHUNK = 1 << 20

# Slurm's reasons for not starting a job yet, in plain words.
REASONS = {
    "Resources": "waiting for enough free nodes",
    "Priority": "others are before it in the queue",
    "Dependency": "waiting for the attempt before it to end",
    "BeginTime": "waiting for its start time",
    "JobHeldUser": "held by you (scontrol release)",
    "JobHeldAdmin": "held by an administrator",
    "QOSMaxGRESPerUser": "you use as many GPUs as your QoS allows",
    "QOSMaxJobsPerUserLimit": "you have as many jobs running as your QoS allows",
    "AssocGrpGRES": "your group uses as many GPUs as it may",
    "ReqNodeNotAvail": "the nodes it needs are down or reserved",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "PartitionNodeLimit": "it asks for more nodes than the partition has",
}


# -- pure ---------------------------------------------------------------------------------------


def batch_script(job: JobSpec, settings: Mapping[str, Any]) -> str:
    """What sbatch is given. Nothing of the user's command is in it: that is in job.json."""
    lines = ["#!/bin/bash -l", *(f"#SBATCH {flag}" for flag in sbatch_flags(job, settings))]
    modules = " ".join(shlex.quote(name) for name in settings.get("modules", ()))
    lines += [f"module load {modules}"] if modules else []
    lines += settings.get("setup", ())
    python = shlex.quote(settings.get("python", "python3"))
    folder = f"{ROOT}/jobs/{job.id}"
    lines.append(f"exec {python} -I -S '{ROOT}/node/{zipapp.name()}' attempt '{folder}'")
    return "\n".join(lines) + "\n"


def sbatch_flags(job: JobSpec, settings: Mapping[str, Any]) -> list[str]:
    wanted = job.resources
    flags = [
        f"--job-name={job.id}",
        f"--comment=dray:{job.id}",
        f"--output={ROOT}/jobs/{job.id}/slurm.log",
        "--open-mode=append",
        "--requeue",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={wanted.cpus}",
    ]
    if wanted.memory:
        flags.append(f"--mem={math.ceil(wanted.memory / 2**20)}M")
    if wanted.time:
        flags.append(f"--time={math.ceil(wanted.time / 60)}")
    if wanted.gpus:
        kind = wanted.gpu_type or settings.get("gpu_type")
        flags.append(f"--gres=gpu:{f'{kind}:' if kind else ''}{wanted.gpus:.0f}")
    flags += [f"--{key}={settings[key]}" for key in PASSED_ON if settings.get(key)]
    if settings.get("mail"):
        flags += [f"--mail-user={settings['mail']}", "--mail-type=END,FAIL"]
    return [*flags, *settings.get("extra", ())]


PASSED_ON = ("account", "partition", "qos", "constraint", "reservation", "nodelist", "exclude")


def make_plan(job: JobSpec, cluster: str, settings: Mapping[str, Any]) -> Plan:
    description = {**job.to_dict(), "scheduler": {"resume_with": settings.get("resume_with")}}
    return Plan(
        job=job,
        cluster=cluster,
        files={
            "job.json": files.encode(description).decode(),
            "batch.sh": batch_script(job, settings),
        },
        command=("sbatch", "--parsable", f"{ROOT}/jobs/{job.id}/batch.sh"),
        notes=tuple(f"secret {name}: its value goes to secrets.json" for name in job.secrets),
    )


def refusal(job: JobSpec) -> str:
    """Why Slurm cannot run this job, or nothing."""
    if 0 < job.resources.gpus < 1:
        return "Slurm gives whole GPUs only"
    return ""


def waiting_reason(queued: Mapping[str, str]) -> str:
    """Why a job is not running yet, and when it may."""
    why = queued["why"]
    text = REASONS.get(why, "" if why in ("None", "") else f"Slurm says {why}")
    start = queued["start"]
    return f"{text}; start expected at {start}" if text and start not in ("N/A", "") else text


def parse_partitions(text: str) -> list[dict[str, str]]:
    names = ("name", "state", "time", "nodes", "cpus", "memory", "gres")
    rows = [line.split("|") for line in text.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)]


def gpus_of(gres: str) -> int:
    """'gpu:a100:4(S:0-1)' → 4."""
    return sum(int(number) for number in re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres))


class Change(NamedTuple):
    """A manifest as what differs from another one: most often a few lines in the middle."""

    base: str | None
    head: int
    tail: int
    middle: bytes

    def to_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "middle": self.middle.decode("utf-8", "surrogateescape")}


def change_of(base: bytes, manifest: bytes) -> Change:
    most = min(len(base), len(manifest))
    head = common(most, lambda n: base[:n] == manifest[:n])
    head = manifest.rfind(b"\0", 0, head) + 1  # whole lines only
    most -= head
    tail = common(most, lambda n: base[len(base) - n :] == manifest[len(manifest) - n :])
    if tail < len(manifest):
        tail = len(manifest) - 1 - manifest.find(b"\0", len(manifest) - tail - 1)
    middle = manifest[head : len(manifest) - tail]
    return Change(hash_of(base) if base else None, head, tail, middle)


def common(most: int, same: Callable[[int], bool]) -> int:
    """The greatest length up to ``most`` for which it is the same."""
    return bisect_right(range(most + 1), False, key=lambda length: not same(length)) - 1


# -- acting -------------------------------------------------------------------------------------


class SlurmCluster:
    kind = "slurm"
    is_here = False

    def __init__(self, name: str, settings: Mapping[str, Any], _: Path, cache: Path) -> None:
        self.name = name
        self.settings = settings
        self.agent = AgentLink(
            settings.get("host", ""),
            settings.get("root", "$HOME/.dray"),
            settings.get("python", "python3"),
        )
        place = f"{name}\0{self.agent.host}\0{self.agent.root}"
        self.known_file = cache / "sent" / hash_of(place.encode())

    def capabilities(self, *, gpus: bool = True) -> Capabilities:  # noqa: ARG002
        """Of the largest node in any partition."""
        rows = parse_partitions(self.agent.ask("hello").get("partitions", ""))
        return Capabilities(
            cpus=max((number(row["cpus"]) for row in rows), default=0),
            memory=max((number(row["memory"]) << 20 for row in rows), default=0) or None,
            gpus=max((gpus_of(row["gres"]) for row in rows), default=0),
        )

    def environment(self) -> Mapping[str, str]:
        return {}  # the cluster's own, as the batch script finds it

    def check(self, job: JobSpec) -> None:
        reason = refusal(job)
        if reason:
            raise Refused(f"{self.name}: {reason}", hint="Ask for a whole number of GPUs.")

    def plan(self, job: JobSpec) -> Plan:
        return make_plan(job, self.name, self.settings)

    def submit(
        self, plan: Plan, secrets: Mapping[str, str], code: Snapshot | None, progress: Progress
    ) -> None:
        self._send("submit", plan, secrets, code, progress)

    def resume(
        self, plan: Plan, secrets: Mapping[str, str], code: Snapshot | None, progress: Progress
    ) -> None:
        self._send("resume", plan, secrets, code, progress)

    def _send(
        self,
        verb: str,
        plan: Plan,
        secrets: Mapping[str, str],
        code: Snapshot | None,
        progress: Progress,
    ) -> None:
        """Code that the cluster lacks, the job's files and sbatch, in one stream.

        What it lacks is told from memory; where that is wrong the agent says so, and a second
        stream brings the rest.
        """
        contents = dict(plan.files)
        if secrets:
            contents["secrets.json"] = files.encode(dict(secrets)).decode()
        request: dict[str, Any] = {"job": plan.job.to_dict(), "files": contents}
        if code is None:
            self.agent.ask(verb, **request)
            return
        change = change_of(self._last_manifest(), code.manifest)
        lacking = list(entries(change.middle))  # the rest is there, as far as we know
        for _ in range(3):  # from memory; with all that was thought known; with what is missing
            request["manifest"] = change.to_dict()
            try:
                missing = set(self._send_pack(verb, request, code, lacking, progress))
            except BaseMissing:
                change = change_of(b"", code.manifest)
                lacking = list(entries(code.manifest))
                continue
            if not missing:
                self._remember(code)
                return
            lacking = [entry for entry in entries(code.manifest) if entry.hash in missing]
        raise ClusterError(f"{self.name}: contents arrived and are missing all the same")

    def _send_pack(
        self,
        verb: str,
        request: dict[str, Any],
        code: Snapshot,
        lacking: list[Entry],
        progress: Progress,
    ) -> Sequence[str]:
        """Returns what the cluster still lacks."""
        with tempfile.TemporaryDirectory(prefix="dray-") as folder:
            payload = build_pack(folder, code, lacking, progress)
            request["pack"] = payload.name if payload else None
            with self.agent.call(verb, request, payload) as answer:
                missing: Sequence[str] = answer.record.get("missing", ())
                return missing

    def _last_manifest(self) -> bytes:
        """What was last sent there."""
        try:
            return self.known_file.read_bytes()
        except FileNotFoundError:
            return b""

    def _remember(self, code: Snapshot) -> None:
        files.make_folder(str(self.known_file.parent))
        files.write_bytes(str(self.known_file), code.manifest, durable=False)

    def status(self, ids: Sequence[str]) -> dict[str, JobView]:
        if not ids:
            return {}
        found = {}
        for record in self.agent.ask("status", ids=list(ids))["jobs"]:
            queued = record.get("scheduler")
            if record["state"] == "queued" and queued:
                record["reason"] = waiting_reason(queued)
            found[record["id"]] = JobView.from_dict(record, self.name)
        return found

    def place(self, job_id: str) -> str:
        path = f"{self.agent.root}/jobs/{job_id}"
        return f"{self.agent.host}:{path}" if self.agent.host else path

    def ids(self) -> Iterator[str]:
        yield from self.agent.ask("ids")["ids"]

    def log(self, job_id: str, attempt: int, offset: int = 0) -> bytes:
        request = {"id": job_id, "attempt": attempt, "offset": offset}
        with self.agent.call("log", request) as answer:
            return answer.stream.read(answer.record["payload"])

    def log_size(self, job_id: str, attempt: int) -> int:
        return int(self.agent.ask("log", id=job_id, attempt=attempt, offset=1 << 62)["size"])

    def stop(self, job_id: str, *, now: bool) -> None:
        self.agent.ask("stop", id=job_id, now=now)

    def pull(self, job_id: str, target: Path, progress: Progress) -> tuple[int, int]:
        with self.agent.call("pull", {"id": job_id, "have": stamps_below(target)}) as answer:
            wanted = answer.record["files"]
            total = sum(record["size"] for record in wanted)
            done = 0
            broken = []
            for record in wanted:
                if not receive_file(answer.stream, target, record):
                    broken.append(record["path"])
                done += record["size"]
                progress(done, total)
        if broken:
            raise StorageError(
                f"{self.name}: {len(broken)} files could not be read there, such as {broken[0]}",
                hint="Check their permissions; if the job was writing them, pull again.",
            )
        return len(wanted), answer.record["count"]

    def remove(self, job_id: str) -> None:
        left = self.agent.ask("remove", id=job_id)["left"]
        if left:
            raise StorageError(f"{self.name}: {left[0]} could not be removed")

    def doctor(self) -> list[Finding]:
        try:
            hello = self.agent.ask("hello")
        except ClusterError as error:
            return [Finding(ok=False, what="login", detail=error.message, advice=error.hint)]
        free = hello["free"]
        return [
            Finding(ok=True, what="login", detail=f"{self.agent.host or 'this machine'} answers"),
            Finding(ok=True, what="python", detail=hello["python"]),
            Finding(
                ok=free > LITTLE_SPACE,
                what="root",
                detail=f"{hello['root']}, {show_size(free)} free",
            ),
            *slurm_findings(hello, self.settings),
        ]


def slurm_findings(hello: Mapping[str, Any], settings: Mapping[str, Any]) -> list[Finding]:
    if "slurm_error" in hello:
        advice = "Does it need a module, or another PATH, on the login node?"
        return [Finding(ok=False, what="slurm", detail=hello["slurm_error"], advice=advice)]
    findings = [Finding(ok=True, what="slurm", detail=hello["slurm"])]
    chosen = [name for name in settings.get("partition", "").split(",") if name]
    rows = parse_partitions(hello.get("partitions", ""))
    for row in rows:
        detail = f"{row['name']}: {row['nodes']} nodes, {row['cpus']} CPUs, {row['gres']}, "
        detail += f"limit {row['time']}, {row['state']}"
        ok = row["state"] == "up" or row["name"] not in chosen
        findings.append(Finding(ok=ok, what="partition", detail=detail))
    findings += [
        Finding(ok=False, what="partition", detail=f"there is no partition '{name}'")
        for name in chosen
        if name not in {row["name"] for row in rows}
    ]
    accounts = sorted(set(hello.get("accounts", "").split()))
    return [*findings, *account_findings(accounts, settings.get("account"))]


def account_findings(accounts: list[str], chosen: str | None) -> list[Finding]:
    """Where Slurm keeps accounts at all."""
    if not accounts:
        return []
    names = ", ".join(accounts)
    if chosen and chosen not in accounts:
        detail = f"you have no account '{chosen}'; yours: {names}"
        return [Finding(ok=False, what="account", detail=detail)]
    return [Finding(ok=True, what="account", detail=names)]


def number(text: str) -> int:
    """sinfo writes 8+ where nodes differ."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def build_pack(
    folder: str, code: Snapshot, lacking: list[Entry], progress: Progress
) -> Path | None:
    """A pack of what the cluster lacks, as a file; None where it has everything."""
    wanted = {entry.hash: entry for entry in lacking if entry.kind != "d"}
    if not wanted:
        return None
    packs = Packs(folder)
    files.make_folder(packs.packs)
    name = write_pack(packs, code, list(wanted.values()), progress, durable=False)
    return Path(packs.packs) / name


def stamps_below(target: Path) -> dict[str, list[Any]]:
    """What is here already, as the agent describes it (``agent.describe_file``)."""
    found: dict[str, list[Any]] = {}
    for folder, folders, names in os.walk(target):
        for name in (*names, *folders):
            path = Path(folder) / name
            if path.is_symlink():
                found[str(path.relative_to(target))] = ["link", os.readlink(path)]
            elif path.is_file():
                status = path.stat()
                found[str(path.relative_to(target))] = [status.st_size, status.st_mtime_ns]
    return found


def receive_file(stream: IO[bytes], target: Path, record: Mapping[str, Any]) -> bool:
    """One pulled file; it appears whole, or, where it could not be read there, not at all."""
    path = target / record["path"]
    if ".." in Path(record["path"]).parts or Path(record["path"]).is_absolute():
        raise ClusterError(f"the cluster sent a file for {record['path']}, outside of {target}")
    make_way(target, Path(record["path"]))
    temporary = path.with_name(f".{os.urandom(6).hex()}.part")
    try:
        if record["link"] is not None:
            temporary.symlink_to(record["link"])
        else:
            with temporary.open("wb") as file:
                copy_exactly(stream, file, record["size"])
            if stream.read(1) != b"\1":
                return False
            temporary.chmod(record["mode"] | 0o200)
            os.utime(temporary, ns=(record["mtime"], record["mtime"]))
        temporary.replace(path)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def copy_exactly(stream: IO[bytes], file: IO[bytes], length: int) -> None:
    while length:
        piece = stream.read(min(length, CHUNK))
        if not piece:
            raise ClusterError("the connection broke", hint="Pull again: only the rest is fetched.")
        file.write(piece)
        length -= len(piece)
