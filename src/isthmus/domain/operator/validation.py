"""What schema and CEL cannot say of a custom resource: whether Slurm and Kubernetes could do anything with it.

The very functions that make configuration and parts are asked, so what is let in can be made, and what is refused
is refused with their words. Everything is found at once, not one error at a time.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec

from isthmus import names
from isthmus.domain.elastic import policy as elastic
from isthmus.domain.languages import slurmconf
from isthmus.domain.operator import clusterparts, podoutline
from isthmus.domain.operator.clusterparts import Parts
from isthmus.domain.operator.manifests.common import Settings
from isthmus.domain.operator.nodeset import identity
from isthmus.domain.operator.slurmfiles.extra import Extra
from isthmus.domain.operator.slurmfiles.nodes import Workers, node_lines, nodeset_lines
from isthmus.errors import Terminal
from isthmus.model import slinky, soperator
from isthmus.model.base import Kind
from isthmus.model.elastic import Autoscale
from isthmus.model.meta import ObjectMeta
from isthmus.model.slinky import PodTemplate, ServiceTemplate, User

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", re.ASCII)
_PUBLIC_KEY: Final = re.compile(r"(ssh-\S+|ecdsa-sha2-\S+|sk-\S+)\s+\S+", re.ASCII)
_MAX_CHARS: Final = 80

_SYSTEM_USERS: Final = frozenset(
    (
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "backup"),
        *("list", "irc", "nobody", "slurm", "munge", "sshd", "sssd", "messagebus", "polkitd", "mysql", "www-data"),
    )
)
"""Users of our images; one of the same name would not be the one that was meant."""

_DECIDED_FOR_SLURMDBD: Final = frozenset(("DbdHost", "DbdPort", "SlurmUser", "StorageType", "AuthType"))


_PRIVILEGED_PORTS: Final = range(1, 1024)
_NODE_PORTS: Final = range(30000, 32768)
"""Where an API server takes ports of nodes from, unless its --service-node-port-range says otherwise."""


class Findings(msgspec.Struct):
    """What was found in one object."""

    problems: list[str] = msgspec.field(default_factory=list)
    """Why it is refused; each begins with the field."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """What its author should know."""

    def refuse(self, where: str, why: str) -> None:
        """Record a problem."""
        self.problems.append(f"{where}: {why}" if where else why)

    @contextmanager
    def within(self, where: str) -> Iterator[None]:
        """Record what fails in the block."""
        try:
            yield
        except Terminal as error:
            self.refuse(where, f"{error.what} ({error.remedy})" if error.remedy else error.what)


def characters(spec: object) -> Findings:
    """Find characters that no line, name or file may have."""
    found = Findings()
    for where, text in _texts(spec, "spec"):
        if match := _CONTROL.search(text):
            found.refuse(where, f"has the control character {match[0]!r}")
    return found


def check(kind: Kind[Any], subject: Any) -> Findings:
    found = Findings()
    _CHECKS[kind](subject, found)
    return found


def check_change(kind: Kind[Any], old: Any, new: Any) -> Findings:
    """Look at what changes: parts of a cluster have fields that cannot."""
    found = Findings()
    if kind is slinky.NODESETS and old.elastic and new.spec.scaling_mode == "DaemonSet":
        found.refuse(
            "spec.scalingMode",
            "cannot become DaemonSet: the NodeSet has or had autoscale, so its nodes stand in slurm.conf, and their"
            " jobs would fail; create another one instead",
        )
    if kind is soperator.SLURM_CLUSTERS:
        before, after = (_fixed(_cluster_parts(it).children) for it in (old, new))
    elif kind is soperator.NEBIUS_NODESETS:
        before, after = (_fixed(_nodeset_parts(it).children) for it in (old, new))
    else:
        return found  # rules of the API server say it
    for where, value in after.items():
        if (was := before.get(where, value)) != value:
            why = f"{_FIXED[where.rpartition(' ')[2]]} cannot be changed; create another one instead"
            found.refuse(where, (_move(was, value) if isinstance(was, _State) else "") or why)
    return found


class _State(NamedTuple):
    enabled: bool
    claim: str
    """Empty where its pod has a claim of its own, and can only be alone."""


def _move(was: _State, now: object) -> str:
    """What to do where another number of slurmctld needs the state in another place."""
    if not isinstance(now, _State) or not (was.enabled and now.enabled):
        return ""
    if now.claim and not was.claim:
        return (
            "slurmctld's state is on the claim statesave-… of its one pod, and several slurmctld need one that all"
            " their nodes can mount. Let jobs end, delete the cluster (claims stay), copy that claim to one with"
            " ReadWriteMany, name it in volumes.spool, and make the cluster again with this size; see"
            " docs/operator.md, From one slurmctld to several"
        )
    if was.claim and not now.claim:
        return (
            f"slurmctld's state is on the claim {was.claim}; to keep it there, name it: volumeSources: [{{name:"
            f" state, persistentVolumeClaim: {{claimName: {was.claim}}}}}], and"
            " slurmNodes.controller.volumes.spool.volumeSourceName: state"
        )
    return ""


_FIXED: Final = {
    "persistence": "where slurmctld keeps its state (slurmNodes.controller.volumes.spool)",
    "volumeClaimTemplates": "the claims that each worker has (volumeClaimTemplateSpec)",
}


def _fixed(children: Iterable[clusterparts.Child]) -> dict[str, object]:
    found: dict[str, object] = {}
    for child in children:
        spec = child.manifest.get("spec", {})
        if child.kind is slinky.CONTROLLERS:
            given = spec.get("persistence", {})
            state = _State(given.get("enabled", True), given.get("existingClaim", ""))
            found[f"{child.key.name} persistence"] = state
        elif child.kind is slinky.NODESETS:
            found[f"{child.key.name} volumeClaimTemplates"] = spec.get("volumeClaimTemplates", [])
    return found


# Each kind


def _controller(controller: slinky.Controller, found: Findings) -> None:
    spec = controller.spec
    with found.within("spec.extraConf"):
        config = Extra.read(spec.extra_conf).config
        for path in config.includes():
            if "/" in path:
                found.warnings.append(f"spec.extraConf includes {path[:_MAX_CHARS]}: it must be in the image")
        if spec.metrics.enabled and config.get("PrivateData"):
            found.warnings.append("spec.metrics.enabled: slurmctld serves no metrics while PrivateData is set")
    if "\r" in spec.extra_conf:
        found.refuse("spec.extraConf", "lines end with a line feed alone, not with a carriage return")
    for field, references in (
        ("configFileRefs", spec.config_file_refs),
        ("prologScriptRefs", spec.prolog_script_refs),
        ("epilogScriptRefs", spec.epilog_script_refs),
        ("prologSlurmctldScriptRefs", spec.prolog_slurmctld_script_refs),
        ("epilogSlurmctldScriptRefs", spec.epilog_slurmctld_script_refs),
    ):
        for place, reference in enumerate(references or ()):
            if not reference.name:
                found.refuse(f"spec.{field}[{place}].name", "is required")
    workload = controller.metadata.annotations.get(names.WORKLOAD_NAME_ANNOTATION)
    if workload is not None and not _LABEL.fullmatch(workload):
        found.refuse(f"metadata.annotations[{names.WORKLOAD_NAME_ANNOTATION}]", "is not a valid pod name")
    _users(spec.users, found)
    monitor = spec.metrics.service_monitor.enabled
    _without_effect(
        found,
        ("logfile", spec.logfile, _LOGS),
        ("metrics.serviceMonitor", monitor and not spec.metrics.enabled, "metrics.enabled is false"),
        ("metrics.serviceMonitor", monitor and spec.external, "slurmctld is external, so it has no Service here"),
    )
    _pod(spec.template, {"slurmctld": spec.slurmctld, "reconfigure": spec.reconfigure}, found)
    _service(spec.service, found)


def _accounting(accounting: slinky.Accounting, found: Findings) -> None:
    spec = accounting.spec
    with found.within("spec.extraConf"):
        config = slurmconf.parse(spec.extra_conf, name="extraConf")
        for key in sorted(it for it in _DECIDED_FOR_SLURMDBD if config.get(it) is not None):
            found.refuse("spec.extraConf", f"sets {key}, which the operator manages")
        if config.get("StoragePass") is not None:
            found.refuse("spec.extraConf", "has a password; put it into a Secret: storageConfig.passwordKeyRef")
    _pod(spec.template, {"slurmdbd": spec.slurmdbd}, found)
    _service(spec.service, found)


def _nodeset(nodeset: slinky.NodeSet, found: Findings) -> None:
    spec = nodeset.spec
    _without_effect(
        found,
        ("ssh.sssdConfRef", spec.ssh.sssd_conf_ref, "workers have the users of the cluster and of the shared root"),
        ("logfile", spec.logfile, _LOGS),
        ("revisionHistoryLimit", spec.revision_history_limit, "pods carry a hash; there are no revisions to keep"),
    )
    if not _pod(spec.template, {"slurmd": spec.slurmd, "logfile": spec.logfile}, found):
        return
    if _is_best_effort(nodeset):
        found.warnings.append(f"spec.slurmd.resources {_BEST_EFFORT}")
    # The last of its nodes has the longest name; for the lines, one node says as much as all.
    with found.within("spec"):
        identity.numbered(nodeset, max(spec.replicas - 1, 0))
    one = msgspec.structs.replace(nodeset, spec=msgspec.structs.replace(spec, replicas=min(spec.replicas, 1)))
    with found.within("spec"):
        workers = [Workers.of(one)]
        for line in (*nodeset_lines(workers), *node_lines(workers, controller="x", namespace="x")):
            slurmconf.parse_line(line.render())
    if spec.partition.config and not spec.partition.enabled:
        found.warnings.append("spec.partition.config has no effect: partition.enabled is false")
    seen: set[str] = set()
    for place, template in enumerate(spec.volume_claim_templates):
        metadata = template.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not _LABEL.fullmatch(name) or name in seen:
            found.refuse(
                f"spec.volumeClaimTemplates[{place}].metadata.name",
                "must be a valid name that no other template has",
            )
        seen.add(str(name))
    _incomplete_claims(spec.volume_claim_templates, found)
    _autoscale(spec.autoscale, spec.replicas, found)
    if spec.autoscale and spec.scaling_mode == "DaemonSet":
        found.refuse(
            "spec.autoscale",
            "needs scalingMode StatefulSet: as a DaemonSet, workers are on every machine",
        )


def _autoscale(policy: Autoscale | None, size: int, found: Findings) -> None:
    if policy is None:
        return
    for where, why in elastic.problems(policy):
        found.refuse(f"spec.autoscale.{where}", why)
    found.warnings += [f"spec.autoscale.{where}: {what}" for where, what in elastic.remarks(policy, size=size)]


def _incomplete_claims(templates: Iterable[Mapping[str, Any]], found: Findings) -> None:
    """Warn of claims that Kubernetes refuses when it is to make one: not before the first worker."""
    for template in templates:
        claim = template.get("spec") or {}
        storage = ((claim.get("resources") or {}).get("requests") or {}).get("storage")
        lacks = [
            f"no {name}"
            for name, given in (("accessModes", claim.get("accessModes")), ("resources.requests.storage", storage))
            if not given
        ]
        if lacks:
            name = (template.get("metadata") or {}).get("name", "")
            found.warnings.append(
                f"claim {name}: it has {' and '.join(lacks)}:"
                " Kubernetes creates neither it nor the workers that mount it"
            )


# slurmctld does not ask resumed nodes to register in a second in which it begins health checks, nor before it has
# counted their answers, which it does every two seconds.
_MIN_HEALTH_CHECK_S: Final = 5
_BEST_EFFORT: Final = (
    "is not set: workers are BestEffort, so Kubernetes may put several onto one node, each of which offers all of"
    " it to Slurm, and they are the first to be killed when its memory is short"
)


def _is_best_effort(nodeset: slinky.NodeSet) -> bool:
    """Whether workers ask for nothing: neither the container of slurmd, nor the pod as a whole."""
    pod = nodeset.spec.template.spec
    inner = (it for it in pod.get("containers") or () if it.get("name") == "slurmd")
    given = [it.get("resources") or {} for it in (nodeset.spec.slurmd, pod, *inner)]
    return nodeset.spec.replicas > 0 and not any(it.get("requests") or it.get("limits") for it in given)


def _loginset(loginset: slinky.LoginSet, found: Findings) -> None:
    spec = loginset.spec
    _public_keys("spec.rootSshAuthorizedKeys", spec.root_ssh_authorized_keys.splitlines(), found)
    _without_effect(
        found,
        ("initconf", spec.initconf, "sackd fetches the configuration"),
        ("strategy.rollingUpdate", spec.strategy.get("rollingUpdate"), "pods are replaced one by one"),
    )
    _pod(spec.template, {"login": spec.login, "initconf": spec.initconf}, found)
    _service(spec.service, found)


def _restapi(restapi: slinky.RestApi, found: Findings) -> None:
    _pod(restapi.spec.template, {"slurmrestd": restapi.spec.slurmrestd}, found)
    _service(restapi.spec.service, found)


def _token(_token: slinky.Token, _found: Findings) -> None:
    """Schema and rules say it all."""


def _cluster(cluster: soperator.SlurmCluster, found: Findings) -> None:
    _users(cluster.spec.users, found)
    login = cluster.spec.slurm_nodes.login
    _public_keys("spec.slurmNodes.login.sshRootPublicKeys", login.ssh_root_public_keys, found)
    _node_port("spec.slurmNodes.login.sshdServiceNodePort", login.sshd_service_node_port, found)
    if cluster.spec.slurm_nodes.controller.size == 0:
        found.refuse(
            "spec.slurmNodes.controller.size",
            "is 0, and a cluster needs slurmctld; to scale everything down set maintenance: downscale",
        )
    database = cluster.spec.slurm_nodes.accounting
    if database.external_db.enabled and database.mariadb_operator.enabled:
        found.refuse("spec.slurmNodes.accounting", "enables both externalDB and mariadbOperator: choose one")
    if database.enabled and database.external_db.enabled:
        external = database.external_db
        for name, given in (
            ("host", external.host),
            ("user", external.user),
            (
                "passwordSecretKeyRef",
                external.password_secret_key_ref.name and external.password_secret_key_ref.key,
            ),
        ):
            if not given:
                found.refuse(f"spec.slurmNodes.accounting.externalDB.{name}", "is required when enabled")
    parts = _cluster_parts(cluster)
    _made(parts, found)
    workers = cluster.spec.slurm_nodes.worker
    if parts.workers and not (workers.resources or workers.slurmd.resources):
        found.warnings.append(f"spec.slurmNodes.worker.resources {_BEST_EFFORT}")
    health = cluster.spec.health_check_config
    if health and 0 < health.health_check_interval < _MIN_HEALTH_CHECK_S:
        found.warnings.append(
            "spec.healthCheckConfig.healthCheckInterval: with less than "
            f"{_MIN_HEALTH_CHECK_S} s, nodes that are resumed may take no job for minutes"
        )


def _nebius_nodeset(nodeset: soperator.NodeSet, found: Findings) -> None:
    _made(_nodeset_parts(nodeset), found)
    _autoscale(nodeset.spec.autoscale, nodeset.spec.replicas, found)
    if not nodeset.spec.slurmd.resources and nodeset.spec.replicas:
        found.warnings.append(f"spec.slurmd.resources {_BEST_EFFORT}")


def _cluster_parts(cluster: soperator.SlurmCluster) -> Parts:
    spec = cluster.spec
    health = spec.health_check_config.health_check_program if spec.health_check_config else ""
    # Whether a JailedConfig writes them is not known here. FieldsWithoutEffect of the status says if none does.
    scripts = [spec.slurm_config.prolog, spec.slurm_config.epilog, spec.slurm_config.task_prolog, health]
    return clusterparts.parts_of(
        cluster,
        (),
        prefix=cluster.status.name_prefix or "",
        settings=Settings(),
        promised=[it for it in scripts if it],
    )


def _nodeset_parts(nodeset: soperator.NodeSet) -> Parts:
    owner = ObjectMeta(name=nodeset.spec.cluster_name or "cluster", namespace=nodeset.metadata.namespace)
    # Names that only the cluster knows, such as those of volume sources, are not used by NodeSets.
    child, parts = clusterparts.nodeset_part(nodeset, soperator.SlurmCluster(metadata=owner), prefix="")
    return msgspec.structs.replace(parts, children=(child,))


_CHECKS: Final[Mapping[Kind[Any], Callable[[Any, Findings], None]]] = {
    slinky.CONTROLLERS: _controller,
    slinky.ACCOUNTINGS: _accounting,
    slinky.NODESETS: _nodeset,
    slinky.LOGINSETS: _loginset,
    slinky.RESTAPIS: _restapi,
    slinky.TOKENS: _token,
    soperator.SLURM_CLUSTERS: _cluster,
    soperator.NEBIUS_NODESETS: _nebius_nodeset,
}


# What several have


_LOGS: Final = "daemons write to the logs of their containers"


def _without_effect(found: Findings, *fields: tuple[str, object, str]) -> None:
    """Name fields that were set and change nothing, each with what is there instead."""
    told = [f"spec.{name} ({instead})" for name, given, instead in fields if given]
    if told:
        found.warnings.append(f"fields that have no effect: {', '.join(told)}")


def _made(parts: Parts, found: Findings) -> None:
    """Pass on what was noticed while parts were made, and look at them as if they were written by hand."""
    found.problems += parts.problems
    if parts.ignored:
        fields = ", ".join(f"spec.{path}" for path in parts.ignored)
        found.warnings.append(f"fields that have no effect yet: {fields}")
    if parts.problems:
        return
    for part in parts.children:
        if judge := _CHECKS.get(part.kind):
            inner = Findings()
            try:
                judge(msgspec.convert(part.manifest, part.kind.type), inner)
            except msgspec.ValidationError as error:
                inner.refuse("", str(error))
            made = f"the {part.kind.name} {part.key.name} that is made from this"
            # These are the object's own, and were looked at there.
            own = ("spec.users", "spec.service.nodePort", "spec.autoscale.")
            found.problems += [f"{made}: {it}" for it in inner.problems if not it.startswith(own)]
        if part.kind is slinky.NODESETS:
            _incomplete_claims(part.manifest["spec"].get("volumeClaimTemplates") or (), found)


def _users(users: tuple[User, ...], found: Findings) -> None:
    numbers: dict[int, str] = {}
    for user in users:
        where = f"spec.users[{user.name}]"
        if user.name in _SYSTEM_USERS:
            found.refuse(where, "is a system user; choose another name")
        if other := numbers.get(user.uid):
            found.refuse(f"{where}.uid", f"{user.uid} is already used by {other}")
        numbers[user.uid] = user.name
        for group in user.groups:
            if group in _SYSTEM_USERS - {"games", "mail"}:
                found.refuse(f"{where}.groups", f"{group} is a system group")
        _public_keys(f"{where}.sshPublicKeys", user.ssh_public_keys, found)
    if powerful := [user.name for user in users if user.sudo]:
        found.warnings.append(
            f"spec.users[].sudo: {', '.join(powerful[:10])} can become root on login nodes, and Slurm lets root "
            "act as any user on every worker. Give it only to administrators of the cluster"
        )


def _public_keys(where: str, lines: Iterable[str], found: Findings) -> None:
    for line in lines:
        text = line.strip()
        if "PRIVATE KEY" in text:
            found.refuse(where, "this is a private key: keep it secret, and create a new pair")
            return
        if text and not text.startswith("#") and not _PUBLIC_KEY.search(text):
            found.warnings.append(f"{where}: {text[:40]!r} does not look like a public key; sshd will skip it")


def _service(service: ServiceTemplate, found: Findings) -> None:
    if service.spec.get("externalIPs"):
        found.warnings.append(
            "spec.service.spec.externalIPs is dropped: it could be used to intercept traffic of others"
        )
    if not isinstance(service.spec.get("ports", []), list):
        found.refuse("spec.service.spec.ports", "is a list")
    _node_port("spec.service.nodePort", service.node_port, found)


def _node_port(where: str, port: int | None, found: Findings) -> None:
    if not port or port in _NODE_PORTS:
        return
    if port in _PRIVILEGED_PORTS:
        found.refuse(where, f"{port} is reserved for the node itself; choose one of 30000 to 32767, or omit it")
        return
    found.warnings.append(
        f"{where}: {port} is not within 30000 to 32767; it works only if the API server's "
        "--service-node-port-range includes it"
    )


def _pod(template: PodTemplate, containers: Mapping[str, Mapping[str, Any]], found: Findings) -> bool:
    """Check the outline of a pod; return whether more can be read from it."""
    problems = list(podoutline.problems_of_pod(template.spec, "spec.template.spec"))
    for name, container in containers.items():
        problems += podoutline.problems_of_container(container, f"spec.{name}")
    for where, why in problems:
        found.refuse(where, why)
    if problems:
        return False
    unknown = [*podoutline.unknown_in_pod(template.spec, "spec.template.spec")]
    for name, container in containers.items():
        unknown += podoutline.unknown_in_container(container, f"spec.{name}")
    if unknown:
        found.warnings.append(f"unknown fields: {', '.join(unknown)}")
    return True


def _texts(value: object, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield where, key
            yield from _texts(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{where}[{place}]")
