"""Rotates a cluster's key in steps, each only when all daemons have taken the one before."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from isthmus import names
from isthmus.domain.languages import slurmconf
from isthmus.domain.operator import authkeys, partnames
from isthmus.domain.operator.authkeys import AuthKey, KeySet, Step
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key, condition
from isthmus.model.slinky import CONTROLLERS, Controller
from isthmus.operator.slurmctld.conditions import CONFIG_APPLIED
from isthmus.operator.world import World

_PATIENCE: Final = 120.0
"""Seconds in which every node should have taken a new key into use; else the old one is used again."""

_TOLD: Final[dict[Step, tuple[str, str]]] = {
    "announce": ("KeyAnnounced", "every daemon gets the new key; the old one stays in use meanwhile"),
    "switch": ("KeySwitched", "every daemon has the new key; it is in use now, and the old one is still accepted"),
    "retire": ("KeyRetired", "every daemon uses the new key; the old one is no longer accepted"),
}


class Rotation:
    """Decides which set of keys a cluster has next."""

    def __init__(self, world: World, recorder: Recorder, taken_at: Callable[[Key, str], float | None]) -> None:
        self._world = world
        self._recorder = recorder
        self._taken_at = taken_at
        self._pauses: dict[Key, float] = {}

    def pause(self, controller: Key) -> float | None:
        """In how many seconds to look again; None unless a key is being changed."""
        return self._pauses.get(controller)

    def next_set(self, controller: Controller, held: KeySet, wanted: AuthKey, *, now: datetime) -> KeySet:
        """The set for now: the one that is held, or the next."""
        key = controller.metadata.key
        step = authkeys.next_step(held, wanted)
        if step is None:
            self._pauses.pop(key, None)
            return held
        self._pauses[key] = _PATIENCE
        age = self._age(controller, now)
        if step == "retire" and not self._applied(controller) and age > _PATIENCE:
            note = (
                "some nodes did not start to use the new key; the old one is in use again, and the "
                "rotation is retried"
            )
            self._recorder.event(CONTROLLERS, controller, "KeySwitchedBack", note, warning=True, action="Rotate")
            return authkeys.back(held, wanted)
        if step != "announce":
            if not self._all_know(controller, wanted):
                return held
            if step == "retire" and (pause := self._until_expired(controller, age=age, now=now.timestamp())) > 0:
                self._pauses[key] = pause
                return held
        reason, note = _TOLD[step]
        self._recorder.event(CONTROLLERS, controller, reason, note, action="Rotate")
        return authkeys.after(held, wanted, step=step)

    def _all_know(self, controller: Controller, wanted: AuthKey) -> bool:
        return self._applied(controller) and self._accounting_knows(controller, wanted)

    def _until_expired(self, controller: Controller, *, age: float, now: float) -> float:
        """In how many seconds nothing is valid any more that was signed with the old key."""
        told = condition(controller.status.conditions, CONFIG_APPLIED)
        since = told.last_transition_time if told else None
        return authkeys.until_expired(
            self._life_of_credentials(controller),
            changed_at=now - age,
            taken_at=self._taken_at(controller.metadata.key, controller.status.config_hash),
            all_since=since.timestamp() if since else None,
            now=now,
        )

    def _life_of_credentials(self, controller: Controller) -> int:
        meta = controller.metadata
        config = self._world.configmaps.get(Key(meta.namespace, partnames.config(meta.name)))
        conf = slurmconf.parse(config.data.get("slurm.conf", "") if config else "")
        told = [said for line in conf.directives() if (said := line.get("AuthInfo"))]
        return authkeys.credential_seconds(told[-1] if told else "")

    def _applied(self, controller: Controller) -> bool:
        """Whether every daemon has taken the set that is held: what was reported is about what is mounted now."""
        meta, status = controller.metadata, controller.status
        config = self._world.configmaps.get(Key(meta.namespace, partnames.config(meta.name)))
        secret = self._world.secrets.get(Key(meta.namespace, partnames.auth(meta.name)))
        if config is None or secret is None:
            return False
        both = " ".join(it.metadata.annotations.get(names.CONFIG_HASH_ANNOTATION, "") for it in (config, secret))
        told = condition(status.conditions, CONFIG_APPLIED)
        return status.config_hash == both and told is not None and told.status == "True"

    def _accounting_knows(self, controller: Controller, wanted: AuthKey) -> bool:
        """Whether slurmdbd runs with the new key; it reads keys when it starts."""
        reference = controller.spec.accounting_ref
        if reference is None:
            return True
        namespace = controller.metadata.namespace
        accounting = self._world.accountings.get(Key(namespace, reference.name))
        if accounting is None or accounting.spec.external:
            return accounting is not None
        place = Key(namespace, partnames.accounting(reference.name))
        secret, workload = self._world.secrets.get(place), self._world.statefulsets.get(place)
        held = KeySet.read(secret.data.get(authkeys.FILE, b"")) if secret else None
        return held is not None and held.knows(wanted.kid) and workload is not None and workload.settled

    def _age(self, controller: Controller, now: datetime) -> float:
        """For how many seconds the set has been as it is."""
        meta = controller.metadata
        secret = self._world.secrets.get(Key(meta.namespace, partnames.auth(meta.name)))
        changed = secret.metadata.annotations.get(names.CHANGED_AT_ANNOTATION) if secret else None
        return (now - datetime.fromisoformat(changed)).total_seconds() if changed else 0.0
