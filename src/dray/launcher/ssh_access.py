"""SSH into a running job: by ``dray ssh``, by an editor, or by whatever else starts ssh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dray.clusters.protocol import Cluster
from dray.config import loading
from dray.errors import ClusterError, DrayError, NotFound, Refused
from dray.launcher.context import Context
from dray.launcher.jobs import Jobs
from dray.launcher.sessions import ENDED, Sessioning
from dray.node.sessions.sshd import FIND, NO_SSHD
from dray.records import NamedTuple
from dray.sessions.executing import read_output
from dray.sessions.ssh import config
from dray.sessions.ssh.keys import Keys, Pair, checked_user
from dray.sessions.ssh.names import Target, parse
from dray.sessions.ssh.proxy import Served, serve, why_not
from dray.transport.ways import Way

LOOK = f"{FIND}\nid -un; pwd; find_sshd; :"
NO_TERMINAL = (
    "sshd gets no terminal there (of /dev/pts): dray shell {job} does; commands, scp, rsync and "
    "editors need none"
)
MOST_TOLD = 1 << 14  # bytes


class Beside(NamedTuple):
    """What ssh and editors have to know of a job's command."""

    user: str
    folder: str


class SshAccess:
    def __init__(self, context: Context) -> None:
        self.context = context
        self.keys = Keys(context.config.home)
        config.path_of(self.keys)  # where ssh cannot be told of it, nothing else helps

    def target(self, reference: str, *, rank: int, host: bool) -> Target:
        return Target(Jobs(self.context).find(reference)[0], rank, host)

    # -- before ssh is started

    def prepare(self, target: Target) -> None:
        """Make the keys of a job, and find out as whom it runs, once."""
        self._pair(target)
        if not self.keys.user_of(target):
            self.look(target)

    def look(self, target: Target) -> Beside:
        """Ask the job as whom and in which folder its command runs, and whether ssh can get
        there."""
        words = ("/bin/sh", "-c", LOOK)
        with self._explained(target):
            told = read_output(self._way(target), words, MOST_TOLD, host=target.host)
        user, folder, sshd, *_ = [*told.decode("utf-8", "replace").split("\n"), "", "", ""]
        if not sshd:
            raise self._why_not(target, Served(NO_SSHD, ""))
        if not checked_user(user) or not folder.startswith("/") or not folder.isprintable():
            raise ClusterError(f"{target.job}: as whom it runs, and where, cannot be read")
        self._pair(target)
        self.keys.remember_user(target, user)
        return Beside(user, folder)

    def words(self, target: Target, more: Sequence[str]) -> list[str]:
        """Return the command that starts ssh; the user's own config need not know of jobs. What
        begins with a dash behind the host is an option of ssh, as ever."""
        settings = [*config.options(self.keys), ("User", self.keys.user_of(target))]
        flags = [word for key, value in settings for word in ("-o", f"{key}={value}")]
        return ["ssh", *flags, target.name, *more]

    # -- what ssh itself starts

    def prepare_for(self, name: str) -> None:
        target = parse(name)
        self._in_its_project(target.job).prepare(target)

    def proxy(self, name: str) -> int:
        """Lead ssh to a server in the job; return the exit code for ssh, which ignores it."""
        target = parse(name)
        return self._in_its_project(target.job)._serve(target)

    def _serve(self, target: Target) -> int:
        with self._explained(target):
            served = serve(self._way(target), self._pair(target), target)
        if served.has_let_in:
            if served.has_no_terminal:
                self.context.reporter.say(NO_TERMINAL.format(job=target.job))
            return 0
        user = served.user
        if user and user != self.keys.user_of(target):
            self.keys.remember_user(target, user)
            raise Refused(
                f"{target.job} runs as {user} there, and nobody else can log in",
                hint=f"ssh {user}@{target.name}; or the same again: it is remembered now.",
            )
        raise self._why_not(target, served)

    def _in_its_project(self, job_id: str) -> SshAccess:
        """Return what has the settings that the job was submitted with, if they are not those of
        this folder: ssh is started anywhere."""
        store = self.context.open_store()
        try:
            Jobs(self.context).find_here(job_id)
        except (ClusterError, NotFound):
            view = store.view(job_id) if store.is_own(job_id) else None
            if view is None or not Path(view.spec.project).is_dir():
                raise
            its = loading.load(Path(view.spec.project), submits=False)
            return SshAccess(self.context.for_config(its))
        return self

    # -- the job

    def _cluster(self, target: Target) -> Cluster:
        return Jobs(self.context).find_here(target.job)[1]

    def _way(self, target: Target) -> Way:
        return Sessioning(self.context).way(target.job, self._cluster(target), target.rank)

    def _pair(self, target: Target) -> Pair:
        return self.keys.of(target, self._is_over)

    def _is_over(self, job_id: str) -> bool:
        view = self.context.open_store().view(job_id)
        return view is None or not view.state.active

    @contextmanager
    def _explained(self, target: Target) -> Iterator[None]:
        """Explain a refusal. The keys of a job that has ended are removed."""
        with Sessioning(self.context).entering(target.job, self._cluster(target)):
            try:
                yield
            except Refused as error:
                if ENDED in error.message:
                    self.keys.forget(target.job)
                raise

    def _why_not(self, target: Target, served: Served) -> DrayError:
        view = self.context.open_store().view(target.job)
        is_contained = view is not None and view.spec.container is not None
        return why_not(served, target, is_contained)
