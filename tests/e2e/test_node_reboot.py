"""A machine of the local cluster is really rebooted, by its rebooter and from inside."""

import json
from datetime import UTC, datetime
from typing import Any

from isthmus import names
from isthmus.local import lifecycle
from tests.bed.operator_ground import CHARTS, OperatorGround
from tests.e2e.pods import pod

CONFIGURATOR = "nodeconfigurator/machines"


def reason(ground: OperatorGround, node: str, type_: str) -> str:
    held = ground.get(f"node/{node}", "")["status"]["conditions"]
    return next((str(it["reason"]) for it in held if it["type"] == type_), "")


def test_a_machine_reboots_and_comes_back_while_others_go_on(operator_ground: OperatorGround) -> None:
    ground, cluster = operator_ground, operator_ground.cluster
    other, *_, rebooted = cluster.workers
    with ground.namespace("reboot-test") as namespace:
        where = f"--namespace={namespace}"
        # There is no systemd in these machines: the kernel is asked.
        command = "--set=rebooter.rebootCommand=kernel"
        ground.helm("install", "machines", str(CHARTS / "nodeconfigurator"), where, command)
        try:
            ground.ready(CONFIGURATOR, namespace)
            pods = f"{pod('goes', node=rebooted)}\n---\n{pod('stays', node=other)}"
            ground.kubectl("apply", where, "--filename=-", stdin=pods)
            ground.kubectl("wait", where, "--for=condition=Ready", "--timeout=180s", "pod/goes", "pod/stays")
            inits = {it.name: it.machine.init for it in cluster.cluster.nodes}
            before = ground.get(f"node/{rebooted}", "")
            asked = {
                "type": names.NODE_REBOOT_CONDITION,
                "status": "True",
                "reason": "NodeNeedReboot",
                "message": "a test asks for it",
                "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            patch = json.dumps({"status": {"conditions": [asked]}})
            ground.kubectl("patch", "node", rebooted, "--subresource=status", f"--patch={patch}")
            ground.eventually(
                lambda: reason(ground, rebooted, names.NODE_REBOOT_CONDITION),
                "the machine to be rebooted",
                holds=lambda it: it == "NodeRebooted",
                namespace=namespace,
            )
            after = {it.name: it.machine.init for it in cluster.cluster.nodes}
            assert [name for name in inits if inits[name] != after[name]] == [rebooted]
            ground.eventually(lambda: cluster.node_ready(rebooted), "the node", holds=lambda it: it == "True")
            node = ground.eventually(
                lambda: ground.get(f"node/{rebooted}", ""),
                "the node to be as before",
                holds=lambda it: names.REBOOTER_ANNOTATION not in it["metadata"].get("annotations", {}),
            )
            assert node["metadata"]["uid"] == before["metadata"]["uid"]
            assert not node["spec"].get("unschedulable")
            assert names.EVICTION_TAINT not in {it["key"] for it in node["spec"].get("taints", [])}
            assert reason(ground, rebooted, names.NODE_DRAIN_CONDITION) == "NodeUndrained"
            left: dict[str, Any] = {it["metadata"]["name"]: it for it in ground.get("pods", namespace)["items"]}
            assert "goes" not in left, "the taint took it away"
            assert left["stays"]["status"]["containerStatuses"][0]["restartCount"] == 0
            # The same by hand, from outside.
            lifecycle.reboot_node(cluster.name, rebooted)
            assert cluster.cluster.node(rebooted).machine.init not in {None, after[rebooted]}
            ground.ready(CONFIGURATOR, namespace)
            assert reason(ground, rebooted, names.NODE_REBOOT_CONDITION) == "NodeRebooted"
        finally:
            ground.helm("uninstall", "machines", where)
