"""The settings of a Ray cluster. Light: they are read before anything is done there."""

from __future__ import annotations

from dray.job.options.kinds import Kind
from dray.job.options.option import Option
from dray.job.options.pod_values import object_name
from dray.job.options.ray_values import api_address, token_source
from dray.job.options.shared import (
    CONTEXT,
    HOST,
    KUBECONFIG,
    MODULES,
    NAMESPACE,
    PYTHON,
    ROOT,
    SETUP,
    SUPPORT,
    word,
)
from dray.job.options.shared import KIND as KIND_OPTION

ADDRESS = Option(
    key="clusters.*.address",
    parse=api_address,
    help="The address of Ray's dashboard, through which all is done where there is no `host` and no"
    " `kuberay`.",
    example='"http://10.0.0.5:8265"',
)
DASHBOARD = Option(
    key="clusters.*.dashboard",
    parse=api_address,
    help="The address of Ray's dashboard as the head itself reaches it, with `host`.",
    example='"http://127.0.0.1:8265"',
    default_text="http://127.0.0.1:8265",
)
TOKEN_SOURCE = Option(
    key="clusters.*.token",
    parse=token_source,
    help="Where Ray's token is, with `address` or `kuberay`: `env:NAME`, `file:PATH`, or"
    " `command:WORDS`, which prints it.",
    example='"file:~/.ray/auth_token"',
    default_text="where Ray's own programs look for it; with `kuberay`, the Secret of the cluster",
)
KUBERAY = Option(
    key="clusters.*.kuberay",
    parse=object_name,
    help="The name of a RayCluster of Kubernetes, through whose API server all is done.",
    example='"isaac"',
)

OPTIONS = (
    KIND_OPTION._replace(example='"ray"'),
    ADDRESS,
    TOKEN_SOURCE,
    HOST._replace(
        help="What `ssh HOST` reaches: the head of the Ray cluster.",
        example='"ray-head"',
        default_text="",
    ),
    DASHBOARD,
    KUBERAY,
    NAMESPACE._replace(help="The namespace of the RayCluster.", example='"lab"'),
    CONTEXT,
    KUBECONFIG,
    ROOT._replace(help="The folder for jobs and code, best on a file system that all nodes share."),
    PYTHON._replace(
        help="A Python that can import the cluster's Ray, on all of its nodes.",
        example='"/isaac-sim/python.sh"',
    ),
    word("gpu_type", "The GPUs' name in Ray's `accelerator_type:`.", '"L4"'),
    MODULES,
    SETUP,
    SUPPORT,
)

KIND = Kind(OPTIONS, cluster="dray.clusters.ray:RayCluster")
