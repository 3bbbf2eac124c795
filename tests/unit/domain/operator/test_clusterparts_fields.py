"""No field is silently ignored: whatever a user sets changes the parts, is refused, or is named."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from isthmus.domain.operator.clusterparts import nodeset_part, parts_of
from isthmus.domain.operator.manifests.common import Settings
from isthmus.model.soperator import NodeSet, NodeSetSpec, SlurmCluster, SlurmClusterSpec

EXEMPT = {
    "crVersion",  # for people
    "maintenance",  # has tests of its own
    "slurmNodes.rest.enabled",  # there is always one
    "slurmNodes.accounting.mariadbOperator.enabled",  # as there is where no other database is named
}

BASES: dict[str, dict[str, Any]] = {
    "accounting": {"slurmNodes": {"accounting": {"enabled": True}, "worker": {"size": 1}}},
    "external": {
        "slurmNodes": {
            "accounting": {
                "enabled": True,
                "externalDB": {"enabled": True, "host": "db", "passwordSecretKeyRef": {"name": "p", "key": "k"}},
            }
        }
    },
    "structured": {
        "partitionConfiguration": {"configType": "structured", "partitions": [{"name": "a", "isAll": True}]}
    },
    "custom": {"partitionConfiguration": {"configType": "custom", "rawConfig": ["PartitionName=a Nodes=ALL"]}},
    "metrics": {"slurmNodes": {"controller": {"openMetrics": {"enabled": True}}}},
    "exporter": {"slurmNodes": {"exporter": {"enabled": True}, "accounting": {"enabled": True}}},
    "balancer": {"slurmNodes": {"login": {"sshdServiceType": "LoadBalancer"}}},
    "pmix": {"customSlurmConfig": "MpiDefault=pmix\n"},
    "health": {
        "healthCheckConfig": {
            "healthCheckInterval": 1,
            "healthCheckProgram": "/usr/bin/true",
            "healthCheckNodeState": [{"state": "ANY"}],
        }
    },
}
SAMPLES: dict[str, Any] = {
    "partitionConfiguration.configType": "custom",
    "secrets.sshdKeysName": "keys",
    "slurmConfig.prolog": "/usr/bin/true",
    "users": [{"name": "alice", "uid": 1001}],
    "k8sNodeFilters": None,  # matters when somebody refers to it
    "volumeSources": [{"name": "jail", "emptyDir": {}}],
    "slurmNodes.accounting.mariadbOperator.storage": {"size": "1Gi"},
    "slurmNodes.accounting.mariadbOperator.replicas": 2,
}


def leaves(type_: inspect.Type, path: str = "") -> Iterator[tuple[str, inspect.Type]]:
    """Go through every field, down to those that hold no further ones."""
    if isinstance(type_, inspect.Metadata):
        yield from leaves(type_.type, path)
    elif isinstance(type_, inspect.UnionType):
        (inner,) = [it for it in type_.types if not isinstance(it, inspect.NoneType)][:1]
        yield from leaves(inner, path)
    elif isinstance(type_, inspect.StructType) and type_.fields:
        for field in type_.fields:
            yield from leaves(field.type, f"{path}.{field.encode_name}".lstrip("."))
    else:
        yield path, type_


def sample(type_: inspect.Type) -> Any:  # noqa: PLR0911 - one for each kind of type
    """Make a value that is not the default one."""
    match type_:
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return (type_.ge or 0) + 61
        case inspect.StrType():
            return (
                "30m" if "ms" in (type_.pattern or "") else "/x" if (type_.pattern or "").startswith("^/") else "x1"
            )
        case inspect.LiteralType():
            return min(map(str, type_.values))
        case inspect.DictType():
            return {"cpu": "1"}
        case inspect.VarTupleType():
            inner = type_.item_type.type if isinstance(type_.item_type, inspect.Metadata) else type_.item_type
            return [needed(inner)]
        case _:
            return "x1"


def needed(type_: inspect.Type) -> Any:
    """Make an element of a list: a struct with what it must have."""
    if isinstance(type_, inspect.StructType):
        made = {field.encode_name: sample(_bare(field.type)) for field in type_.fields if field.required}
        return made or {"name": "x1"}
    return {"name": "x1", "path": "x.so"} if isinstance(type_, inspect.DictType) else sample(type_)


def _bare(type_: inspect.Type) -> inspect.Type:
    return type_.type if isinstance(type_, inspect.Metadata) else type_


def placed(spec: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec))
    place = made
    *above, last = path.split(".")
    for name in above:
        place = place.setdefault(name, {})
    place[last] = value
    return made


def outcome(spec: dict[str, Any]) -> Any:
    cluster = msgspec.convert({"metadata": {"name": "demo", "namespace": "hpc"}, "spec": spec}, SlurmCluster)
    return parts_of(cluster, prefix="", settings=Settings())


FIELDS = {path: type_ for path, type_ in leaves(inspect.type_info(SlurmClusterSpec)) if path not in EXEMPT}


@pytest.mark.parametrize("path", [path for path in FIELDS if SAMPLES.get(path, "") is not None])
def test_a_field_of_a_cluster_has_an_effect_or_is_named(path: str) -> None:
    value = SAMPLES.get(path, sample(FIELDS[path]))
    tried = []
    for base in BASES.values():
        try:
            after = outcome(placed(base, path, value))
        except msgspec.ValidationError as error:
            tried.append(str(error))
            continue
        if after != outcome(base):
            return
        tried.append("no difference")
    pytest.fail(f"spec.{path} = {value!r} changes nothing, and nobody says so ({set(tried)})")


def nodeset_outcome(spec: dict[str, Any]) -> Any:
    nodeset = msgspec.convert({"metadata": {"name": "cpu", "namespace": "hpc"}, "spec": spec}, NodeSet)
    cluster = SlurmCluster(metadata=msgspec.convert({"name": "demo", "namespace": "hpc"}, type(nodeset.metadata)))
    files = parts_of(cluster, [nodeset], prefix="", settings=Settings())
    return nodeset_part(nodeset, cluster, prefix=""), files


NODESET_FIELDS = dict(leaves(inspect.type_info(NodeSetSpec)))
ELSEWHERE = {"clusterName", "updateStrategy"}
"""The first says which cluster; of the second, both values mean the same, and the reference says so."""

NODESET_SAMPLES: dict[str, Any] = {
    "autoscale.budget.nodeHoursPerDay": 25,
    "autoscale.schedule": [{"from": "08:00", "to": "18:00"}],
}


@pytest.mark.parametrize("path", [path for path in NODESET_FIELDS if path not in ELSEWHERE])
def test_a_field_of_a_nodeset_has_an_effect_or_is_named(path: str) -> None:
    value = NODESET_SAMPLES.get(path, sample(NODESET_FIELDS[path]))
    base: dict[str, Any] = {"slurmd": {"image": {"repository": "x"}}}
    if path.startswith("autoscale."):
        base |= {"ephemeralNodes": True, "autoscale": {"budget": {"nodeHoursPerDay": 24}}}
    assert nodeset_outcome(placed(base, path, value)) != nodeset_outcome(base)
