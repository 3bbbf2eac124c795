"""Collects what a cluster's files and keys are made from; nothing here awaits or decides."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from isthmus import names
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.domain.operator.nodeset import identity
from isthmus.domain.operator.slurmfiles import Inputs, Scripts, Workers, checked_files, topology
from isthmus.domain.operator.slurmfiles.topology import Place
from isthmus.errors import Terminal
from isthmus.model.meta import Key
from isthmus.model.objects import Secret
from isthmus.model.pod import Pod
from isthmus.model.slinky import Accounting, Controller, KeyReference, LocalReference
from isthmus.operator.world import World
from isthmus.runtime.references import Asker

JWKS_FILE = "jwks.json"


class Missing(Terminal):
    """Something that the Controller names does not exist. Its creation wakes the Controller."""


class Keys(NamedTuple):
    """The keys that the user wants, and those that daemons have now."""

    wanted: AuthKey | None
    """None where munge is used."""
    held: KeySet | None
    jwt: bytes
    munge: bytes = b""


class Gatherer:
    """Reads caches and references for one Controller, which is woken when any of it changes."""

    def __init__(self, world: World, controller: Controller, asker: Asker) -> None:
        self._world = world
        self._controller = controller
        self._asker = asker
        self._namespace = controller.metadata.namespace

    def inputs(self, *, version: str) -> Inputs:
        """Collect all that configuration files follow from; raises what is wrong with it."""
        spec = self._controller.spec
        scripts = {
            "prolog": self._configmaps(spec.prolog_script_refs, "prologScriptRefs"),
            "epilog": self._configmaps(spec.epilog_script_refs, "epilogScriptRefs"),
            "prolog_slurmctld": self._configmaps(spec.prolog_slurmctld_script_refs, "prologSlurmctldScriptRefs"),
            "epilog_slurmctld": self._configmaps(spec.epilog_slurmctld_script_refs, "epilogSlurmctldScriptRefs"),
        }
        files = self._configmaps(spec.config_file_refs, "configFileRefs")
        given = checked_files([*files, *(it for found in scripts.values() for it in found)])
        if spec.jwks_key_ref:
            given[JWKS_FILE] = self._text(spec.jwks_key_ref, "jwksKeyRef")
        workers = tuple(self._workers())
        return Inputs(
            controller=self._controller,
            settings=self._world.settings,
            workers=workers,
            accounting=self._accounting(),
            scripts=Scripts(**{role: _names(found) for role, found in scripts.items()}),
            version=version,
            given=given,
            places=self._places(workers) if spec.topology else (),
            topology_before=self._topology_before(),
        )

    def _places(self, workers: Sequence[Workers]) -> tuple[Place, ...] | None:
        """Find the machines of all nodes that slurmctld knows; None while it does not say which these are."""
        slurm = self._world.slurms.of(self._controller.metadata.key)
        if slurm is None or not slurm.in_touch:
            return None
        machines = {
            identity.slurm_name(pod): pod.spec.node_name
            for each in workers
            for pod in self._world.pods.by("owner", each.nodeset.metadata.uid)
        }
        kube_nodes = self._world.kube_nodes
        labels = {key.name: node.metadata.labels for key in kube_nodes if (node := kube_nodes.get(key))}
        known = {name: record for name in slurm.nodes if (record := slurm.nodes.get(name))}
        return topology.places(workers, known=known, machines=machines, labels=labels)

    def _topology_before(self) -> dict[str, str]:
        config = self._world.configmaps.get(Key(self._namespace, partnames.config(self._controller.metadata.name)))
        return {file: config.data[file] for file in topology.FILES if file in config.data} if config else {}

    def keys(self) -> Keys:
        """Collect the keys of daemons and tokens."""
        spec = self._controller.spec
        jwt = self._secret(spec.jwt_key, "jwtKeyRef")
        key = self._secret(spec.slurm_key_ref, "slurmKeyRef")
        if spec.auth_type == "munge":
            return Keys(None, None, jwt, key)
        where = f"Secret {spec.slurm_key_ref.name}" if spec.slurm_key_ref else "slurmKeyRef"
        made = self.auth_secret()
        held = KeySet.read(made.data.get(authkeys.FILE, b"")) if made else None
        return Keys(AuthKey.of(key, where=where), held, jwt)

    def keys_of_others(self) -> dict[str, bytes]:
        """Collect the keys of an external slurmctld, as files; none where no key is named."""
        spec = self._controller.spec
        if spec.slurm_key_ref is None:
            return {}
        key = self._secret(spec.slurm_key_ref, "slurmKeyRef")
        name = authkeys.MUNGE_FILE if spec.auth_type == "munge" else authkeys.file_of_others(key)
        tokens = {authkeys.JWT_FILE: self._secret(spec.jwt_key, "jwtKeyRef")} if spec.jwt_key else {}
        return {name: key, **tokens}

    def auth_secret(self) -> Secret | None:
        """Find the Secret that daemons mount."""
        name = partnames.auth(self._controller.metadata.name)
        return self._world.secrets.get(Key(self._namespace, name))

    def ssh_keys(self) -> dict[str, str | None]:
        """Read the SSH keys of users that are kept in Secrets; None where there is no such Secret or key."""
        found: dict[str, str | None] = {}
        for user in self._controller.spec.users:
            reference = user.ssh_keys_secret_ref
            if reference is None:
                continue
            secret = self._world.references.secret(Key(self._namespace, reference.name), self._asker)
            content = secret.data.get(reference.key) if secret else None
            found[user.name] = None if content is None else content.decode(errors="replace")
        return found

    def _workers(self) -> Iterable[Workers]:
        for nodeset in self._world.nodesets_of(self._controller.metadata.key):
            try:
                pods = self._world.pods.by("owner", nodeset.metadata.uid)
                dynamic = [it for it in pods if names.ANNOUNCED_ANNOTATION not in it.metadata.annotations]
                yield Workers.of(
                    nodeset,
                    present=_slurm_names(pods),
                    dynamic=_slurm_names(dynamic) if nodeset.spec.registration == "Dynamic" else (),
                )
            except Terminal as error:
                raise Terminal(f"NodeSet {nodeset.metadata.name}: {error.what}", remedy=error.remedy) from error

    def _accounting(self) -> Accounting | None:
        reference = self._controller.spec.accounting_ref
        if reference is None:
            return None
        found = self._world.accountings.get(Key(self._namespace, reference.name))
        if found is None:
            raise Missing(f"there is no Accounting {reference.name}, which accountingRef names")
        return found

    def _configmaps(
        self, references: Iterable[LocalReference] | None, field: str
    ) -> list[tuple[str, Mapping[str, str]]]:
        found = []
        for reference in sorted(references or (), key=lambda it: it.name):
            configmap = self._world.references.configmap(Key(self._namespace, reference.name), self._asker)
            if configmap is None:
                raise Missing(f"there is no ConfigMap {reference.name}, which {field} names")
            found.append((reference.name, configmap.data))
        return found

    def _text(self, reference: KeyReference, field: str) -> str:
        found = self._world.references.configmap(Key(self._namespace, reference.name), self._asker)
        if found is None or reference.key not in found.data:
            raise Missing(f"there is no {reference.key!r} in ConfigMap {reference.name}, which {field} names")
        return found.data[reference.key]

    def _secret(self, reference: KeyReference | None, field: str) -> bytes:
        if reference is None:
            raise Missing(f"{field} is not set")
        found = self._world.references.secret(Key(self._namespace, reference.name), self._asker)
        if found is None:
            raise Missing(f"there is no Secret {reference.name}, which {field} names")
        if not found.data.get(reference.key):
            raise Missing(f"Secret {reference.name} has no {reference.key!r}, which {field} names")
        return found.data[reference.key]


def _names(found: Iterable[tuple[str, Mapping[str, str]]]) -> tuple[str, ...]:
    return tuple(sorted({file for _, data in found for file in data}))


def _slurm_names(pods: Iterable[Pod]) -> list[str]:
    return [identity.slurm_name(pod) for pod in pods]
