"""What queues jobs beside the cluster: started once a test asks for it."""

from __future__ import annotations

import os

import pytest

from tests.rigs.kubernetes.cluster import Kubernetes, Unavailable
from tests.rigs.kubernetes.kueue_manager import Kueue


@pytest.fixture(scope="session")
def kueue(kubernetes: Kubernetes) -> Kueue:
    """Kueue's manager beside the cluster, for as long as that is there."""
    try:
        manager = Kueue(kubernetes)
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    manager.start()
    manager.priorities(low=10, high=100)
    return manager
