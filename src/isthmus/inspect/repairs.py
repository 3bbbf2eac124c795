"""Repairs that the doctor does itself, when it is told to. None of them ends a job, a pod or a session."""

from collections.abc import Awaitable, Callable
from typing import Final

from isthmus.domain.diagnosis import Fix
from isthmus.errors import Terminal
from isthmus.inspect import slurmsource
from isthmus.kube.client import Client
from isthmus.local import host, lifecycle
from isthmus.local.progress import Progress
from isthmus.model.meta import Key
from isthmus.model.objects import SECRETS
from isthmus.runtime.trust import MUTATING, VALIDATING, Target, trust


async def in_kubernetes(client: Client, fix: Fix) -> None:
    """Repair something of a cluster, or of the bridge."""
    await _IN_KUBERNETES[fix.repair](client, Key.parse(fix.target))


def on_this_machine(fix: Fix, progress: Progress) -> None:
    """Repair something of this machine."""
    if fix.repair == "watches":
        host.allow_many_watches(progress)
    else:
        lifecycle.up(fix.target, progress=progress)


async def _trust(client: Client, bridge: Key) -> None:
    name = f"{bridge.name}-admission"
    secret = await client.get(SECRETS, Key(bridge.namespace, f"{name}-tls"))
    for kind in (MUTATING, VALIDATING):
        await trust(client, Target(kind, name), secret.data["ca.crt"])


async def _reconfigure(client: Client, cluster: Key) -> None:
    commands = await slurmsource.in_kubernetes(client, cluster.name, namespace=cluster.namespace)
    done = await commands.run(("scontrol", "reconfigure"), b"")
    if done.code:
        raise Terminal(f"scontrol reconfigure failed: {done.said}")


_IN_KUBERNETES: Final[dict[str, Callable[[Client, Key], Awaitable[None]]]] = {
    "trust": _trust,
    "reconfigure": _reconfigure,
}
IN_KUBERNETES: Final = frozenset(_IN_KUBERNETES)
