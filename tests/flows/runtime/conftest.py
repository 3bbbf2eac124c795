"""The client, namespace and proxy of the Kubernetes flows, for the machinery on top of them."""

from tests.flows.kube.conftest import client, config, namespace, through

__all__ = ["client", "config", "namespace", "through"]
