"""What the controllers of all kinds have in common.

KindSync     an object changes ──► its key ──► `reconcile`; what Kubernetes refuses stands in the object's status
PodsSync     likewise, for a part that belongs to a Controller and becomes one workload: LoginSets and RestApis
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Generic, NotRequired, TypedDict, TypeVar, Unpack

from isthmus.clock import utc_now
from isthmus.domain.kube import conditions
from isthmus.domain.kube.podtrouble import PATIENCE, Trouble
from isthmus.kube.recorder import Recorder
from isthmus.kube.store import Store
from isthmus.model.base import Kind
from isthmus.model.meta import Condition, Key, Reported
from isthmus.model.objects import Workload
from isthmus.model.slinky import Controller as ControllerPart
from isthmus.model.slinky import LoginSet, RestApi
from isthmus.operator import parts, refusals
from isthmus.operator.applier import Applier
from isthmus.operator.statuswriter import Reporter
from isthmus.operator.workloads import Workloads
from isthmus.operator.world import World
from isthmus.runtime.controller import Controller
from isthmus.runtime.manager import Worker
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.references import Asker

R = TypeVar("R", bound=Reported)
P = TypeVar("P", bound=LoginSet | RestApi)

_WORKERS: Final = 4


class Tools(TypedDict):
    """What controllers act with."""

    applier: Applier
    reporter: Reporter
    recorder: Recorder
    metrics: Metrics
    now: NotRequired[Callable[[], datetime]]


class KindSync(Generic[R]):
    """The controller of a kind, whose objects are `there`; `workers` are for the leader."""

    def __init__(
        self,
        world: World,
        kind: Kind[R],
        there: Store[R],
        *,
        name: str = "",
        workers: int = _WORKERS,
        **tools: Unpack[Tools],
    ) -> None:
        self._world = world
        self._kind = kind
        self._there = there
        self._applier = tools["applier"]
        self._reporter = tools["reporter"]
        self._recorder = tools["recorder"]
        self._now = tools.get("now", utc_now)
        self._workloads = Workloads(world, self._applier)
        guarded = refusals.told(kind, there, self._follow, reporter=self._reporter, recorder=self._recorder)
        self.controller: Controller[Key] = Controller(
            name or kind.plural, guarded, metrics=tools["metrics"], workers=workers
        )

    @property
    def workers(self) -> tuple[Worker, ...]:
        return (self.controller,)

    async def _follow(self, key: Key) -> None:
        await self.reconcile(key)
        if key not in self._there:
            self._world.references.release(Asker(self.controller.queue.add, key))

    @abstractmethod
    async def reconcile(self, key: Key) -> None: ...


class PodsSync(KindSync[P]):
    """The controller of a kind of part that belongs to a Controller and becomes one workload."""

    def __init__(self, world: World, kind: Kind[P], there: Store[P], **tools: Unpack[Tools]) -> None:
        super().__init__(world, kind, there, **tools)
        there.on_change(lambda key, *_: self.controller.queue.add(key))
        world.controllers.on_change(lambda key, *_: self._wake_all(key))

    async def reconcile(self, key: Key) -> None:
        part = self._there.get(key)
        if part is None or part.metadata.deletion_timestamp is not None:
            return
        controller = self._world.controller_of(part)
        failure = None
        if controller is None:
            found = parts.no_controller(part.spec.controller_ref.name, part, now=self._now())
        else:
            found, failure = await refusals.attempt(self._make(part, controller))
            await self._refresh_files(part, controller)
        await self._report(part, found)
        if failure:
            raise failure
        if found.missing:
            self.controller.queue.add(key, after=PATIENCE)

    @abstractmethod
    async def _make(self, part: P, controller: ControllerPart) -> Trouble:
        """Apply everything; return what is wrong or missing."""

    async def _refresh_files(self, part: P, controller: ControllerPart) -> None:
        """Bring the files of running pods up to date, where they do not wait for a restart."""

    @abstractmethod
    def _workload(self, part: P) -> Workload | None:
        """What runs the pods, if it is there."""

    @abstractmethod
    def _selector(self, part: P) -> str:
        """Which pods these are, for autoscalers."""

    def _more_conditions(self, _: P) -> Iterable[Condition]:
        return ()

    async def _report(self, part: P, found: Trouble) -> None:
        workload = self._workload(part)
        replicas = workload.status.replicas if workload else 0
        ready = workload.status.ready_replicas if workload else 0
        fields = {"replicas": replicas, "readyReplicas": ready, "selector": self._selector(part)}
        settled = f"{ready} of {part.spec.replicas} pods are ready"
        held = conditions.summary(wrong=found.wrong, missing=found.missing, settled=settled)
        parts.tell(self._recorder, self._kind, part, held)
        await self._reporter.report(self._kind, part, fields, (*held, *self._more_conditions(part)))

    def _wake_all(self, controller: Key) -> None:
        """Wake the parts of a Controller, and those that name none."""
        for name in (controller.name, ""):
            for part in self._there.by("controller", Key(controller.namespace, name)):
                self.controller.queue.add(part.metadata.key)
