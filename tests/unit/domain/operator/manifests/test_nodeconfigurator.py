"""What a NodeConfigurator becomes, field by field."""

from typing import Any

import msgspec
import pytest
import typer
from typer.main import get_command

from isthmus.cli.goflags import GoCommand
from isthmus.cli.rebooter import rebooter as command
from isthmus.domain.operator.manifests import nodeconfigurator as manifests
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.nodeconfigurator import NodeConfigurator

SETTINGS = Settings(isthmus_image="isthmus:1")

OF_SOPERATOR: dict[str, Any] = {
    "hostNetwork": True,
    "customContainer": {
        "enabled": False,
        "image": {"repository": "registry.example/busybox", "tag": "latest", "pullPolicy": "IfNotPresent"},
    },
    "rebooter": {
        "enabled": True,
        "evictionMethod": "evict",
        "image": {"repository": "registry.example/rebooter", "tag": "5.0.0", "pullPolicy": "IfNotPresent"},
        "serviceAccountName": "configurator-sa",
        "logLevel": "info",
        "logFormat": "json",
    },
    "initContainers": [
        {
            "name": "node-sysctl-params",
            "image": "registry.example/busybox",
            "securityContext": {"privileged": True, "runAsUser": 0},
            "command": ["/bin/sh", "-c", "sysctl -w net.core.rmem_max=536870912"],
        }
    ],
}
"""As Soperator's chart writes it."""


def made(**spec: Any) -> dict[str, Any]:
    wanted = {"metadata": {"name": "machines", "namespace": "ns"}, "spec": spec}
    manifest = manifests.daemonset(msgspec.convert(wanted, NodeConfigurator), settings=SETTINGS)
    assert manifest is not None
    return manifest


def pod(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = made(**spec)["spec"]["template"]["spec"]
    return found


def only(**spec: Any) -> dict[str, Any]:
    (container,) = pod(**spec)["containers"]
    found: dict[str, Any] = container
    return found


def test_by_itself_it_is_a_rebooter_on_every_machine() -> None:
    manifest = made()
    assert manifest["metadata"]["name"] == "machines-ds"
    assert manifest["metadata"]["labels"]["app.kubernetes.io/component"] == "node-configurator"
    spec = manifest["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%"}}
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    found = pod()
    assert (found["hostNetwork"], found["hostPID"], found["hostIPC"]) == (True, True, False)
    assert "shareProcessNamespace" not in found
    container = only()
    assert (container["name"], container["image"]) == ("rebooter", "isthmus:1")
    assert container["securityContext"]["privileged"] is True


def test_the_taint_of_the_rebooter_does_not_take_the_rebooter_away() -> None:
    own = {"key": "node.kubernetes.io/NoExecute", "operator": "Exists"}
    assert pod()["tolerations"] == [own]
    gpu = {"key": "gpu", "operator": "Exists"}
    assert pod(rebooter={"tolerations": [gpu]})["tolerations"] == [gpu, own]
    assert pod(rebooter={"tolerations": [own]})["tolerations"] == [own]


def test_a_manifest_of_soperator_is_taken_as_it_is() -> None:
    container = only(**OF_SOPERATOR)
    assert container["image"] == "registry.example/rebooter:5.0.0"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert {"name": "REBOOTER_EVICTION_METHOD", "value": "evict"} in container["env"]
    found = pod(**OF_SOPERATOR)
    assert found["serviceAccountName"] == "configurator-sa"
    assert found["automountServiceAccountToken"] is True
    assert found["initContainers"] == OF_SOPERATOR["initContainers"]


def test_the_command_takes_the_arguments() -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command(cls=GoCommand)(command)
    parser = get_command(app)
    for spec in ({}, {"rebooter": {"logLevel": "warn", "logFormat": "plain", "evictionMethod": "drain"}}):
        container = only(**spec)
        name, *arguments = container["args"]
        assert name == "rebooter"
        parser.make_context("rebooter", ["--node-name=n1", *arguments])


def test_variables_of_the_user_reach_the_rebooter_and_cannot_name_another_node() -> None:
    given = [{"name": "REBOOTER_COMMAND", "value": "kernel"}, {"name": "REBOOTER_NODE_NAME", "value": "other"}]
    found = only(rebooter={"env": given})["env"]
    assert found[0] == given[0]
    (node,) = [it for it in found if it["name"] == "REBOOTER_NODE_NAME"]
    assert node["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_a_container_of_the_user_has_no_power_and_no_token() -> None:
    spec = {
        "rebooter": {"enabled": False},
        "shareProcessNamespace": True,
        "hostNetwork": False,
        "customContainer": {
            "enabled": True,
            "name": "tuner",
            "image": {"repository": "registry.example/tuner"},
            "command": ["tune"],
            "env": [{"name": "LEVEL", "value": "9"}],
            "resources": {"limits": {"memory": "64Mi"}},
            "nodeSelector": {"pool": "gpu"},
            "priorityClassName": "low",
            "hostUsers": False,
            "readinessProbe": {"exec": {"command": ["true"]}},
        },
    }
    container, found = only(**spec), pod(**spec)
    assert (container["name"], container["image"], container["command"]) == (
        "tuner",
        "registry.example/tuner",
        ["tune"],
    )
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "hostPID" not in found
    assert found["automountServiceAccountToken"] is False
    assert "tolerations" not in found
    wanted = {
        "shareProcessNamespace": True,
        "hostNetwork": False,
        "nodeSelector": {"pool": "gpu"},
        "priorityClassName": "low",
        "hostUsers": False,
    }
    assert wanted.items() <= found.items()


def test_with_neither_there_is_no_daemonset() -> None:
    wanted = {"metadata": {"name": "machines"}, "spec": {"rebooter": {"enabled": False}}}
    assert manifests.daemonset(msgspec.convert(wanted, NodeConfigurator), settings=SETTINGS) is None


@pytest.mark.parametrize(
    ("image", "pulled"),
    [
        ({}, "IfNotPresent"),
        ({"repository": "r/x", "tag": "1"}, "IfNotPresent"),
        ({"repository": "r:5000/x"}, "Always"),
        ({"repository": "r/x", "tag": "latest"}, "Always"),
        ({"repository": "r/x@sha256:1"}, "IfNotPresent"),
        ({"repository": "r/x", "tag": "1", "pullPolicy": "Never"}, "Never"),
    ],
)
def test_it_says_when_its_image_is_pulled_as_kubernetes_would(image: dict[str, str], pulled: str) -> None:
    """Left to Kubernetes, what goes for one image would go for the next one, too."""
    assert only(rebooter={"image": image})["imagePullPolicy"] == pulled
