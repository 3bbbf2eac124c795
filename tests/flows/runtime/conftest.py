"""The client, namespace and proxy of the Kubernetes flows, for the machinery on top of them."""

from tests.flows.kube.conftest import client, namespace, through

__all__ = ["client", "namespace", "through"]
