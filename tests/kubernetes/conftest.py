"""What runs beside the cluster: started once a test asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conftest import Pods
from tests.rigs.kubernetes.cluster import Kubernetes, Unavailable
from tests.rigs.kubernetes.kai_scheduler import Kai
from tests.rigs.kubernetes.kuberay_operator import KubeRay
from tests.rigs.kubernetes.kueue_manager import Kueue


@pytest.fixture(scope="session")
def kueue(kubernetes: Kubernetes) -> Kueue:
    """Kueue's manager beside the cluster, for as long as that is there."""
    with built():
        manager = Kueue(kubernetes)
    manager.start()
    manager.priorities(low=10, high=100)
    return manager


@pytest.fixture(scope="module")
def kai(kubernetes: Kubernetes, pods: Pods) -> Iterator[Kai]:
    """KAI beside the cluster, for the tests of one module: it is asked about every pod."""
    with built():
        scheduler = Kai(kubernetes)
    try:
        scheduler.start()
        scheduler.admit(pods.namespace)
        yield scheduler
    finally:
        scheduler.stop()


@contextmanager
def built() -> Iterator[None]:
    """Skip what has not been built, but never where CI is set."""
    try:
        yield
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kuberay(kubernetes: Kubernetes) -> KubeRay:
    """KubeRay's operator beside the cluster, for as long as that is there."""
    with built():
        operator = KubeRay(kubernetes)
    operator.start()
    return operator
