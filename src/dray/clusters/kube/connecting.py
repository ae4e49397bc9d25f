"""How kubectl is called for a cluster's settings. Light: every command makes its clusters."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dray.job.options.shared import CONTEXT, KUBECONFIG, NAMESPACE
from dray.transport.kubectl import Kubectl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def kubectl_of(settings: Mapping[str, Any]) -> Kubectl:
    config = KUBECONFIG.of(settings)
    return Kubectl(
        NAMESPACE.of(settings) or "",
        CONTEXT.of(settings) or "",
        os.path.expanduser(config) if config else "",
    )
