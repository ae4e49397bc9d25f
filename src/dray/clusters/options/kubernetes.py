"""The settings of a Kubernetes cluster. Light: they are read before anything is done there."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.option import Option
from dray.job.options.pod_values import (
    absolute_path,
    group_ids,
    mapping,
    object_name,
    patch_table,
    volume_texts,
)
from dray.job.options.shared import (
    CONTEXT,
    KUBECONFIG,
    NAMESPACE,
    ORDER,
    PER_GPU,
    ROOT,
    SUPPORT,
    word,
)
from dray.job.options.shared import KIND as KIND_OPTION
from dray.job.options.values import Choice, count_from_zero, image, text, texts
from dray.job.quantities import parse_duration, parse_size

SCHEDULERS = ("auto", "default", "kueue", "kai", "volcano")


KUBE_ROOT = ROOT._replace(
    parse=absolute_path,
    help="The folder for jobs and code, below the mount path of one of the volumes.",
    example='"/lab/me/dray"',
    default=None,
    default_text="dray, in the first volume",
)
VOLUMES = Option(
    key="clusters.*.volumes",
    many=True,
    parse=volume_texts,
    help="What every pod mounts: `pvc:CLAIM:/path`, `nfs:SERVER:/export:/path` or"
    " `host:/path:/path`; `:ro` behind it for reading only.",
    example='["pvc:home:/home/me"]',
)
IMAGE = Option(
    key="clusters.*.image",
    parse=image,
    help="The image of jobs that name none.",
    example='"nvcr.io/nvidia/isaac-lab:2.3.0"',
)
AGENT_IMAGE = Option(
    key="clusters.*.agent_image",
    parse=image,
    help="The image of dray's helper pod: any that has Python 3.6 or newer.",
    example='"python:3.12-slim"',
    default="python:3-slim",
)
SCHEDULER = Option(
    key="clusters.*.scheduler",
    parse=Choice(*SCHEDULERS),
    help="What starts pods: `default`, `kueue`, `kai` or `volcano`.",
    example='"kueue"',
    default="auto",
    default_text="what is found there, where a queue is set",
    harmless=True,
)
QUEUE = word("queue", "The queue of Kueue, KAI or Volcano.", '"lab"')._replace(parse=object_name)
PRIORITY_CLASS = word("priority_class", "A priority class of the cluster.", '"low"')
PRIORITY = word("priority", "The label `priority` of everything that is created.", '"normal"')
USER = word(
    "user", "The label `user` of everything that is created.", '"me"', harmless=False
)._replace(default_text="your name on this machine")
GPU_RESOURCE = word(
    "gpu_resource",
    "The resource that stands for a GPU.",
    '"nvidia.com/mig-1g.10gb"',
    default="nvidia.com/gpu",
)
GPU_TYPE_LABEL = word(
    "gpu_type_label",
    "The label of nodes by which a type of GPU is chosen.",
    '"gpu.model"',
    default="nvidia.com/gpu.product",
)
NODE_SELECTOR = Option(
    key="clusters.*.node_selector",
    parse=mapping,
    help="Labels that a node must have.",
    example='{ pool = "gpu" }',
    harmless=True,
)
TOLERATIONS = Option(
    key="clusters.*.tolerations",
    many=True,
    parse=texts,
    help="Taints that do not keep pods away: `KEY[=VALUE][:EFFECT]`.",
    example='["dedicated=lab:NoSchedule"]',
    harmless=True,
)
NODE_LOSS = Option(
    key="clusters.*.node_loss",
    parse=parse_duration,
    help="How long a node may be unreachable before its pods are given up.",
    example='"5m"',
    default="2m",
    harmless=True,
)
UID = Option(
    key="clusters.*.uid",
    parse=count_from_zero,
    help="The user id of everything that runs.",
    example="123456",
    default_text="the image's own",
)
GID = Option(
    key="clusters.*.gid",
    parse=count_from_zero,
    help="The group id of everything that runs.",
    example="11166",
    default_text="the image's own",
)
GROUPS = Option(
    key="clusters.*.groups",
    many=True,
    parse=group_ids,
    help="Further group ids.",
    example="[11166]",
)
GROUP = word("group", "The name of your group, for images that set up an account.", '"CVLAB-unit"')
SHM = Option(
    key="clusters.*.shm",
    parse=parse_size,
    help="The size of `/dev/shm`, which counts as memory of the job.",
    example='"16G"',
    default_text="half of the job's memory",
    harmless=True,
)
PULL_SECRETS = Option(
    key="clusters.*.pull_secrets",
    many=True,
    parse=texts,
    help="Secrets of the namespace for pulling images.",
    example='["regcred"]',
)
SERVICE_ACCOUNT = word(
    "service_account", "The service account of pods; they get no token of it.", '"lab"'
)._replace(harmless=False)
# By labels and annotations a cluster hands out roles and secrets, and Services choose their pods:
# that is not for a cloned project to say.
LABELS = Option(
    key="clusters.*.labels",
    parse=mapping,
    help="Further labels of everything that is created.",
    example='{ team = "robots" }',
)
ANNOTATIONS = Option(
    key="clusters.*.annotations",
    parse=mapping,
    help="Further annotations of pods.",
    example='{ "example.org/cost" = "lab" }',
)
PATCH = Option(
    key="clusters.*.patch",
    parse=patch_table,
    help="What is merged into the pods' spec last, as it is in Kubernetes.",
    example="{ hostNetwork = true }",
)
POD_PYTHON = Option(
    key="clusters.*.python",
    parse=text,
    help="A Python 3.6 or newer that every image has; without it, dray brings one along.",
    example='"/usr/bin/python3"',
    default_text="dray's own, on the volume",
)


OPTIONS = (
    KIND_OPTION._replace(example='"kubernetes"'),
    CONTEXT,
    NAMESPACE,
    KUBECONFIG,
    VOLUMES,
    KUBE_ROOT,
    IMAGE,
    AGENT_IMAGE,
    POD_PYTHON,
    SCHEDULER,
    QUEUE,
    PRIORITY_CLASS,
    PRIORITY,
    USER,
    GPU_RESOURCE,
    GPU_TYPE_LABEL,
    *PER_GPU,
    NODE_SELECTOR,
    TOLERATIONS,
    NODE_LOSS,
    UID,
    GID,
    GROUP,
    GROUPS,
    SHM,
    PULL_SECRETS,
    SERVICE_ACCOUNT,
    LABELS,
    ANNOTATIONS,
    PATCH,
    ORDER,
    SUPPORT,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.kubernetes:KubernetesCluster")
