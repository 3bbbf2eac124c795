"""Empty maps are left out as far down as a type knows them."""

from typing import Any

from isthmus.domain.kube.emptymaps import pruned
from isthmus.model.objects import Workload
from isthmus.model.slinky import NodeSet


def test_maps_that_hold_nothing_are_not_named() -> None:
    spec = {"replicas": 0, "template": {"spec": {}, "metadata": {"labels": {}}}, "slurmd": {}, "extraConf": ""}
    manifest = {"metadata": {"name": "w", "labels": {}}, "spec": spec}
    assert pruned(NodeSet, manifest) == {"metadata": {"name": "w"}, "spec": {"replicas": 0, "extraConf": ""}}


def test_what_is_passed_on_unread_stays_as_it_is() -> None:
    volume: dict[str, Any] = {"volume": {"emptyDir": {}}}
    pod = {"volumes": [{"name": "v", "emptyDir": {}}], "securityContext": {}}
    spec = {"sharedRoot": volume, "template": {"spec": pod}}
    assert pruned(NodeSet, {"spec": spec}) == {"spec": spec}
    unknown: dict[str, Any] = {"spec": {"selector": {}, "template": {"spec": {}}}}
    assert pruned(Workload, unknown) == unknown
