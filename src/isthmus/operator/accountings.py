"""Accountings: each becomes slurmdbd, with a database of its own unless one is named.

    keys, password, configuration ──► Secret ──► StatefulSet of slurmdbd ──► StatefulSet of MariaDB
    users of every Controller that names it ──► accounts in slurmdbd (`AccountUsers`)

slurmdbd reads everything when it starts, so it is restarted when any of it changes; meanwhile slurmctld keeps
what it has to tell.
"""

import secrets
from collections.abc import Iterator
from typing import Final, NamedTuple, Unpack

from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble, is_new
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.authkeys import AuthKey, KeySet
from isthmus.domain.operator.manifests import accounting as manifests
from isthmus.domain.operator.manifests import common, database
from isthmus.domain.operator.manifests.common import hash_of
from isthmus.errors import Terminal, Wait
from isthmus.model.meta import Key
from isthmus.model.objects import SECRETS, SERVICES, STATEFULSETS
from isthmus.model.slinky import ACCOUNTINGS, Accounting, KeyReference
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator import parts, refusals
from isthmus.operator.accountusers import AccountUsers
from isthmus.operator.applier import owner_reference
from isthmus.operator.kindsync import KindSync, Tools
from isthmus.operator.world import World
from isthmus.runtime.manager import Worker
from isthmus.runtime.references import Asker

_PASSWORD_BYTES: Final = 24


class _NotThere(Terminal):
    """Something that the specification names does not exist."""


class _Wanted(NamedTuple):
    """What slurmdbd starts with, and a hash of it that gives nothing away."""

    files: dict[str, bytes]
    hash_: str


class AccountingSync(KindSync[Accounting]):
    """The controller of Accountings; `workers` are for the leader."""

    def __init__(self, world: World, **tools: Unpack[Tools]) -> None:
        super().__init__(world, ACCOUNTINGS, world.accountings, **tools)
        self._users = AccountUsers(world, recorder=tools["recorder"], metrics=tools["metrics"])
        wake = self.controller.queue.add
        world.accountings.on_change(lambda key, *_: wake(key))
        for store in (world.statefulsets, world.services):
            store.on_change(parts.wakes_owner(ACCOUNTINGS, wake))
        for labelled in (world.pods, world.secrets):
            labelled.on_change(parts.wakes_instance(["accounting", "database"], wake))
        world.controllers.on_change(self._controller_changed)
        world.secrets.on_change(self._keys_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller, *self._users.workers)

    async def reconcile(self, key: Key) -> None:
        accounting = self._world.accountings.get(key)
        if accounting is None or accounting.metadata.deletion_timestamp is not None:
            return
        if accounting.spec.external:
            await self._let_go(accounting)
            host, port = partnames.accounting_address(accounting)
            await self._report(accounting, Trouble(), settled=f"slurmdbd is external, at {host}:{port}")
            return
        found, failure = await refusals.attempt(self._make(accounting))
        await self._report(accounting, found, settled="slurmdbd is ready")
        if failure:
            raise failure
        if found.missing:
            self.controller.queue.add(key, after=PATIENCE)

    async def _make(self, accounting: Accounting) -> Trouble:
        """Apply everything; return what is wrong or missing."""
        world = self._world
        owners = (owner_reference(ACCOUNTINGS, accounting),)
        apply = self._applier.apply
        await apply(SERVICES, manifests.service(accounting), there=world.services, owners=owners)
        if manifests.is_embedded(accounting):
            await apply(SERVICES, database.service(accounting), there=world.services, owners=owners)
            made = database.secret(accounting, secrets.token_urlsafe(_PASSWORD_BYTES))
            # Without an owner: it stays with the claim of the data, and is found again by its name.
            if await self._applier.make_once(SECRETS, made, there=world.secrets):
                return Trouble(
                    missing="the database is being created"
                )  # the cache wakes us when it has the password
        try:
            wanted = self._gather(accounting)
        except _NotThere as error:
            if not is_new(accounting, self._now()):
                raise
            return Trouble(missing=str(error))
        await apply(SECRETS, manifests.secret(accounting, wanted.files), there=world.secrets, owners=owners)
        if manifests.is_embedded(accounting):
            version = self._password_version(accounting)
            manifest = database.statefulset(accounting, settings=world.settings, password_version=version)
            asked = database.inputs(accounting, settings=world.settings, password_version=version)
            await self._workloads.apply(STATEFULSETS, manifest, inputs=asked, owners=owners)
        manifest = manifests.statefulset(
            accounting, settings=world.settings, files=wanted.files, hash_=wanted.hash_
        )
        asked = manifests.inputs(accounting, settings=world.settings, hash_=wanted.hash_)
        await self._workloads.apply(STATEFULSETS, manifest, inputs=asked, owners=owners)
        return await self._trouble(accounting)

    async def _trouble(self, accounting: Accounting) -> Trouble:
        """Which of the two daemons is not ready, and why; slurmdbd waits for its database."""
        meta, world = accounting.metadata, self._world
        if manifests.is_embedded(accounting):
            workload = world.statefulsets.get(Key(meta.namespace, partnames.database(meta.name)))
            pods = world.pods.by("part", ("database", meta.key))
            found = await parts.trouble_of_set(world.kube, "MariaDB", workload, pods, now=self._now())
            if found.wrong or found.missing:
                return found
        workload = world.statefulsets.get(Key(meta.namespace, partnames.accounting(meta.name)))
        pods = world.pods.by("part", ("accounting", meta.key))
        return await parts.trouble_of_set(world.kube, "slurmdbd", workload, pods, now=self._now())

    async def _let_go(self, accounting: Accounting) -> None:
        """Remove our slurmdbd after a change to an external one; the volume of the database stays."""
        meta, world = accounting.metadata, self._world
        for name in (partnames.accounting(meta.name), partnames.database(meta.name)):
            key = Key(meta.namespace, name)
            await self._applier.remove(STATEFULSETS, key, there=world.statefulsets, owner=accounting)
            await self._applier.remove(SERVICES, key, there=world.services, owner=accounting)

    # Gathering

    def _gather(self, accounting: Accounting) -> _Wanted:
        """Collect what slurmdbd starts with; raises what is wrong with it."""
        meta, spec = accounting.metadata, accounting.spec
        files = {manifests.CONF: manifests.slurmdbd_conf(accounting).encode()}
        secret = self._secret(accounting, spec.slurm_key_ref, "slurmKeyRef")
        if spec.auth_type == "munge":
            files[authkeys.MUNGE_FILE] = secret
        else:
            own = AuthKey.of(secret, where=f"Secret {spec.slurm_key_ref.name if spec.slurm_key_ref else ''}")
            files[authkeys.FILE] = authkeys.union(self._key_sets(accounting), own).write()
        files[authkeys.JWT_FILE] = self._secret(accounting, spec.jwt_key, "jwtKeyRef")
        if spec.jwks_key_ref:
            files[manifests.JWKS_FILE] = self._text(accounting, spec.jwks_key_ref, "jwksKeyRef")
        reference = manifests.password_reference(accounting)
        password = self._secret(accounting, reference, "passwordKeyRef")
        manifests.checked_password(password, where=f"key {reference.key!r} of Secret {reference.name}")
        # The key is random and long, so that the hash does not reveal the password.
        contents = {name: content.hex() for name, content in files.items()}
        return _Wanted(files, common.hash_of(meta.uid, secret.hex(), password.hex(), contents))

    def _secret(self, accounting: Accounting, reference: KeyReference | None, field: str) -> bytes:
        if reference is None:
            raise _NotThere(f"{field} is not set")
        key = Key(accounting.metadata.namespace, reference.name)
        asker = Asker(self.controller.queue.add, accounting.metadata.key)
        found = self._world.references.secret(key, asker)
        if found is None:
            raise _NotThere(f"there is no Secret {reference.name}, which {field} names")
        if not found.data.get(reference.key):
            raise _NotThere(f"Secret {reference.name} has no {reference.key!r}, which {field} names")
        return found.data[reference.key]

    def _text(self, accounting: Accounting, reference: KeyReference, field: str) -> bytes:
        asker = Asker(self.controller.queue.add, accounting.metadata.key)
        found = self._world.references.configmap(Key(accounting.metadata.namespace, reference.name), asker)
        if found is None or reference.key not in found.data:
            raise _NotThere(f"there is no {reference.key!r} in ConfigMap {reference.name}, which {field} names")
        return found.data[reference.key].encode()

    def _password_version(self, accounting: Accounting) -> str:
        """Distinguishes passwords without revealing them."""
        meta = accounting.metadata
        # By its name alone: one that was restored from a backup need not look like ours.
        asker = Asker(self.controller.queue.add, meta.key)
        found = self._world.references.secret(Key(meta.namespace, partnames.database(meta.name)), asker)
        if found is None:
            raise Wait("the password of the database has not been read yet", after=1.0)
        # A new label must not restart anything. The password is random, so its hash gives nothing away.
        return hash_of(found.metadata.uid, found.data)

    def _key_sets(self, accounting: Accounting) -> Iterator[KeySet]:
        """Find the keys that clusters use at this moment: while they change theirs, slurmdbd takes old and new."""
        for controller in self._controllers(accounting.metadata.key):
            meta = controller.metadata
            secret = self._world.secrets.get(Key(meta.namespace, partnames.auth(meta.name)))
            held = KeySet.read(secret.data.get(authkeys.FILE, b"")) if secret else None
            if held:
                yield held

    def _controllers(self, accounting: Key) -> Iterator[ControllerPart]:
        """Find the Controllers that keep their accounts here. O(Controllers)."""
        for controller in self._world.controllers.values():
            reference = controller.spec.accounting_ref
            if reference and Key(controller.metadata.namespace, reference.name) == accounting:
                yield controller

    async def _report(self, accounting: Accounting, found: Trouble, *, settled: str) -> None:
        held = conditions.summary(wrong=found.wrong, missing=found.missing, settled=settled)
        parts.tell(self._recorder, ACCOUNTINGS, accounting, held)
        await self._reporter.report(ACCOUNTINGS, accounting, {}, held)

    # What wakes an Accounting

    def _controller_changed(self, _: Key, old: ControllerPart | None, new: ControllerPart | None) -> None:
        for controller in (old, new):
            if controller and controller.spec.accounting_ref:
                name = controller.spec.accounting_ref.name
                self.controller.queue.add(Key(controller.metadata.namespace, name))

    def _keys_changed(self, key: Key, *_: object) -> None:
        suffix = partnames.auth("")
        if key.name.endswith(suffix):
            controller = self._world.controllers.get(Key(key.namespace, key.name.removesuffix(suffix)))
            if controller:
                self._controller_changed(key, None, controller)
