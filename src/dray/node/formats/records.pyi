"""What is in each file of a job and in each message, for type checkers and for people.

Nothing of it exists at run time, and it is not sent to clusters: it is imported below
``if TYPE_CHECKING`` and named in quoted annotations.

Values are checked when they are read (``shapes``), and have these types from then on. A key of a
class with ``total=False`` may be missing: then use ``get``. ``Optional`` says that null is written,
too. Tests hold this file to the checks in ``shapes`` and to what the laptop writes.
"""

from typing import (  # novermin
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
    TypedDict,
    Union,
)

# An arbitrary JSON object: one that has not been checked yet (a file as it was read), or one of
# another program (PBS, OCI). Everything else has a type below.
Record = Dict[str, Any]

# -- job.json: the description ----------------------------------------------------------------
#
# Written by the laptop (dray.job.model.JobSpec, which has the same names), read everywhere here.
# ``version`` says by which of these lists: see shapes.DESCRIPTION_VERSION.

class Resources(TypedDict, total=False):
    """What each attempt asks for; GPUs, CPUs and memory are those of one node."""

    nodes: int
    cpus: int
    memory: Optional[int]  # bytes
    gpus: float  # less than one: a share of a GPU
    gpu_type: Optional[str]
    time: Optional[float]  # seconds
    time_min: Optional[float]  # what it makes do with, where that lets it start earlier

class Lookup(TypedDict, total=False):
    """A number in a file of the run's folder."""

    file: str
    pattern: str  # its first group is the number

class TotalRule(Lookup, total=False):
    """How many iterations there are in all: see ``resuming``."""

    flag: str
    rest: bool
    begin: int
    last: int
    up: bool
    early: bool

class GivenPlaces(TypedDict):
    """Where the checkpoint of another run lies that the job begins from: see ``given``."""

    path: str
    placed: str  # where the trainer finds it

class Rules(TypedDict, total=False):
    """Which files are checkpoints, and how the command goes on from one: see ``resuming``."""

    checkpoint: Optional[str]  # a glob below the outputs
    number: Optional[str]
    args: List[str]
    begin_args: List[str]
    total: Optional[TotalRule]
    scale: List[Lookup]
    anew: bool
    finished: Optional[str]
    partner: Optional[str]
    looks_for: Optional[str]
    beside: Optional[str]
    keep: Optional[int]  # how many checkpoints stay
    signal: Optional[str]  # without SIG
    saves: Optional[str]  # "on-request", or else only now and then
    given: GivenPlaces  # never written: found out anew by given.rules_of

class Resume(Rules):
    """The rules of a job, and how much time it is given."""

    grace: float  # seconds from being asked to end until it is killed
    backoff: float  # seconds before the first retry

class Limits(TypedDict, total=False):
    """What the job may use over all attempts: see ``budget``."""

    total_time: Optional[float]  # seconds
    gpu_hours: Optional[float]
    start_by: Optional[float]  # a time of day, as all others in seconds since 1970

class Metrics(TypedDict, total=False):
    """Where it is seen how a training does: see ``metrics.sources``."""

    main: List[str]
    tensorboard: Optional[str]
    pattern: Optional[str]

class Container(TypedDict):
    """What the command runs in: see ``container``."""

    image: str  # a path on the cluster, or sha256:<hex> of one that dray keeps there
    name: str
    runtime: str
    binds: List[str]  # SOURCE[:TARGET[:ro]]
    pass_env: List[str]
    containall: bool
    writable: str  # "no", "tmpfs" or "overlay"
    home: str
    workdir: str
    caches: List[str]  # NAME:TARGET
    local_copy: str
    outside: Dict[str, str]

class SchedulerSettings(TypedDict, total=False):
    """What the plan of a cluster adds; the local cluster adds nothing."""

    kind: str  # which scheduler: see scheduler.of_kind
    resume_with: Optional[str]  # "chain": never requeue
    command: List[str]  # the words in front of the batch script
    cpus: Optional[int]  # of a machine without a scheduler: what its settings declare
    memory: Optional[int]
    gpus: Optional[int]

class Origin(TypedDict, total=False):
    """The checkpoint of another run that the first attempt begins from: see ``given``."""

    path: str
    told: str
    job: str
    checkpoint: str
    snapshot: str

class SweepPart(TypedDict, total=False):
    """Which trial of which sweep the job is; empty: of none. See ``sweeps``."""

    id: str
    first: int  # of an array: the number of its first trial
    trial: int
    at_once: Optional[int]  # how many may run at the same time
    per_node: int  # how many share a batch job; absent: it has one of its own
    asked_for: bool  # it was resumed by the user, and starts though its sweep is closed
    values: Record  # the parameters, once it has asked for them: its command is filled then
    template: List[str]  # the command before that, where its parameters may change

class Input(TypedDict, total=False):
    """Outputs of another job that the command reads: see ``inputs``."""

    path: str  # among the outputs; '': all of them
    told: str
    job: str
    snapshot: str

class NeededDescription(TypedDict):
    """What no description lacks: one that does is damaged."""

    command: List[str]
    resources: Resources
    resume: Resume
    outputs: List[str]
    retries: int
    resumed_after: int  # attempts up to this number do not count for retries any more

class Description(NeededDescription, total=False):
    id: str
    name: str
    version: int
    folder: str  # where in the work tree the command starts
    project: str
    snapshot: Optional[str]
    metrics: Metrics
    container: Optional[Container]
    scheduler: SchedulerSettings
    share: str  # the folder through which accounts share the machine: see ``sharing``
    order: str  # the rule by which its line is to go: see ``fair_order``
    recipe: str
    launch: str  # how the command is spread: see ``layout``
    env: Dict[str, str]
    links: Dict[str, str]
    secrets: List[str]  # names only
    notes: List[str]
    created: float
    start_from: str  # where the attempt after resumed_after begins
    limits: Limits
    retry_on: List[int]
    fail_on: List[int]
    hold: Optional[float]
    stall: Optional[float]
    origin: Origin
    sweep: SweepPart
    after: Dict[str, str]  # jobs that have to end before it: see ``following``
    inputs: Dict[str, Input]  # by name
    # of an array only, whose job.json is that of all its jobs: every command, or how many there are
    # where each makes its own of the common one
    commands: List[List[str]]
    count: int

class Placeholder(TypedDict, total=False):
    """What is told of a job instead of its description, where that is damaged."""

    id: str
    name: str
    command: List[str]
    resources: Resources
    resume: Rules
    created: float

# -- an attempt: attempt.json, heartbeat.json, outcome.json -----------------------------------

class Metric(TypedDict):
    """The latest value of the main metric."""

    name: str
    value: Optional[float]
    step: Optional[int]
    recent: List[Optional[float]]  # its course, thinned out

class Runs(TypedDict, total=False):
    """The folders with checkpoints that there were before an attempt: see resuming.begun_at."""

    runs: List[str]
    done_before: Optional[int]  # iterations

class Beginning(Runs, total=False):
    from_checkpoint: Optional[str]
    from_time: Optional[float]  # when that was written, by the clock of the file system

class About(Beginning, total=False):
    """attempt.json: written once the command has started."""

    started: float
    host: str
    pid: Optional[int]
    gpus: List[int]
    deadline: Optional[float]
    remarks: List[str]  # what became of checkpoints that it did not begin from
    snapshot: Optional[str]
    command: Optional[List[str]]  # as it was started; null where nothing was left to do
    container: List[str]  # how its runtime was called

class Reached(TypedDict, total=False):
    checkpoint: Optional[str]
    metric: Optional[Metric]
    iteration: Optional[int]
    total: Optional[int]

class NeededHeartbeat(Reached):
    heartbeat: float
    deadline: Optional[float]  # it may have changed since the attempt began

class Heartbeat(NeededHeartbeat, total=False):
    """heartbeat.json: written every few seconds; its own time is the sign of life."""

    memory: List[int]  # of a pod: bytes in use, and how many it may use, or 0
    gpu_use: float  # percent, the mean of all its GPUs on this node
    gpu_idle: Optional[float]  # since when they do nothing; null: they do

class NeededCommandEnd(TypedDict):
    exit_code: Optional[int]
    signal: Optional[str]
    reason: str  # "": it did what it should

class CommandEnd(NeededCommandEnd, total=False):
    """How the command has ended, or why it did not start."""

    cause: str  # of an interruption: "time", "signal", "node", "lost node", "budget" or "pruned"
    hopeless: bool  # another attempt would meet the same
    rank: int  # of the task that went wrong first

class Measures(Reached, total=False):
    progress: bool  # whether it came further than where it began
    ending: Optional[float]  # seconds from being asked to end to its end
    saved_at_end: Optional[bool]
    interval: Optional[float]  # seconds between two checkpoints
    ended: float
    held: float  # until when its allocation is, or was, kept for a look
    left: List[str]  # files that it wrote outside its outputs

class Outcome(CommandEnd, Measures, total=False):
    """outcome.json."""

    outcome: str  # one of shapes.OUTCOMES
    started: float
    remarks: List[str]

class NeededAttempt(TypedDict):
    number: int
    outcome: Optional[str]  # None while it runs

class AttemptRecord(NeededAttempt, About, Measures, total=False):
    """All three files as one record, the later ones on top. Null is left out."""

    heartbeat: float
    memory: List[int]
    gpu_use: float
    gpu_idle: Optional[float]
    exit_code: Optional[int]
    signal: Optional[str]
    reason: str
    cause: str
    hopeless: bool
    rank: int

# -- a job: end.json, stop.json, notify.json, and what is told of it --------------------------

class NeededEnd(TypedDict):
    state: str

class End(NeededEnd, total=False):
    """end.json, or the end that is concluded for a job that has written none."""

    reason: str
    time: Optional[float]

class StopRequest(TypedDict):
    now: bool

class NeededRow(TypedDict):
    id: str  # the scheduler's number
    state: str  # "waiting", "running" or "ending"

class Row(NeededRow, total=False):
    """A job in the scheduler's queue: see Scheduler.parse_queue."""

    why: str
    start: str
    array: bool  # whether the row is that of many jobs
    per_node: int  # of an array of which several jobs share a batch job: how many

class Conclusion(TypedDict, total=False):
    """The part of a status that says how the job is, as far as that is known."""

    state: str
    reason: str
    ended: Optional[float]
    trace: Any  # states.Trace; only inside the agent, until the scheduler's accounting was asked

class NeededStatus(TypedDict):
    id: str
    job: Union[Description, Placeholder]
    attempts: List[AttemptRecord]

class Status(NeededStatus, Conclusion, total=False):
    """What the laptop is told of a job: see ``states``."""

    damaged: bool  # the description is
    unreadable: bool  # just now: this tells nothing of the job
    scheduler: Row

class NoticeSettings(TypedDict, total=False):
    """notify.json: who gets notices of the job, and what was sent: see ``notices``."""

    to: Dict[str, str]  # channel → address
    on: List[str]  # events
    cluster: str
    after: float  # seconds; a job that ended sooner is not worth a notice
    long_wait: float  # seconds
    jobs: int  # of an array
    left: Dict[str, List[str]]  # event → channels it has not been sent over yet
    tries: int
    looked: float  # when sending was last tried again
    end: End  # of a job that could not write its own

class NoticeMetric(TypedDict):
    name: str
    value: Optional[float]
    step: Optional[int]

class NeededNotice(TypedDict):
    version: int
    event: str
    id: str
    name: str
    cluster: str
    state: str
    reason: str
    exit_code: Optional[int]
    attempts: int
    submitted: Optional[float]
    ended: Optional[float]
    elapsed: Optional[float]
    metric: Optional[NoticeMetric]
    jobs: Optional[Dict[str, int]]  # of an array: how many ended in each state

class Notice(NeededNotice, total=False):
    """The facts that a notice tells, and what a webhook is sent."""

    sent_by: str

class ArrayEnd(TypedDict):
    cluster: str
    ended: Optional[float]  # when its last job did

class UnsentNotice(TypedDict):
    id: str
    over: bool
    channels: List[str]

# -- the queue of a machine without a scheduler -----------------------------------------------

class Capacity(TypedDict, total=False):
    """capacity.json: what the machine has."""

    cpus: float
    memory: Optional[float]
    gpus: int

class Machine(TypedDict):
    """What this machine itself tells of that."""

    cpus: int
    memory: int
    gpus: int

class Granted(TypedDict, total=False):
    """A grant's file: what a running job was given."""

    cpus: float
    memory: Optional[float]
    gpus: List[int]  # which ones
    share: float  # of each of them

class Wish(TypedDict):
    """What a job asks for that waits in the queue of several accounts."""

    cpus: Optional[float]
    gpus: float
    memory: Optional[float]
    order: str  # the rule by which it would have the line go; "": by age

class QueuedHere(TypedDict):
    """A job in the queue of a machine without a scheduler."""

    job: str
    owner: str
    state: str  # "waiting" or "running"
    gpus: float
    cpus: float
    since: float  # when it came, of one that waits in a shared queue; else 0
    order: str  # the rule that such a one goes by; see ``fair_order``
    held: str  # why it waits, if not for its turn

class MachineQueue(TypedDict):
    capacity: Capacity
    jobs: List[QueuedHere]  # those that wait in order, those that run, those that are held

# -- sweeps: see ``sweeps.study`` -------------------------------------------------------------

class NeededParameter(TypedDict):
    name: str
    kind: str  # "choice", "float", "int", "formula", "table", "drawn" or "fixed"

class Parameter(NeededParameter, total=False):
    """A parameter of the space; which keys it has depends on its kind."""

    emit: str  # how it gets into a command that does not name it: see ``filling``
    values: List[Any]
    low: float
    high: float
    log: bool
    step: Optional[float]
    formula: str
    of: List[str]  # what a formula or a table is made of
    rows: List[List[Any]]  # of a table: the values of those, and its own
    when: Dict[str, List[Any]]  # choices, with the values for which it is there: see ``presence``
    value: Any

class StopRule(TypedDict, total=False):
    """How trials that do badly are ended early: see ``stopping``."""

    rule: str  # "asha", "median" or "pbt"
    first: Optional[int]  # the step of the first look
    factor: int
    total: Optional[int]  # steps of a whole training
    change: List[str]  # pbt: the parameters that are changed; empty: all floating-point numbers

class Objective(TypedDict):
    metric: str
    mode: str  # "max" or "min"

class StudyRecord(TypedDict, total=False):
    """sweep.json: written once, when the sweep is submitted."""

    version: int
    id: str
    name: str
    created: float
    space: List[Parameter]
    sampler: str
    sampler_python: List[str]  # that has Optuna; empty: the command's own
    seed: int
    metric: str
    mode: str  # "max" or "min"
    objectives: List[Objective]  # several metrics at once, the first one too; empty: that alone
    repeats: int
    stop: Optional[StopRule]
    stop_if: List[str]
    max_failures: Optional[int]
    mlflow: str  # the address of a server that is told; '': none
    experiment: str  # there; '': the sweep's id

class TrialRecord(TypedDict, total=False):
    """trials/<configuration>.json: written once, by the first of its trials that starts."""

    values: Record
    by: str  # which sampler chose them
    attrs: Record  # what a sampler of Optuna's has noted on it

class Exchange(TypedDict):
    """What a trial takes over from another one: see ``population``."""

    step: int
    job: str  # whose checkpoint
    values: Record  # its new parameters

class ResultRecord(TypedDict, total=False):
    """results/<trial>.json: written by that trial alone."""

    job: str
    state: str  # "running", "done", "failed", "pruned" or "stopped"
    value: Optional[float]
    objectives: List[Any]  # of several metrics, in their order: a number, "nan", or null for none
    step: Optional[int]
    rungs: Dict[str, Optional[float]]  # by step; null: not a number
    gpu_seconds: float
    reason: str
    promoted: bool  # it was pruned, and somebody let it go on
    metrics: List[str]  # names that were seen, those that the sweep asks for first
    levels: Dict[str, float]  # what these are, by name
    exchanges: List[Exchange]  # what it has taken over from others, or is about to
    taken: int  # how many of these it has
    values: Record  # its parameters since the last one

class PartRecord(TypedDict):
    """parts/<first>.json: an array of the sweep."""

    id: str
    first: int  # the number of its first trial
    count: int
    at_once: Optional[int]

class StudyFiles(TypedDict):
    """All that is known of a sweep below one root."""

    study: StudyRecord
    parts: List[PartRecord]
    trials: Dict[str, TrialRecord]
    results: Dict[str, ResultRecord]
    closed: bool
    others: str  # the mark of what it was told of other clusters

class OthersRecord(TypedDict):
    """others.json: what a laptop has told of the trials on other clusters."""

    mark: str  # by which the laptop recognizes it
    trials: Dict[str, TrialRecord]
    results: Dict[str, ResultRecord]

# -- images -----------------------------------------------------------------------------------

class ImageRecord(TypedDict, total=False):
    """images/<hex>.json: what an image is, written down before its layers come."""

    id: str
    name: str
    source: str  # "file", "registry" or "layers"
    format: str  # the ending of the file that containers start from
    architecture: str
    size: int  # bytes; 0 where it is not known
    layers: List[str]  # digests
    config: str
    job: str  # which makes it ready
    keep_layers: bool

class ImageSizes(TypedDict):
    file: int
    layers: int

class ListedImage(ImageRecord, total=False):
    ready: bool
    sizes: ImageSizes
    jobs: List[str]  # that need it

class ImageNeeds(TypedDict, total=False):
    machine: str
    builders: List[str]  # runtimes
    lacking: Dict[str, List[List[int]]]  # layer → the parts that are there, as (offset, length)

class NeededLook(TypedDict):
    ready: bool

class ImageLook(NeededLook, ImageNeeds, total=False):
    """Whether an image is ready to run, or which job makes it so, or what it takes."""

    job: str

# -- what a site is like: facts.json, for dray doctor -----------------------------------------

class Mount(TypedDict):
    kind: str
    options: List[str]

class LockFacts(TypedDict):
    file_system: str
    options: List[str]
    work: bool
    only_here: bool

class ContainerFacts(TypedDict, total=False):
    runtimes: Dict[str, str]  # name → version
    setuid: bool
    namespaces: bool
    subuid: bool
    fuse: bool

class ShareFacts(TypedDict):
    """Whether accounts can share the machine through the folder that the settings name."""

    problem: str  # why not, and what to do; "": they can
    owner: str  # whose folder it is; "" where there is a problem

class NodeShape(TypedDict):
    nodes: int
    cpus: int
    kilobytes: int
    gpus: int

class SiteFacts(TypedDict, total=False):
    time: float
    root: str
    python: str
    free: int  # bytes
    files: Optional[int]  # how many more there may be
    container_facts: ContainerFacts
    locks: LockFacts
    links: bool  # whether a file can have two names
    share: ShareFacts
    # Scheduler.describe; NAME_error says why NAME could not be found out
    accounts: str
    accounts_error: str
    slurm: str
    slurm_error: str
    partitions: str
    partitions_error: str
    config: Dict[str, str]
    config_error: str
    version: str
    dialect: str
    queues: Dict[str, Dict[str, str]]
    queues_error: str
    nodes: List[NodeShape]
    ray: str
    ray_error: str
    ray_of_python: str  # the version that jobs' Python imports; '' for none
    # where jobs run in pods
    machine: str
    pod_python: List[str]  # the words that start the copy of this Python there
    pod_python_error: str

# -- a copied Python: see ``interpreter`` -----------------------------------------------------

class Survey(TypedDict):
    """What a Python consists of: see ``survey``."""

    prefix: str
    archive: str
    library: str
    imported: List[str]
    extension_files: List[str]
    mapped: List[str]
    certificates: Optional[str]

class MadeFrom(TypedDict):
    """made-from.json: which Python a copy was made from."""

    format: int
    version: str
    program: str
    files: Dict[str, Optional[List[int]]]  # path → size and time, null where it is gone

# -- the agent: requests and answers ----------------------------------------------------------

class ManifestChange(TypedDict):
    """A manifest as what differs from one that lies here already."""

    base: Optional[str]
    head: int
    tail: int
    middle: str

class RequestedJob(TypedDict, total=False):
    """What the agent itself needs to know of a job; the rest is in ``files``."""

    id: str
    created: float
    snapshot: Optional[str]
    resumed_after: int
    start_from: str
    origin: Origin
    after: Dict[str, str]
    inputs: Dict[str, Input]

class QueueGroup(TypedDict):
    """Jobs that have the same state in the queue, for the same reason."""

    ids: List[str]
    state: str  # see NeededRow
    why: str

class Asked(TypedDict, total=False):
    """What the laptop tells with a verb; each verb needs what is listed with it."""

    # hello
    share: str  # see Description
    # submit, resume, bring, discard
    job: RequestedJob
    files: Dict[str, str]  # of the job's directory
    command: List[str]
    array: bool
    study: StudyRecord  # the sweep that it belongs to,
    part: PartRecord  # and which of its trials they are
    image: Optional[str]
    facts: Optional[float]  # the time of those that the laptop has
    pack: Optional[str]
    manifest: ManifestChange
    # status, stop, remove, settle
    ids: List[str]  # sweep-7f3k.0-999 means a thousand
    brief: bool
    now: bool
    over: bool
    # discard
    end: Optional[End]  # that the job had before
    # resume, status, stop: where only the laptop can ask the scheduler
    queue: List[QueueGroup]
    ends: Dict[str, End]  # of jobs that may not know it themselves
    overdue: List[str]  # folded: their pods should have ended long ago
    # log, log-times, metrics, outputs, appended, checkpoint, pull, image, image-remove, sweep,
    # sweep-close, sweep-others, door, enter
    id: str
    attempt: int
    offset: int
    rank: int
    globs: List[str]
    latest_checkpoint: bool
    known: Dict[str, int]  # lengths of files, by their paths
    name: str
    rules: Rules
    paths: List[str]
    others: OthersRecord
    # situation, explain
    names: List[str]  # of questions
    changes: List[List[str]]  # flags to submit with
    # storage
    quota_command: List[str]
    # image, image-announce, image-part
    layers: List[str]
    record: ImageRecord
    layer: str
    length: int
    last: bool
    sha256: str
    # nodes
    python: str

class Request(Asked, total=False):
    verb: str  # one of agent.VERBS
    version: int  # wire.VERSION

class Carried(Request):
    """A request to submit a job, in the Secret of that job."""

    size: int  # of the pack, once it is unpacked

class WaitingGroup(TypedDict):
    ids: List[str]
    why: str
    start: str

class OutputFile(TypedDict):
    path: str
    size: int
    mtime: int  # nanoseconds
    mode: int
    link: Optional[str]

class AppendedPart(TypedDict):
    """What a file got since its length was asked for; the bytes follow the answer."""

    path: str
    offset: int
    length: int

class Curve(TypedDict):
    """The main metric over all attempts."""

    name: str
    points: List[List[Any]]  # (step, value or null, attempt)

class KnownAnswer(TypedDict):
    """What the scheduler said to a question, as it is."""

    time: float
    text: str
    error: str  # why there is none, or not all of it; "": that is all

class PlaceUsage(TypedDict):
    """A place where files can be stored, as its file system tells for all its users."""

    name: str
    path: str
    kind: str  # of file system
    total: int
    free: int
    files: Optional[int]
    files_free: Optional[int]

class Answer(TypedDict, total=False):
    """What the agent answers to most requests."""

    # what jobs would find on nodes
    inspected: List[Record]
    # what went wrong, of any request
    error: str
    family: str  # of the error that the laptop raises
    errno: Optional[int]
    # submit, resume, bring
    missing: List[str]  # contents that the snapshot lacks: nothing else was done
    scheduler_id: str
    facts: SiteFacts
    end: Optional[End]  # that a resumed job had: see discard
    # resume, status, stop: what the laptop is to do where only it can ask the scheduler
    cancel: List[str]
    interrupt: List[str]
    give_up: List[str]
    gone_on: bool  # an attempt was made since the laptop looked, or is: nothing was resumed
    # status, ids, remove
    jobs: List[Status]
    waiting: List[WaitingGroup]
    unsent: List[UnsentNotice]
    ids: List[str]
    left: List[str]
    # log, log-times, outputs, appended, checkpoint, pull, images
    size: int
    times: List[Tuple[float, int]]
    files: List[OutputFile]
    parts: List[AppendedPart]
    path: str
    remarks: List[str]
    images: List[ListedImage]
    # door, with its path: what the scheduler knows of its node, and how dray is started there
    place: Dict[str, str]
    words: List[str]
    # situation, explain
    answers: Dict[str, KnownAnswer]  # by the question's name
    guesses: List[KnownAnswer]
    user: str
    uid: int
    # storage
    places: List[PlaceUsage]
    own: Dict[str, List[int]]  # what for → bytes, files, and whether all were counted
    # not sent as JSON
    payload: int  # how many bytes follow
    pieces: Iterable[bytes]  # those bytes
    afterwards: Callable[[], None]  # called once the answer is sent

# Any answer of the agent: an ``Answer``, or else ``SiteFacts``, a ``Curve`` or an ``ImageLook``.
Reply = Mapping[str, Any]

# -- the tasks of a command that is spread: see ``ranks`` -------------------------------------

class Order(TypedDict, total=False):
    """A message to the tasks; ``what`` it is decides which keys it has."""

    what: str
    attempt: int
    argv: List[str]
    told: Dict[str, str]  # variables
    work: str
    address: str
    port: int
    trees: Dict[str, str]  # work trees, by the node's number
    signal: int

class Part(TypedDict, total=False):
    """What a pod of several does in an attempt: see ``gather``."""

    node: int
    ranks: List[int]
    address: str  # of the first node
    others: List[Tuple[int, str, List[int]]]  # of the first one: connections, hosts, and ranks

class News(TypedDict, total=False):
    """A message from a task."""

    what: str
    rank: int
    node: int
    host: str
    work: str
    caught: bool
    used: int
    paths: List[str]
    task: str
    signalled: bool
    exit_code: Optional[int]
    signal: Optional[str]
    reason: str
    cause: str
    hopeless: bool
