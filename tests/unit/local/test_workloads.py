"""What add-ons consist of: manifests that hang together, and rights no wider than we mean."""

from typing import Any

import pytest
import yaml

from isthmus.errors import Terminal
from isthmus.local import crds, workloads
from isthmus.local.workloads import ADDONS, Addon

CONTROLLERS = [addon for addon in ADDONS.values() if addon.probe]


def objects(addon: Addon) -> list[Any]:
    return list(yaml.load_all(workloads.manifest(addon), yaml.CSafeLoader))


def of_kind(addon: Addon, ending: str) -> list[Any]:
    return [each for each in objects(addon) if each["kind"].endswith(ending)]


def test_every_addon_but_monitoring_has_a_definition_of_its_kind() -> None:
    assert set(ADDONS) == {*crds.DEFINITIONS, "monitoring"}


def test_addons_are_chosen_by_name_and_each_once() -> None:
    assert [addon.name for addon in workloads.chosen(["lws", "jobset", "lws"])] == ["lws", "jobset"]
    with pytest.raises(Terminal, match=r"no add-on kueue, volcano\n  → choose from: jobset, lws, podgroup"):
        workloads.chosen(["volcano", "jobset", "kueue"])


@pytest.mark.parametrize("addon", CONTROLLERS, ids=lambda addon: addon.name)
def test_rights_name_what_they_are_for(addon: Addon) -> None:
    for role in of_kind(addon, "Role"):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
            if "secrets" in rule["resources"]:
                assert role["kind"] == "Role", "secrets of other namespaces are none of its business"
            if "admissionregistration.k8s.io" in rule["apiGroups"] and "update" in rule["verbs"]:
                configured = {each["metadata"]["name"] for each in of_kind(addon, "WebhookConfiguration")}
                assert set(rule["resourceNames"]) == configured


@pytest.mark.parametrize("addon", CONTROLLERS, ids=lambda addon: addon.name)
def test_webhooks_lead_to_the_service_and_see_only_pods_of_the_workload(addon: Addon) -> None:
    (service,) = of_kind(addon, "Service")
    webhooks = [webhook for each in of_kind(addon, "WebhookConfiguration") for webhook in each["webhooks"]]
    assert len(webhooks) == 4
    for webhook in webhooks:
        target = webhook["clientConfig"]["service"]
        assert (target["name"], target["namespace"]) == (
            service["metadata"]["name"],
            service["metadata"]["namespace"],
        )
        if webhook["rules"][0]["resources"] == ["pods"]:
            assert webhook["objectSelector"]["matchExpressions"][0]["operator"] == "Exists"


@pytest.mark.parametrize("addon", CONTROLLERS, ids=lambda addon: addon.name)
def test_the_object_that_is_tried_is_of_the_kind_that_the_webhooks_judge(addon: Addon) -> None:
    group, _, version = yaml.load(addon.probe, yaml.CSafeLoader)["apiVersion"].partition("/")
    for configuration in of_kind(addon, "WebhookConfiguration"):
        rules = configuration["webhooks"][0]["rules"][0]
        assert (rules["apiGroups"], rules["apiVersions"]) == ([group], [version])
