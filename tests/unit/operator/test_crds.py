"""The definitions of our kinds, as values."""

from typing import Any

import pytest

from isthmus.kube.crd import Conversion
from isthmus.model.activecheck import ACTIVE_CHECKS
from isthmus.model.health import HEALTH_POLICIES, NODE_HEALTHS
from isthmus.model.jailedconfig import JAILED_CONFIGS
from isthmus.model.nodeconfigurator import NODE_CONFIGURATORS
from isthmus.model.powerstate import POWER_STATES
from isthmus.operator import crds
from isthmus.operator.webhook import KINDS

CONVERSION = Conversion(namespace="isthmus", service="webhook")


def by_name(**options: Any) -> dict[str, dict[str, Any]]:
    return {made["metadata"]["name"]: made["spec"] for made in crds.definitions(**options)}


def test_every_kind_has_a_definition() -> None:
    # The webhook has nothing to add to what the definitions of these refuse by themselves.
    checks = (ACTIVE_CHECKS, NODE_CONFIGURATORS, HEALTH_POLICIES, NODE_HEALTHS)
    kinds = (*KINDS, JAILED_CONFIGS, POWER_STATES, *checks)
    assert set(by_name()) == {f"{kind.plural}.{kind.group}" for kind in kinds}


@pytest.mark.parametrize("name", sorted(by_name()))
def test_every_kind_has_columns_a_status_and_a_place_among_the_others(name: str) -> None:
    spec = by_name()[name]
    (version,) = spec["versions"]
    assert "status" in version["subresources"]
    assert version["additionalPrinterColumns"][0]["name"] != "Age"
    assert "Age" in [column["name"] for column in version["additionalPrinterColumns"]]
    assert spec["names"]["categories"] == ["slurm"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    if name != f"{NODE_HEALTHS.plural}.{NODE_HEALTHS.group}":  # a record that nobody but us writes
        assert {"conditions", "observedGeneration"} <= set(status)


def test_the_short_form_is_served_only_where_it_can_be_converted() -> None:
    for spec in by_name().values():
        assert "conversion" not in spec
    converted = {name for name, spec in by_name(conversion=CONVERSION).items() if len(spec["versions"]) == 2}
    assert converted == set(crds.converted())
    for name in converted:
        spec = by_name(conversion=CONVERSION)[name]
        assert [(version["name"], version["storage"]) for version in spec["versions"]] == [
            ("v1beta1", True),
            ("v1alpha1", False),
        ]


def test_no_two_kinds_share_a_short_name() -> None:
    short = [name for spec in by_name().values() for name in spec["names"].get("shortNames", ())]
    assert len(short) == len(set(short))


def test_every_column_leads_to_a_field() -> None:
    for name, spec in by_name(conversion=CONVERSION).items():
        for version in spec["versions"]:
            root = version["schema"]["openAPIV3Schema"]
            for column in version["additionalPrinterColumns"]:
                steps = column["jsonPath"].partition("[")[0].strip(".").split(".")
                found = root
                for step in steps if steps[0] != "metadata" else ():
                    assert step in found["properties"], (name, version["name"], column["jsonPath"])
                    found = found["properties"][step]
