"""The container around a command: everything on the node is made ready for it, and cleaned up.

<work tree>.box-<host>/
    held            locked as long as its attempt lives
    image.json      the image's file: it may be a copy on this node's disk
    caches/NAME/    this attempt's copy of a cache
    RANK/home, tmp, var-tmp, run, overlay, rc
"""

import grp
import os
import pwd
import socket

from ..checkpoints.given import FOLDER as GIVEN
from ..code import inputs, worktree
from ..formats import files, mounts
from ..formats.messages import print_message
from ..processes import process
from ..processes.environment import IN_CONTAINER, training_library
from ..processes.process import CannotContain, describe_end
from . import caches, container, local_copy, runtimes
from .runtime import SHELL, Bind, Start, unusable_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple  # noqa: F401

    from ..formats.records import CommandEnd, Description
    from ..jobs.jobdir import JobDir
    from .runtime import Runtime  # noqa: F401

TAIL = 16384  # of the log, in which a runtime's complaint is looked for


class Sandbox:
    """The containers of one node; each rank has a folder of its own in it."""

    def __init__(self, job_dir: "JobDir", job: "Description", base: "Dict[str, str]") -> None:
        assert job["container"] is not None
        self.job_dir = job_dir
        self.job = job
        self.wanted = job["container"]
        self.outside = dict(base, **self.wanted["outside"])
        self.host = socket.gethostname()
        self.copy = None  # type: Any
        self.fetched = {}  # type: Dict[str, caches.Stamps]
        self.held = -1
        self._found = None  # type: Optional[Runtime]

    @property
    def path(self) -> str:
        return container.sandbox_of(self.job_dir.work, self.host)

    @property
    def home(self) -> str:
        """Return the home inside."""
        if self.wanted["home"] == "scratch":
            return container.HOME
        return self.outside.get("HOME") or os.path.expanduser("~")

    # -- once for each node -----------------------------------------------------------------------

    def prepare(self) -> None:
        """Do all that takes long or can go wrong."""
        self._make_folder()
        image = self._image()
        runtimes.check_image(image, self.runtime, self.host)
        self._check_binds()
        files.write_json(os.path.join(self.path, "image.json"), self._near(image), durable=False)
        shared = caches.place_of(self.job_dir.root)
        for bind in self._caches():
            name = os.path.basename(bind.source)
            self.fetched[name] = caches.fetch(os.path.join(shared, name), bind.source)

    def _make_folder(self) -> None:
        """Make the folder, locked before it has its name: whoever sweeps sees that it is in use."""
        scratch = os.path.dirname(self.path)
        worktree.sweep(scratch, self.job_dir.root)
        local_copy.sweep(scratch)
        files.remove_tree(self.path)
        new = os.path.join(scratch, ".dray-new-" + os.urandom(6).hex())
        files.make_folder(new)
        self.held = files.open_lock(os.path.join(new, worktree.HELD))
        files.lock_if_possible(self.held)
        os.rename(new, self.path)

    @property
    def runtime(self) -> "Runtime":
        if self._found is None:
            self._found = self._find_runtime()
        return self._found

    def _find_runtime(self) -> "Runtime":
        wanted = self.wanted
        found = runtimes.find(wanted["runtime"], self._image(), self.outside, self.host)
        refusal = found.refusal(wanted)
        if refusal:
            raise CannotContain(refusal, permanent=True)
        found.inspect(wanted)
        return found

    def _image(self) -> str:
        return runtimes.file_of(self.wanted["image"], self.wanted["runtime"], self.job_dir.root)

    def _near(self, image: str) -> str:
        """Return the image's copy on this node's disk, if one is to be made."""
        scratch = os.path.dirname(self.path)
        there = [(place, kind) for place, kind, _ in mounts.read_mounts()]
        if not local_copy.is_worth_it(image, scratch, self.wanted["local_copy"], there):
            return image
        try:
            self.copy = local_copy.LocalCopy(image, scratch)
            return str(self.copy.take())
        except OSError as error:  # a disk that has filled up meanwhile: slower is better than not
            print_message("the image was not copied to this node: {}".format(error))
            if self.copy is not None:
                self.copy.release()
            return image

    def _check_binds(self) -> None:
        for text in self.wanted["binds"]:
            try:
                bind = container.parse_bind(text, self.outside, self.home)
            except KeyError as error:
                message = "the bind {} names ${}, which is not set on {}"
                raise CannotContain(message.format(text, error.args[0], self.host))
            if not os.path.exists(bind.source):
                message = "there is no {} on {}, which is to be bound into the container (--bind)"
                raise CannotContain(message.format(bind.source, self.host))

    def _caches(self) -> "List[Bind]":
        folder = os.path.join(self.path, "caches")
        return [container.parse_cache(one, folder, self.home) for one in self.wanted["caches"]]

    def clean_up(self, was_killed: bool) -> None:
        """Keep the caches and remove the rest. If the command was killed, something in the caches
        may be half written."""
        if self.held < 0:
            return
        self._merge_caches(was_killed)
        if self.copy is not None:
            self.copy.release()
        files.remove_tree(self.path)
        os.close(self.held)
        self.held = -1

    def _merge_caches(self, was_killed: bool) -> None:
        shared = caches.place_of(self.job_dir.root)
        own = os.path.join(self.path, "caches")
        for name, fetched in self.fetched.items():
            folders = (os.path.join(own, name), os.path.join(shared, name))
            try:
                caches.merge(folders[0], folders[1], fetched, was_killed)
            except OSError as error:  # a full disk, say: the next job does without
                print_message("the cache {} was not kept: {}".format(name, error))

    # -- for each rank ----------------------------------------------------------------------------

    def argv(self, rank: int) -> "List[str]":
        """Make a rank's folder ready, and return how the runtime is called."""
        own = self._own(rank)
        for name in ("tmp", "var-tmp", "run", "home", "overlay"):
            files.make_folder(os.path.join(own, name))
        runtime = self.runtime
        for path, content in runtime.files(own).items():
            files.write_bytes(path, content, durable=False)
        binds = self._binds(own)
        bad = unusable_path(runtime, binds)
        if bad:
            message = "{} cannot be bound into a container: its name has signs that {} takes apart"
            raise CannotContain(message.format(bad, runtime.name), permanent=True)
        image = str(files.read_json(os.path.join(self.path, "image.json")))
        home = (self._home_source(own), self.home)
        gpus = runtimes.gpus_of(self.job)
        self._make_places(own, binds)
        return runtime.argv(Start(self.wanted, image, binds, own, home, gpus))

    def _own(self, rank: int) -> str:
        return os.path.join(self.path, str(rank))

    def _binds(self, own: str) -> "List[Bind]":
        job_dir = self.job_dir
        found = [
            Bind(os.path.join(own, "tmp"), "/tmp"),
            Bind(os.path.join(own, "var-tmp"), "/var/tmp"),
            Bind(os.path.join(own, "run"), container.RUN),
            Bind(job_dir.work, self.code()),
            Bind(job_dir.outputs, job_dir.outputs),
        ]
        if self.job.get("origin"):
            begun_from = os.path.join(job_dir.path, GIVEN)
            found.append(Bind(begun_from, begun_from, read_only=True))
        read = inputs.places(job_dir, self.job).values()
        found += [Bind(path, path, read_only=True) for path in read]
        library = training_library()
        if library:
            found.append(Bind(library, library, read_only=True))
        found += self._caches()
        given = self.wanted["binds"]
        return found + [container.parse_bind(one, self.outside, self.home) for one in given]

    def _make_places(self, own: str, binds: "List[Bind]") -> None:
        """Make the targets of binds below a folder of ours; elsewhere the runtime does."""
        ours = {"/tmp": os.path.join(own, "tmp"), "/var/tmp": os.path.join(own, "var-tmp")}
        ours[self.home] = self._home_source(own)
        for bind in binds:
            for target, folder in ours.items():
                if bind.target.startswith(target + "/"):
                    make_place(folder + bind.target[len(target) :], bind.source)

    def _home_source(self, own: str) -> str:
        return os.path.join(own, "home") if self.home == container.HOME else self.home

    def folder(self) -> str:
        """Return where the command starts, inside."""
        return os.path.join(self.code(), self.job["folder"])

    def code(self) -> str:
        """Return where the work tree is, inside."""
        return str(self.wanted["workdir"] or self.job_dir.work)

    def base(self) -> "Dict[str, str]":
        """Return what the command's environment begins with, beside the image's own variables."""
        found = container.passed(self.outside, self.wanted["pass_env"])
        found.update(container.identity(*user_and_group()))
        found.update({"HOME": self.home, "TMPDIR": "/tmp", IN_CONTAINER: self.runtime.name})
        return found

    def around(self) -> "Dict[str, str]":
        """Return the environment of the runtime itself."""
        found = dict(self.outside, DRAY_JOB_ID=self.job_dir.id)
        found.update(self.runtime.environment(runtimes.gpus_of(self.job)))
        return found

    def input(self, rank: int, argv: "List[str]", env: "Dict[str, str]") -> int:
        """Write the input of the container's shell to an unnamed file: there are secrets in it."""
        path = os.path.join(self._own(rank), "input")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, files.PRIVATE_FILE)
        os.unlink(path)
        to_bytes = process.to_bytes
        variables = {to_bytes(name): to_bytes(env[name]) for name in env}
        text = container.script([to_bytes(one) for one in argv], variables, to_bytes(self.folder()))
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def describe(self, rank: int, argv: "List[str]", env: "Dict[str, str]") -> "Dict[str, Any]":
        """Return what another container like a rank's is started with. ``argv`` is how the rank's
        own was."""
        return {
            "argv": argv[: -len(SHELL)],
            "around": self.around(),
            "run": os.path.join(self._own(rank), "run"),
            "env": env,
            "folder": self.folder(),
        }

    def _said(self, rank: int) -> str:
        return read_text(os.path.join(self._own(rank), "run", "said")).strip()

    def process_id(self, rank: int) -> int:
        """Return the command's process id inside the container; 0 before it has started."""
        word = self._said(rank).rpartition(" ")[2]
        return int(word) if word.isdigit() else 0

    def end(
        self,
        rank: int,
        argv: "List[str]",
        log: str,
        code: "Optional[int]",
        signal_name: "Optional[str]",
    ) -> "CommandEnd":
        """Describe the command's end, as distinct from that of the runtime around it."""
        said = self._said(rank)
        if not said.startswith(container.STARTED):
            return self._never_started(said, argv, log, signal_name)
        reason = describe_end(code, signal_name)
        if self.runtime.has_own_pids(self.wanted) and code is not None and code > 128:
            reason = container.exit_in_own_pids(code, process.signal_name(code - 128))
        return {"exit_code": code, "signal": signal_name, "reason": reason}

    def _never_started(
        self, said: str, argv: "List[str]", log: str, signal_name: "Optional[str]"
    ) -> "CommandEnd":
        name = self.runtime.name
        if signal_name:
            reason = "{} was killed by {} while it started the container".format(name, signal_name)
            return {"exit_code": None, "signal": signal_name, "reason": reason}
        tail = read_text(log, TAIL)
        reason = container.why_not_started(name, said, argv, self.folder(), tail)
        code = 127 if said == container.NO_COMMAND else None
        return {"exit_code": code, "signal": None, "reason": reason, "hopeless": bool(said)}


def user_and_group() -> "Tuple[str, int, str, int]":
    user_id, group_id = os.getuid(), os.getgid()
    try:
        user = pwd.getpwuid(user_id).pw_name
    except KeyError:  # a directory that does not answer
        user = os.environ.get("USER") or str(user_id)
    try:
        group = grp.getgrgid(group_id).gr_name
    except KeyError:
        group = str(group_id)
    return user, user_id, group, group_id


def make_place(path: str, source: str) -> None:
    if os.path.isdir(source):
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write_bytes(path, b"", durable=False)


def read_text(path: str, last: int = 1 << 20) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - last, 0))
            return file.read(last).decode("utf-8", "replace")
    except OSError:
        return ""
