"""What people do from the page, always as themselves.

    Slurm        the right on `jobs` or `nodes` of web.isthmus.dev, and then a token that holds for a minute and
                 names their user of Slurm: Slurm decides the rest, as it would at a shell
    Kubernetes   their own token: the API server decides

Whatever is done or refused becomes a line in the log, and an Event.
"""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from isthmus.bridge.config import Config, tls
from isthmus.errors import IsthmusError, Terminal
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client as KubeClient
from isthmus.kube.config import Config as KubeConfig
from isthmus.kube.recorder import Recorder
from isthmus.model.base import Kind
from isthmus.model.meta import HasMeta, Key, ObjectMeta, Partial
from isthmus.model.node import NODES
from isthmus.model.slurm import JobRequest, NodeChange
from isthmus.slurm.auth import MintedTokens
from isthmus.slurm.client import Client as SlurmClient
from isthmus.slurm.client import connect
from isthmus.web.access import JOB_ACTIONS, NODE_ACTIONS, Access, Right
from isthmus.web.sessions import Session
from isthmus.web.state import State
from isthmus.web.watch import Watch

log = structlog.get_logger()

_TOKEN_SECONDS: Final = 60.0
_NAMESPACES: Final = Kind(Partial, "v1", "namespaces", "Namespace", namespaced=False)
_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f]{1,200}")

_DONE: Final = {
    "cancel": "cancelled job {target}",
    "hold": "held job {target}",
    "release": "released job {target}",
    "requeue": "requeued job {target}",
    "drain": "drained node {target}: {reason}",
    "resume": "resumed node {target}",
    "uncordon": "uncordoned node {target}",
}


class Act(msgspec.Struct, frozen=True):
    """What is to be done: an action, the id of a job or the name of a node, and for a drain the reason."""

    action: str
    target: str
    reason: str = ""


class RefusedError(Terminal):
    """The person may not do that."""


class Actions:
    def __init__(
        self,
        watch: Watch,
        state: State,
        access: Access,
        recorder: Recorder,
        *,
        config: Config,
        kube: KubeConfig,
        key: Path | None,
    ) -> None:
        self._watch, self._state, self._access, self._recorder = watch, state, access, recorder
        self._config, self._kube, self._key = config, kube, key

    @property
    def offered(self) -> frozenset[str]:
        """What can be done here at all: without the key, nothing in Slurm."""
        return frozenset({"uncordon"}) | (frozenset({*JOB_ACTIONS, *NODE_ACTIONS}) if self._key else frozenset())

    async def do(self, session: Session, act: Act) -> str:
        """Do it, and say what was done."""
        who = session.person.user.username
        try:
            text = await self._do(session, act)
        except IsthmusError as error:
            log.warning("action refused", user=who, action=act.action, target=act.target, error=error.what)
            self._tell(act, f"{who} could not {act.action} {act.target[:60]}: {error.what}", warning=True)
            raise
        log.info("action", user=who, slurm_user=session.person.slurm_user, action=act.action, target=act.target)
        self._tell(act, f"{who} {text}")
        return text

    async def _do(self, session: Session, act: Act) -> str:
        person = session.person
        if act.action not in _DONE:
            raise Terminal(f"there is no action {act.action[:40]!r}")
        if act.action == "uncordon":
            await self._uncordon(session, act.target)
        else:
            right = Right(act.action, "jobs" if act.action in JOB_ACTIONS else "nodes")
            if not await self._access.allowed(person.user, [right]):
                raise RefusedError(
                    f"{person.user.username} may not {act.action} {right.resource}",
                    remedy=f"ask for the verb {right.verb} on {right.resource}.{right.group}",
                )
            await self._in_slurm(person.slurm_user, act)
        return _DONE[act.action].format(target=act.target, reason=act.reason)

    async def _in_slurm(self, user: str, act: Act) -> None:
        if not user:
            raise RefusedError("you have no user in Slurm", remedy="ask an administrator to map your name to one")
        if self._key is None:
            raise Terminal("this server has no key to sign tokens for users", remedy="set --slurm-jwt-key")
        tokens = MintedTokens(self._key, user=user, lifetime=_TOKEN_SECONDS)
        do = self._call(act)
        async with connect(self._config.slurm_rest_api, tokens, tls=tls(self._config)) as slurm:
            await do(slurm)
        self._watch.poller.nudge()

    def _call(self, act: Act) -> Callable[[SlurmClient], Awaitable[None]]:
        """Choose the call, after the target has been checked."""
        if act.action in NODE_ACTIONS:
            if act.target not in self._watch.poller.nodes:
                raise Terminal(f"Slurm has no node {act.target[:60]!r}")
            if act.action == "resume":
                return lambda slurm: slurm.update_node(act.target, NodeChange(state=("RESUME",)))
            if not _PRINTABLE.fullmatch(act.reason.strip()):
                raise Terminal("a drain needs a reason of one line", remedy="say why the node is not to be used")
            change = NodeChange(state=("DRAIN",), reason=act.reason.strip())
            return lambda slurm: slurm.update_node(act.target, change)
        if not (act.target.isascii() and act.target.isdigit()):
            raise Terminal(f"{act.target[:40]!r} is not the id of a job")
        job_id = int(act.target)
        match act.action:
            case "cancel":
                return lambda slurm: slurm.cancel_job(job_id)
            case "requeue":
                return lambda slurm: slurm.requeue_job(job_id)
        change_job = JobRequest(hold=act.action == "hold")
        return lambda slurm: slurm.update_job(job_id, change_job)

    async def _uncordon(self, session: Session, node: str) -> None:
        theirs = msgspec.structs.replace(self._kube, credentials=Fixed.token(session.token))
        async with KubeClient(theirs) as client:
            await client.merge_patch(NODES, Key("", node), {"spec": {"unschedulable": None}})

    def _tell(self, act: Act, note: str, *, warning: bool = False) -> None:
        kind, about = self._regarding(act)
        self._recorder.event(kind, about, "WebAction", note, warning=warning, action=act.action[:60] or "WebAction")

    def _regarding(self, act: Act) -> tuple[Kind[Partial] | Kind[object], HasMeta]:
        """The object of the Event: the node, or where Kubernetes has none, the namespace of this process."""
        world = self._watch.world
        if act.action in {*NODE_ACTIONS, "uncordon"}:
            name = world.map.kube_name(act.target) or act.target
            if node := world.nodes.get(Key("", name)):
                return NODES, node  # type: ignore[return-value]  # a kind of nodes is a kind
        return _NAMESPACES, Partial(metadata=ObjectMeta(name=self._kube.namespace))
