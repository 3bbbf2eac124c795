"""A process of ours beside the Slurm of a cluster: the exporter and sconfigcontroller, each a Deployment."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from isthmus.domain.operator.manifests import common
from isthmus.domain.operator.manifests.common import Manifest
from isthmus.model.base import EMPTY
from isthmus.model.slinky import PodTemplate, TemplateMeta

LACKS_PROGRAM: Final = "executable file not found"
"""What container runtimes say of an image that lacks the program to run."""


class Companion(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of its pod."""

    app: ClassVar[str]
    component: ClassVar[str]
    main: ClassVar[str]
    """The container that `container` is about."""

    cluster: str
    namespace: str
    prefix: str
    """What the names of the cluster's objects begin with."""
    replicas: int = 1
    pod: Mapping[str, Any] = {}
    container: Mapping[str, Any] = {}

    @property
    def name(self) -> str:
        """Of the Deployment and everything else that belongs to it."""
        return f"{self.prefix}{self.app}"

    @property
    def labels(self) -> dict[str, str]:
        return common.labels(self.app, self.cluster, self.component, cluster=self.cluster)

    @property
    def metadata(self) -> Manifest:
        return common.metadata(self.name, self.namespace, self.labels)

    def account(self) -> Manifest:
        return {"metadata": self.metadata, "automountServiceAccountToken": False}

    def deployment(self, pod: Manifest, *, annotations: Mapping[str, str] = EMPTY) -> Manifest:
        """Run `pod`, changed as asked, in at most one copy at a time: two would write the same files."""
        template = PodTemplate(metadata=TemplateMeta(annotations=dict(annotations)), spec=dict(self.pod))
        return {
            "metadata": self.metadata,
            "spec": {
                "replicas": self.replicas,
                "revisionHistoryLimit": 0,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": common.selector(self.labels)},
                "template": common.pod_template(
                    pod, self.labels, main=self.main, template=template, containers={self.main: self.container}
                ),
            },
        }


def probes(port: str) -> Manifest:
    """The probes of a process whose health is served at this port."""
    return {
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": port}, "periodSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": port}, "failureThreshold": 6},
    }
