"""Makes the users of each cluster known to its slurmdbd, so that their jobs are charged to an account.

It only adds: users with an account keep it, and none is removed. Asks slurmdbd once for
each change of the users, and when Slurm is reached again.
"""

from typing import Final

from isthmus.domain.operator import partnames
from isthmus.domain.operator.associations import ACCOUNT, missing
from isthmus.errors import Terminal, Wait
from isthmus.kube.recorder import Recorder
from isthmus.model.meta import Key
from isthmus.model.slinky import CONTROLLERS
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.operator.refusals import AGAIN_S
from isthmus.operator.slurms import Slurm
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics

_WORKERS: Final = 2
_NOT_REGISTERED: Final = 2.0


class AccountUsers:
    """The controller of users in slurmdbd; its keys are Controllers."""

    def __init__(self, world: World, *, recorder: Recorder, metrics: Metrics) -> None:
        self._world = world
        self._recorder = recorder
        self._done: dict[Key, tuple[frozenset[str], object]] = {}
        self.controller: Controller[Key] = Controller(
            "account-users", self.reconcile, metrics=metrics, workers=_WORKERS
        )
        world.controllers.on_change(lambda key, *_: self.controller.queue.add(key))
        world.slurms.on_change(self._slurm_changed)

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller,)

    async def reconcile(self, key: Key) -> None:
        controller, slurm = self._world.controllers.get(key), self._world.slurms.of(key)
        if controller is None:
            self._done.pop(key, None)
            return
        if slurm is None or not slurm.in_touch or controller.spec.accounting_ref is None:
            return
        users = frozenset(user.name for user in controller.spec.users)
        if not users or self._done.get(key) == (users, slurm):
            return
        try:
            await self._add(controller, slurm, users)
        except Terminal as error:
            note = f"slurmdbd does not take the users of this cluster, whose jobs may be refused: {error.line}"
            self._recorder.event(CONTROLLERS, controller, "UsersNotAdded", note, warning=True, action="Reconcile")
            raise Wait(error.what, after=AGAIN_S) from error
        self._done[key] = (users, slurm)

    async def _add(self, controller: ControllerPart, slurm: Slurm, users: frozenset[str]) -> None:
        cluster = partnames.cluster_name(controller)
        if cluster not in {it.name for it in await slurm.accounting.clusters()}:
            raise Wait(f"slurmctld has not registered cluster {cluster} in slurmdbd yet", after=_NOT_REGISTERED)
        lacking = missing(users, await slurm.accounting.associations(), cluster=cluster)
        if lacking.account:
            await slurm.accounting.add_account(
                ACCOUNT, cluster=cluster, description="users without another account"
            )
        if lacking.users:
            await slurm.accounting.add_users(lacking.users, account=ACCOUNT, cluster=cluster)
            added = f"{', '.join(lacking.users[:10])}{' …' if len(lacking.users) > 10 else ''}"  # noqa: PLR2004
            note = f"added to account {ACCOUNT}: {added}"
            self._recorder.event(CONTROLLERS, controller, "UsersAdded", note, action="Reconcile")

    def _slurm_changed(self, controller: Key, node: str | None) -> None:
        if node is None:
            self.controller.queue.add(controller)
