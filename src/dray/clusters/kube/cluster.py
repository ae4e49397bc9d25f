"""A namespace, through the user's own kubectl: an agent in its helper pod, and what is known of it.

See dray.clusters.kubernetes for what is planned there, and jobs.py for its queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from dray.clusters.agent.cluster import BatchCluster
from dray.clusters.kube import names, schedulers, volumes
from dray.clusters.kube.api import Cluster as Objects
from dray.clusters.kube.connecting import kubectl_of
from dray.clusters.kube.helper import Helper
from dray.clusters.kube.manifest import Place
from dray.clusters.options import kubernetes as options
from dray.errors import ClusterError
from dray.transport.kube_api import Api
from dray.transport.kubectl import PodExec
from dray.transport.link import AgentLink

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # uname → what Kubernetes calls it


class PodCluster(BatchCluster):
    _helper = ""  # its pod, as it was last started or found here

    def __init__(self, name: str, settings: Mapping[str, Any], _: Path, cache: Path) -> None:
        super().__init__(name, settings, _, cache)
        self._asked_pods: set[str] = set()  # of jobs, in the helper's place

    @staticmethod
    def root_here(_: str, settings: Mapping[str, Any], __: Path) -> str | None:
        del settings
        return None

    def make_link(self) -> AgentLink:
        root, user = volumes.root_of(self.settings), self.user
        self.kubectl = kubectl_of(self.settings)
        channel = PodExec(self.kubectl, f"job/{names.helper_name(root, user)}", ["python3"])
        return AgentLink(
            channel,
            root,
            "python3",
            self.kind,
            on_answer=self._remember_answer,
            revive=self._revive,
            stays=self._may_stay,
        )

    def _may_stay(self) -> bool:
        """Return whether somebody may hold a connection to the helper, which keeps it alive: not
        where a job may need the volume on another node."""
        return self.agent.detour is not None or not self.place().one_node

    def _revive(self) -> PodExec | None:
        """Find the pod of a job that runs, or start the helper. One that was running a moment ago,
        and still is not reached, is on a node that does not answer."""
        for name, words in self.kube.job_pods(self.place()):
            if name not in self._asked_pods:  # else it could not be reached either
                self._asked_pods.add(name)
                return PodExec(self.kubectl, f"pod/{name}", words)
        helper = Helper(self.kube, self.settings, self.place())
        self._helper = helper.start(but=self._helper)
        return None

    def end_helper(self) -> None:
        """Let the helper make way for a job: the volume can be on one node only, and it may have to
        be another one."""
        Helper(self.kube, self.settings, self.place()).end()

    @cached_property
    def user(self) -> str:
        import getpass  # not for a listing

        return str(options.USER.of(self.settings) or getpass.getuser())

    @cached_property
    def api(self) -> Api:
        return Api(self.kubectl, self.agent.companion_socket())

    @cached_property
    def kube(self) -> Objects:
        return Objects(self.api)

    def place(self) -> Place:
        """Say where objects go, by what was last seen there."""
        kube = self.kube_facts()
        facts = self.known_facts()
        machine = "" if options.POD_PYTHON.of(self.settings) else facts.get("machine", "")
        return Place(
            namespace=self.kube.namespace,
            root=self.agent.root,
            user=self.user,
            scheduler=schedulers.chosen(self.settings, kube),
            queue=str(options.QUEUE.of(self.settings) or ""),
            versions=kube.get("versions", {}),
            limits_cpu=bool(kube.get("limits_cpu")),
            machine=MACHINES.get(machine, ""),
            one_node=volumes.is_for_one_node(kube.get("modes", ())),
        )

    def facts(self) -> dict[str, Any]:
        kube = self.kube.facts(volumes.claim_of_root(self.settings))
        self.remember_facts({**self.known_facts(), "kube": kube})
        return {**super().facts(), "kube": kube}

    def kube_facts(self) -> dict[str, Any]:
        """Return what was last seen of Kubernetes itself. Where that decides whose queue is meant,
        and is not known, look: a job must neither go past its queue nor wait for nobody."""
        kube: dict[str, Any] = self.known_facts().get("kube", {})
        if not kube and schedulers.depends_on_facts(self.settings):
            kube = self.kube.facts(volumes.claim_of_root(self.settings))
            self.remember_facts({**self.known_facts(), "kube": kube})
        return kube

    def remember_facts(self, found: Mapping[str, Any]) -> None:
        """Keep what the API server said: the agent's news do not tell of it."""
        kube = found.get("kube") or self.known_facts().get("kube", {})
        super().remember_facts({**found, "kube": kube})

    def python_words(self) -> list[str]:
        """Return the words that start dray's Python in any pod."""
        own = options.POD_PYTHON.of(self.settings)
        if own:
            return [own]
        facts = self.known_facts()
        if not facts.get("pod_python"):
            facts = self.facts()
        if not facts.get("pod_python"):
            raise ClusterError(
                f"{self.name}: the helper's Python cannot be used by jobs: "
                f"{facts.get('pod_python_error', 'it does not say why')}",
                hint="Choose another agent_image, or set python to one that all images have.",
            )
        return list(facts["pod_python"])

    def python_words_unasked(self) -> list[str]:
        """Return the words that start a Python in a pod where nobody can be asked: the one that a
        helper brought once, or else what the image has."""
        own = options.POD_PYTHON.of(self.settings)
        known = self.last_facts().get("pod_python")
        return [own] if own else list(known or ["python3"])

    def reach(self, seconds: float) -> str:
        del seconds  # kubectl has its own patience
        try:
            self.api.get("/version")
        except ClusterError as error:
            return error.message
        self._remember_answer()
        return ""
