"""NodeConfigurators on a real API server, and the chart that brings one with the rights of its rebooters."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client, path
from isthmus.kube.config import load
from isthmus.kube.errors import Forbidden
from isthmus.model.lease import LEASES
from isthmus.model.meta import Key
from isthmus.model.node import NODES
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.objects import DAEMONSETS
from isthmus.model.pod import PODS
from isthmus.operator.nodeconfigurators import NodeConfiguratorSync
from tests.bed.control_plane import ControlPlaneBed
from tests.flows.bridge.test_chart import Helm, helm_program
from tests.flows.kube.conftest import ACCOUNTS, pod
from tests.flows.kube.waiting import eventually
from tests.flows.operator.nodesets_bed import PLACES
from tests.flows.operator.parts_bed import LIMIT, Bed, a_minute_later, working
from tests.unit.domain.operator.manifests.test_nodeconfigurator import OF_SOPERATOR

__all__ = ["helm_program"]

CHART = Path(__file__).parents[3] / "charts" / "nodeconfigurator"


@pytest.fixture
async def bed(control_plane: ControlPlaneBed, kube: Client, namespace: str) -> AsyncIterator[Bed]:
    del kube  # which has the kinds installed
    async with working(control_plane, namespace, NodeConfiguratorSync, now=a_minute_later) as bed:
        yield bed


def here(bed: Bed) -> dict[str, str]:
    """Select the nodes of this test; others have theirs in the same Kubernetes."""
    return {PLACES: bed.namespace}


async def test_a_manifest_of_soperator_becomes_a_daemonset_which_is_reported_and_goes_with_it(bed: Bed) -> None:
    node = await bed.kube.create(NODES, {"metadata": {"name": f"n-{bed.namespace}", "labels": here(bed)}})
    # New nodes are taken to be not ready, until a kubelet says otherwise.
    await bed.kube.merge_patch(NODES, node.metadata.key, {"spec": {"taints": None}})
    spec = {**OF_SOPERATOR, "rebooter": {**OF_SOPERATOR["rebooter"], "nodeSelector": here(bed)}}
    account = {"metadata": bed.meta("configurator-sa")}
    await bed.kube.create(ACCOUNTS, account)
    await bed.make(NODE_CONFIGURATORS, "machines", **spec)
    await bed.there(bed.world.daemonsets, "machines-ds")
    made = await bed.raw(DAEMONSETS, "machines-ds")
    assert made["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "20%"
    assert made["spec"]["template"]["spec"]["hostPID"] is True
    there = bed.world.node_configurators
    await bed.until(there, "machines", "Ready", "False", saying="pod machines-ds-")
    await eventually(lambda: (it := there.get(bed.key("machines"))) and it.status.desired == 1)
    (only,) = (await bed.kube.list(PODS, namespace=bed.namespace)).items
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await bed.kube.merge_patch(PODS, only.metadata.key, {"status": ready}, subresource="status")
    await bed.until(there, "machines", "Ready", "True", saying="1 of 1 pods are ready")
    await bed.quiet()
    before = list(bed.writes)
    await bed.quiet()
    assert bed.writes == before
    await bed.kube.merge_patch(NODE_CONFIGURATORS, bed.key("machines"), {"spec": {"rebooter": {"enabled": False}}})
    await bed.until(there, "machines", "Ready", "True", saying="neither rebooter nor customContainer is enabled")
    await bed.gone(DAEMONSETS, "machines-ds")


async def test_without_an_account_it_says_what_is_missing_and_a_refusal_is_told(bed: Bed) -> None:
    nowhere = {"nodeSelector": {"nowhere": "yes"}}
    await bed.make(NODE_CONFIGURATORS, "bare", rebooter=nowhere)
    there = bed.world.node_configurators
    await bed.until(there, "bare", "Degraded", "True", saying="rebooter.serviceAccountName is empty")
    await bed.there(bed.world.daemonsets, "bare-ds")
    await bed.make(NODE_CONFIGURATORS, "wrong", rebooter={**nowhere, "resources": {"requests": {"cpu": "much"}}})
    await bed.until(there, "wrong", "Degraded", "True", saying="quantities")


async def token_on(kube: Client, key: Key, *, bound_to: str) -> str:
    """Get the token that a pod of an account has."""
    uid = (await kube.get(PODS, Key(key.namespace, bound_to))).metadata.uid
    ref = {"apiVersion": "v1", "kind": "Pod", "name": bound_to, "uid": uid}
    body = {"spec": {"expirationSeconds": 600, "boundObjectRef": ref}}
    answer = await kube.send("POST", path(ACCOUNTS, key, "token"), body=json.dumps(body).encode())
    return str(json.loads(answer)["status"]["token"])


async def test_the_account_of_a_rebooter_changes_its_own_node_and_no_other(
    control_plane: ControlPlaneBed, kube: Client, namespace: str, *, helm_program: Path, tmp_path: Path
) -> None:
    mine, other = f"mine-{namespace}", f"other-{namespace}"
    for name in (mine, other):
        await kube.create(NODES, {"metadata": {"name": name, "labels": {PLACES: namespace}}})
    helm = Helm(helm_program, tmp_path, control_plane.kubeconfig)
    values = yaml.safe_dump(
        {
            "fullnameOverride": namespace,
            "rebooter": {
                "evictionMethod": "drain",
                "maxConcurrentReboots": 2,
                "priorityClass": {"create": False},
                "nodeSelector": {"nowhere": "yes"},
            },
        }
    )
    words = ("upgrade", "--install", "machines", str(CHART), "--namespace", namespace)
    done = await asyncio.to_thread(helm.run, *words, values=values)
    assert done.returncode == 0, done.stderr
    try:
        await kube.create(PODS, pod(namespace, "rebooter", nodeName=mine, serviceAccountName="machines-sa"))
        config = load(control_plane.kubeconfig)
        token = await token_on(kube, Key(namespace, "machines-sa"), bound_to="rebooter")
        own = type(config)(config.server, Fixed.token(token), ca=config.ca)
        async with Client(own) as rebooter:
            await _until_refused(rebooter, other)
            await rebooter.merge_patch(NODES, Key("", mine), {"spec": {"unschedulable": True}})
            told = {"status": {"conditions": [{"type": "SlurmNodeDrain", "status": "True"}]}}
            await rebooter.merge_patch(NODES, Key("", mine), told, subresource="status")
            with pytest.raises(Forbidden, match="and no other"):
                await rebooter.merge_patch(NODES, Key("", other), told, subresource="status")
            await rebooter.list(PODS, fields=f"spec.nodeName={mine}")
            for lease in ("isthmus-reboot", "isthmus-reboot-2"):
                await rebooter.create(LEASES, {"metadata": {"namespace": namespace, "name": lease}, "spec": {}})
                await rebooter.merge_patch(LEASES, Key(namespace, lease), {"spec": {"holderIdentity": mine}})
            with pytest.raises(Forbidden):
                await rebooter.get(LEASES, Key(namespace, "isthmus-reboot-3"))
            with pytest.raises(Forbidden):
                await rebooter.raw(f"/api/v1/nodes/{mine}/proxy/pods")
            with pytest.raises(Forbidden):
                await rebooter.delete(NODES, Key("", mine))
            await rebooter.evict(Key(namespace, "rebooter"))
        assert (await kube.get(NODES, Key("", mine))).spec.unschedulable
        assert not (await kube.get(NODES, Key("", other))).spec.unschedulable
        made = await kube.get(NODE_CONFIGURATORS, Key(namespace, "machines"))
        assert made.spec.rebooter.service_account_name == "machines-sa"
        given: list[Any] = list(made.spec.rebooter.env)
        assert given == [{"name": "REBOOTER_MAX_CONCURRENT", "value": "2"}]
    finally:
        command = [str(helm_program), "uninstall", "machines", "--namespace", namespace]
        await asyncio.to_thread(subprocess.run, command, env=helm._environment, check=True, capture_output=True)


async def _until_refused(rebooter: Client, other: str) -> None:
    """Wait until the API server goes by the rights, and by the policy, which it hears of later."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                await rebooter.merge_patch(NODES, Key("", other), {"metadata": {"labels": {"tried": "yes"}}})
            except Forbidden as error:
                if "and no other" in error.what:
                    return
            await asyncio.sleep(0.05)


def test_values_of_soperator_are_taken_and_bad_ones_are_refused(helm_program: Path, tmp_path: Path) -> None:
    helm = Helm(helm_program, tmp_path)
    values = """
hostNetwork: true
customContainer: {enabled: false, env: [], image: {repository: r/busybox, tag: latest, pullPolicy: IfNotPresent},
  command: [/bin/sh, -c, sleep, infinity], nodeSelector: {}, resources: {}, livenessProbe: {}, readinessProbe: {},
  tolerations: [], affinity: {}, priorityClassName: "", serviceAccountName: ""}
rebooter: {enabled: true, generateRBAC: true, evictionMethod: evict, logLevel: info, logFormat: json, env: [],
  image: {repository: r/rebooter, tag: 5.0.0, pullPolicy: IfNotPresent}, nodeSelector: {}, resources: {},
  livenessProbe: {}, readinessProbe: {}, tolerations: [], affinity: {}, priorityClassName: "",
  priorityClass: {create: true, name: "", value: 100000, description: low}, serviceAccountName: ""}
initContainers: [{name: node-sysctl-params, image: r/busybox, command: [sysctl, -w, a=1]}]
serviceMonitor: {enabled: true, jobLabel: rebooter, interval: 30s, scrapeTimeout: 28s}
"""
    done = helm.run("template", "one", str(CHART), values=values)
    assert done.returncode == 0, done.stderr
    found = {it["kind"]: it for it in yaml.load_all(done.stdout, yaml.CSafeLoader) if it}
    assert found["NodeConfigurator"]["spec"]["rebooter"]["image"]["tag"] == "5.0.0"
    assert found["PriorityClass"]["value"] == 100000
    assert "ServiceMonitor" not in found
    for wrong, expected in (
        ("rebooter: {evictionMethod: kill}", "evictionMethod"),
        ("rebooter: {maxConcurrentReboots: 0}", "maxConcurrentReboots"),
        ("rebooter: {priorityClass: {value: 200000}}", "value"),
        ("reboot: {}", "reboot"),
    ):
        refused = helm.run("template", "one", str(CHART), values=wrong)
        assert refused.returncode
        assert expected in refused.stderr
    assert not helm.run("lint", "--strict", str(CHART)).returncode
