"""Every optional field of a kind with a valid value for it, found from the types: no field can be forgotten.

    Trial(path="SlurmCluster.slurm:slurmNodes.worker.maxUnavailable", with_it={…}, without_it={…})

Both are whole specifications, made from one that works. What only a reader knows, such as the name of a node filter
that exists, stands in `_SAMPLES`.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import NODEFAULT
from msgspec import inspect as types

from isthmus.model.base import Kind
from tests.unit.operator.manifests import ED25519

Spec = dict[str, Any]

_FREE_FORM = "x-kubernetes-preserve-unknown-fields"
_RELABELING: Final = [{"action": "labeldrop", "regex": "some"}]
_PROBE = {"periodSeconds": 7}
_POD = {"nodeSelector": {"example.org/kind": "some"}}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_EMPTY_DIR: Spec = {"emptyDir": {}}
_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "example.org/kind", "operator": "Exists"}]}]
        }
    }
}

_SAMPLES: Final[Mapping[str, Any]] = {
    # By the end of the path; the longest that fits counts.
    "accessModes": ["ReadWriteOnce"],
    "affinity": _AFFINITY,
    "autoscale": {"max": 1},
    "autoscale.budget": {"nodeHoursPerDay": 24},
    "autoscale.schedule": [{"from": "08:00", "to": "18:00", "max": 1}],
    "autoscale.budget.timeZone": "Europe/Berlin",
    "autoscale.schedule[].timeZone": "Europe/Berlin",
    "appArmorProfile": "unconfined",
    "args": ["--verbose"],
    "clusterName": "one",
    "command": ["/bin/true"],
    "configFileRefs": [{"name": "some-files"}],
    "prologScriptRefs": [{"name": "some-files"}],
    "epilogScriptRefs": [{"name": "some-files"}],
    "prologSlurmctldScriptRefs": [{"name": "some-files"}],
    "epilogSlurmctldScriptRefs": [{"name": "some-files"}],
    "extraConf": "Weight=7",
    "gresConfig": ["Name=gpu Count=1"],
    "topologyPlugin": "topology/tree",
    "service.spec": {"sessionAffinity": "ClientIP"},
    "controllerRef.name": "one",
    "crVersion": "1.0.0",
    "customCgroupConfig": "ConstrainSwapSpace=no\n",
    "customEnv": [{"name": "EXAMPLE", "value": "x"}],
    "customInitContainers": [{"name": "init", "image": "example.org/init:1", "command": ["true"]}],
    "customPlugins": [{"path": "/usr/lib/example.so", "required": False}],
    "customSlurmConfig": "ReturnToService=1\n",
    "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"},
    "dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "other"},
    "debugFlags": "DB_QUERY",
    "extraSshdConfig": "MaxSessions 7\n",
    "image": "example.org/image:1",
    "initconf": {"image": "example.org/image:1"},
    "k8sNodeFilterName": "some",
    "livenessProbe": _PROBE,
    "logfile": {"image": "example.org/image:1"},
    "LoginSet.slinky:login": {"image": "example.org/image:1"},
    "maxUnavailable": "20%",
    "mountPath": "/mnt/example",
    "mpiConfig.pmixEnv": "OMPI_MCA_btl_tcp_if_include=eth1",
    "nodePort": 0,
    "nodeSelector": {"example.org/kind": "some"},
    "partition.config": "MaxTime=60",
    "partitions[].config": "MaxTime=60",
    "podSecurityContext": {"fsGroup": 999},
    "privateData": "jobs",
    "readinessProbe": _PROBE,
    "reconfigure": {"image": "example.org/image:1"},
    "resources": {"cpu": "2", "memory": "2Gi"},
    "persistence.resources": {"requests": {"storage": "2Gi"}},
    "Accounting.slinky:database.resources": {"requests": {"cpu": "2", "memory": "2Gi"}},
    "rootSshAuthorizedKeys": f"{ED25519}\n",
    "securityContext": {"runAsUser": 999},
    "selector": {"matchLabels": {"example.org/kind": "some"}},
    "sharedRoot": {"volume": {"persistentVolumeClaim": {"claimName": "root"}}},
    "slurmctld": {"image": "example.org/image:1"},
    "slurmd": {"image": "example.org/image:1"},
    "slurmdbd": {"image": "example.org/image:1"},
    "slurmrestd": {"image": "example.org/image:1"},
    "sshPublicKeys": [ED25519],
    "startTime": "2030-01-01T00:00:00Z",
    "strategy": {"type": "Recreate"},
    "template.spec": _POD,
    "tolerations": [{"key": "example.org/kind", "operator": "Exists"}],
    "volumeSource": _EMPTY_DIR,
    "volumeSourceName": "data",
    "volumeClaimTemplateSpec": _CLAIM,
    "volume": _EMPTY_DIR,
    "volumeSources": [{"name": "data", "emptyDir": {}}, {"name": "more", "emptyDir": {}}],
    "jailSnapshotVolume": {"volumeSourceName": "data"},
    "customMounts": [{"name": "some", "mountPath": "/mnt/some", "volumeSourceName": "data"}],
    "SlurmCluster.slurm:slurmNodes.worker.volumes.jailSubMounts": [
        {"name": "some", "mountPath": "/mnt/some", "volumeSourceName": "data"}
    ],
    "SlurmCluster.slurm:slurmNodes.login.volumes.jailSubMounts": [
        {"name": "some", "mountPath": "/mnt/some", "volumeSourceName": "data"}
    ],
    "NodeSet.slurm:slurmd.volumes.jailSubMounts": [
        {"name": "some", "mountPath": "/mnt/some", "volumeSource": _EMPTY_DIR}
    ],
    "NodeSet.slurm:slurmd.volumes.customVolumeMounts": [
        {"name": "some", "mountPath": "/mnt/some", "volumeSource": _EMPTY_DIR}
    ],
    "NodeSet.slurm:slurmd": {"image": {"repository": "example.org/image"}},
    "NodeSet.slurm:slurmd.image": {"repository": "example.org/image"},
    "NodeSet.slurm:munge.image": {"repository": "example.org/image"},
    "NodeSet.slurm:sssd.image": {"repository": "example.org/image"},
    "NodeSet.slurm:slurmd.volumes.spool": _EMPTY_DIR,
    "NodeSet.slurm:slurmd.volumes.jail": _EMPTY_DIR,
    "NodeSet.slurm:nodeConfig.static": "Weight=7",
    "NodeConfigurator.slurm:rebooter.env": [{"name": "EXAMPLE", "value": "x"}],
    "NodeConfigurator.slurm:customContainer.env": [{"name": "EXAMPLE", "value": "x"}],
    "NodeConfigurator.slurm:initContainers": [{"name": "init", "image": "example.org/init:1"}],
    "NodeConfigurator.slurm:rebooter.image": {"repository": "example.org/image"},
    "NodeConfigurator.slurm:customContainer.image": {"repository": "example.org/image"},
    "NodeConfigurator.slurm:rebooter.resources": {"requests": {"cpu": "20m"}},
    "NodeConfigurator.slurm:customContainer.resources": {"requests": {"cpu": "20m"}},
    "rawConfig": ["PartitionName=some Nodes=ALL"],
    "sshdServiceNodePort": 31022,
    "partitionConfiguration": {"configType": "custom", "rawConfig": ["PartitionName=some Nodes=ALL"]},
    "replication": {"enabled": True},
    "storage": {"size": "2Gi"},
    "podMonitorConfig": {"jobLabel": "some"},
    "scrapeTimeout": "10s",
    "relabelConfig": _RELABELING,
    "metricRelabelConfigs": _RELABELING,
    "metricRelabelings": _RELABELING,
    "exporter.exporter": {"image": "example.org/image:1"},
    "exporter.munge": {"image": "example.org/image:1"},
    "exporter.volumes": {"jail": {"volumeSourceName": "data"}},
    "pyxis": {"required": False},
    "ncclDebug": {"enabled": True},
    "ncclInspectorPreConf": {"enabled": True},
    "volumeClaimTemplates": [{"metadata": {"name": "scratch"}, "spec": _CLAIM}],
}


class Trial(NamedTuple):
    """A field that is set and unset again; both specifications are whole."""

    kind: Kind[Any]
    path: str
    with_it: Spec
    without_it: Spec


class _Step(NamedTuple):
    name: str
    in_list: bool
    needs: Spec
    """What has to stand beside the next step, wherever this one is made for it."""


def trials(kind: Kind[Any], base: Spec) -> Iterator[Trial]:
    """Go through every optional field below `spec` of a kind; `base` is a specification that works."""
    whole = types.type_info(kind.type)
    assert isinstance(whole, types.StructType)
    spec, _ = _plain(next(it.type for it in whole.fields if it.encode_name == "spec"))
    yield from _within(kind, base, spec, f"{kind.name}.{kind.group.partition('.')[0]}:", ())


def _within(kind: Kind[Any], base: Spec, info: types.Type, path: str, above: tuple[_Step, ...]) -> Iterator[Trial]:
    assert isinstance(info, types.StructType)
    for field in info.fields:
        name, at = field.encode_name, f"{path}{field.encode_name}"
        inner, _ = _plain(field.type)
        if not field.required:
            with_it = _put(base, above, name, _sample(at, field.type, field.default))
            yield Trial(kind, at, with_it, _put(base, above, name, None))
        if isinstance(inner, types.StructType):
            step = _Step(name, in_list=False, needs=_sample(at, field.type))
            yield from _within(kind, base, inner, f"{at}.", (*above, step))
        elif isinstance(inner, types.VarTupleType) and isinstance(_plain(inner.item_type)[0], types.StructType):
            step = _Step(name, in_list=True, needs=_sample(at, field.type)[0])
            yield from _within(kind, base, _plain(inner.item_type)[0], f"{at}[].", (*above, step))


def _plain(info: types.Type) -> tuple[types.Type, dict[str, Any]]:
    """Look through what is said about a type, and through "or None"."""
    extra: dict[str, Any] = {}
    while True:
        if isinstance(info, types.Metadata):
            extra |= info.extra_json_schema or {}
            info = info.type
        elif isinstance(info, types.UnionType):
            info = next(it for it in info.types if not isinstance(it, types.NoneType))
        else:
            return info, extra


def _put(base: Spec, above: tuple[_Step, ...], name: str, value: Any) -> Spec:
    """Make a specification with a value at a place; None takes it away, and leaves what is around it."""
    spec = copy.deepcopy(base)
    place = spec
    for step in above:
        made = copy.deepcopy(step.needs)
        place = place.setdefault(step.name, [made])[0] if step.in_list else place.setdefault(step.name, made)
    if value is None:
        place.pop(name, None)
    else:
        place[name] = value
    return spec


def _sample(path: str, type_: types.Type, default: object = NODEFAULT) -> Any:  # noqa: PLR0911 - a table
    """Find a value for a field that is not its default."""
    known = [it for it in _SAMPLES if path.endswith((f".{it}", f":{it}")) or path == it]
    if known:
        return copy.deepcopy(_SAMPLES[max(known, key=len)])
    info, extra = _plain(type_)
    if "x-kubernetes-int-or-string" in extra:
        return "2Gi"
    match info:
        case types.BoolType():
            return default is not True
        case types.IntType(ge=ge, le=le):
            low = max(ge or 0, 1)
            return next(it for it in (low, low + 1, le) if it != default)
        case types.LiteralType(values=values):
            return next(it for it in values if it != default)
        case types.StrType(pattern=pattern):
            return next(it for it in _TEXTS if it != default and re.search(pattern or "", it))
        case types.VarTupleType(item_type=item):
            return [_sample(f"{path}[]", item)]
        case types.DictType(value_type=value) if not extra:
            return {"example.org/name": _sample(f"{path}.*", value)}
        case types.StructType(fields=fields):
            return {it.encode_name: _sample(f"{path}.{it.encode_name}", it.type) for it in fields if it.required}
    raise AssertionError(f"{path} needs a sample")


_TEXTS: Final = ("some", "/usr/bin/true", "1h", "10")
