"""Puts together what the admins of a cluster need to help with a job, without secrets."""

from __future__ import annotations

import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence

from dray.config import loading as configuration
from dray.config.secrets import resolve
from dray.errors import DrayError
from dray.job.model import JobView
from dray.job.quantities import show_duration
from dray.launcher.context import UNAVAILABLE, Context, message_of
from dray.launcher.explaining import Diagnosis, Explaining
from dray.launcher.housekeeping import Housekeeping
from dray.launcher.logs import Logs
from dray.launcher.scrubbing import named_values, scrub, secret_values
from dray.records import NamedTuple

LINES = 200  # of each log
LOG = "log-"
LOGS = 2  # of the last attempts
SCRIPTS = (".sh", "manifest.json")  # of a plan's files: what the scheduler was given


class Ticket(NamedTuple):
    """What is sent: a mail, and files to go with it."""

    job: str
    to: str
    subject: str
    mail: str
    files: Mapping[str, str]

    def archive(self) -> bytes:
        """Return the files as a .tar.gz of one folder."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in {"mail.txt": self.mail, **self.files}.items():
                content = text.encode("utf-8", "replace")
                about = tarfile.TarInfo(f"ticket-{self.job}/{name}")
                about.size, about.mode, about.mtime = len(content), 0o600, int(time.time())
                archive.addfile(about, io.BytesIO(content))
        return packed.getvalue()


class Tickets:
    def __init__(self, context: Context) -> None:
        self.context = context

    def ticket(self, reference: str) -> Ticket:
        found = Explaining(self.context).why(reference)
        view = found.view
        files = self._files(view)
        known = [*self._secrets(view), *named_values(files.values())]
        clean = {
            name: scrub(text, known, is_output=name.startswith(LOG))
            for name, text in files.items()
            if text.strip()
        }
        last = tuple(scrub(line, known, is_output=True) for line in found.last_lines)
        found = found._replace(last_lines=last)
        settings = self.context.config.cluster(view.cluster).settings
        subject = scrub(f"{view.id} on {view.cluster}: {problem_of(found)}", known)
        mail = scrub(mail_of(found, subject, list(clean)), known)
        return Ticket(view.id, str(settings.get("support", "")), subject, mail, clean)

    def _secrets(self, view: JobView) -> list[str]:
        """Return all values that must not be sent: the job's secrets, as far as this machine knows
        them, and what its environment and this one hold under telling names."""
        environ = configuration.environment()
        found = [*secret_values(environ), *secret_values(view.spec.env)]
        for name in view.spec.secrets:
            try:
                found += resolve([name], environ).values()
            except DrayError:  # not found here: its form or its name may still give it away
                continue
        return found

    def _files(self, view: JobView) -> dict[str, str]:
        files = {
            "job.json": json.dumps(view.to_dict(), indent=2),
            "events.txt": self._events(view),
            "versions.txt": versions(),
        }
        files.update(self._from_cluster(view, "what the scheduler says", self._described))
        files.update(self._from_cluster(view, "the script", self._scripts))
        files.update(self._from_cluster(view, "the logs", self._logs))
        files.update(self._from_cluster(view, "doctor", self._doctor))
        return files

    def _from_cluster(
        self, view: JobView, what: str, ask: Callable[[JobView], dict[str, str]]
    ) -> dict[str, str]:
        """Ask for a part; where it cannot be had, the reason for that is part of the ticket."""
        try:
            return ask(view)
        except UNAVAILABLE as error:
            return {f"no {what}.txt": message_of(error)}

    def _described(self, view: JobView) -> dict[str, str]:
        told = self.context.cluster(view.cluster).situation.description(view.id)
        return {file_name(name): text for name, text in told.items()}

    def _scripts(self, view: JobView) -> dict[str, str]:
        plan = self.context.cluster(view.cluster).plan(view.spec)
        command = {"command.txt": " ".join(plan.command)} if plan.command else {}
        scripts = {name: text for name, text in plan.files.items() if name.endswith(SCRIPTS)}
        return {**{file_name(name): text for name, text in scripts.items()}, **command}

    def _logs(self, view: JobView) -> dict[str, str]:
        logs = Logs(self.context)
        found = {}
        for attempt in view.attempts[-LOGS:]:
            pieces = logs.read(view.id, attempt=attempt.number, tail=LINES)
            text = b"".join(piece for _, piece in pieces).decode("utf-8", "replace")
            found[f"{LOG}{attempt.number:03d}.txt"] = text
        return found

    def _doctor(self, view: JobView) -> dict[str, str]:
        findings = Housekeeping(self.context).doctor(view.cluster)
        told = [f"{'ok ' if one.ok else 'BAD'} {one.what}: {one.detail}" for one in findings]
        return {"doctor.txt": "\n".join(told)}

    def _events(self, view: JobView) -> str:
        known = self.context.open_store().events(view.id)
        lines = [f"{stamp(moment)} {what}" for moment, what in known]
        for one in view.attempts:
            host = f" on {one.host}" if one.host else ""
            lines.append(f"{stamp(one.started)} attempt {one.number} began{host}")
            if one.ended:
                told = f"{one.outcome}: {one.reason}" if one.reason else str(one.outcome)
                lines.append(f"{stamp(one.ended)} attempt {one.number} ended: {told}")
        return "\n".join(sorted(lines))


# -- pure ---------------------------------------------------------------------------------------


def problem_of(found: Diagnosis) -> str:
    view = found.view
    if found.explanation is not None:
        return f"it waits: {found.explanation.reason.words or 'the reason is not told'}"
    return found.cause or view.reason or f"it is {view.state}"


def mail_of(found: Diagnosis, subject: str, names: Sequence[str]) -> str:
    """Write the mail: what was run, what happened, where and when, and what is attached."""
    view = found.view
    hosts = sorted({one.host for one in view.attempts if one.host})
    facts = [
        ("job", view.id),
        ("state", f"{view.state}{f': {view.reason}' if view.reason else ''}"),
        ("command", " ".join(view.spec.command)),
        ("asked for", asked_for(view)),
        ("submitted", stamp(view.spec.created)),
        ("attempts", str(len(view.attempts))),
        ("nodes", ", ".join(hosts) or "none so far"),
    ]
    lines = [f"Subject: {subject}", "", "Hello,", "", "[what you expected, and what happened]", ""]
    lines += [f"{name + ':':<11} {value}" for name, value in facts]
    lines += [f"{'finding:':<11} {one}" for one in found.findings]
    if found.last_lines:
        lines += ["", "The last lines of its output:", *(f"  {one}" for one in found.last_lines)]
    return "\n".join([*lines, "", f"Attached: {', '.join(names)}", ""])


def asked_for(view: JobView) -> str:
    wanted = view.spec.resources
    parts = [f"{wanted.nodes} nodes" if wanted.nodes > 1 else "1 node", f"{wanted.cpus} CPUs"]
    parts += [f"{wanted.gpus:g} GPUs {wanted.gpu_type or ''}".rstrip()] if wanted.gpus else []
    parts += [show_duration(wanted.time)] if wanted.time else []
    return ", ".join(parts)


def versions() -> str:
    from importlib.metadata import version  # only here

    here = f"{platform.system()} {platform.release()} {platform.machine()}"
    return f"dray {version('dray')}\nPython {sys.version.split()[0]}\n{here}\n"


def stamp(moment: float | None) -> str:
    """Write a time that means the same to everybody."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(moment)) if moment else "-"


def file_name(name: str) -> str:
    """Make a plain file's name of whatever something is called."""
    plain = "".join(one if one.isalnum() or one in "-_." else "-" for one in name).strip("-.")
    short = plain.rpartition("-jobs-")[2][-100:] or "part"
    return short if "." in short else f"{short}.txt"
