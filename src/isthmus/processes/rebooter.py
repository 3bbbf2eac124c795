"""The rebooter: one process on every machine, which drains and reboots that machine and no other."""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from isthmus.health import boots
from isthmus.health.rebooter import Rebooter, by_command
from isthmus.health.rebootlock import RebootLock
from isthmus.kube.recorder import Recorder
from isthmus.model.nodeconfigurator import EvictionMethod
from isthmus.runtime import process
from isthmus.runtime.events import Events

log = structlog.get_logger()

COMMAND: Final = ("nsenter", "--target=1", "--mount", "--", "systemctl", "reboot")
"""Reboots a machine that systemd runs, in order, from a pod that sees its processes."""


class Options(process.Options, frozen=True, kw_only=True):
    """How the process runs, as its flags say."""

    node: str
    method: EvictionMethod = "evict"
    command: tuple[str, ...] = COMMAND
    max_concurrent: int = 1
    ignore_protection: bool = False
    recheck: float = 60.0
    proc: Path = boots.PROC
    """Where the machine's processes are shown."""


async def run(options: Options, *, environ: Mapping[str, str] = os.environ) -> None:
    boots.check_namespace()
    boots.current(options.proc)  # says at once what is missing
    async with process.begin(options, environ=environ) as begun:
        client, manager = begun.client, begun.manager
        recorder = Recorder(client, controller="isthmus-rebooter", instance=socket.gethostname())
        manager.work(Events(recorder))
        rebooter = Rebooter(
            client,
            options.node,
            lock=RebootLock(client, begun.kube.namespace, machine=options.node, limit=options.max_concurrent),
            boot=lambda: boots.current(options.proc),
            reboot=by_command(options.command),
            recorder=recorder,
            metrics=begun.metrics,
            method=options.method,
            ignore_protection=options.ignore_protection,
            recheck=options.recheck,
        )
        manager.cache("node", rebooter.nodes)
        manager.cache("pods", rebooter.pods)
        manager.work(rebooter.controller)
        log.info("starting", node=options.node, method=options.method)
        await manager.run()
