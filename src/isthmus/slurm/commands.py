"""Slurm's own commands as a source of jobs and nodes: on login nodes there is squeue, and often no slurmrestd.

With `--json` they print what slurmrestd answers, so the same types read both. Where a command runs is left to
`Run`: on this machine (`on_this_machine`), or in a pod of the cluster.
"""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from isthmus.errors import Retry, Terminal
from isthmus.model.slurm import Job, Node
from isthmus.slurm.errors import Garbled, NotFound

_PATIENCE: Final = 60.0
_UNKNOWN_JOB: Final = "Invalid job id"

T = TypeVar("T")


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    output: bytes
    errors: bytes = b""

    @property
    def said(self) -> str:
        """Why it failed, on one line."""
        text = (self.errors or self.output).decode(errors="replace")
        return " ".join(text.split())[:300] or f"it ended with {self.code}"


Run = Callable[[Sequence[str], bytes], Awaitable[Done]]
"""Run a command, with its words and what it reads from its standard input."""


class _Jobs(msgspec.Struct, frozen=True):
    jobs: tuple[Job, ...]


class _Nodes(msgspec.Struct, frozen=True):
    nodes: tuple[Node, ...]


class SlurmCommands:
    """Jobs and nodes, as the user sees them under whom the commands run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    async def jobs(self) -> tuple[Job, ...]:
        return (await self._read(("squeue", "--json", "--states=all"), _Jobs)).jobs

    async def job(self, job_id: int) -> tuple[Job, ...]:
        """One job; of an array, every task that has a record of its own."""
        found = await self._read(("scontrol", "show", "job", f"{job_id:d}", "--json"), _Jobs)
        if not found.jobs:
            raise NotFound(f"Slurm does not know job {job_id} (any more)")
        return found.jobs

    async def nodes(self) -> tuple[Node, ...]:
        return (await self._read(("scontrol", "show", "nodes", "--json"), _Nodes)).nodes

    async def drain(self, name: str, reason: str) -> None:
        await self._update("state=drain", f"nodename={name}", f"reason={reason}")

    async def resume(self, name: str) -> None:
        await self._update("state=resume", f"nodename={name}")

    async def _update(self, *words: str) -> None:
        done = await self.run(("scontrol", "update", *words), b"")
        if done.code:
            mine = "Invalid user id" in done.said
            raise Terminal(
                f"Slurm refuses it: {done.said}",
                remedy="only Slurm's operators and administrators may change nodes" if mine else "",
            )

    async def _read(self, words: Sequence[str], kind: type[T]) -> T:
        done = await self.run(words, b"")
        if _UNKNOWN_JOB in done.said and done.code:
            raise NotFound(f"{words[0]} failed: {done.said}")
        if done.code:
            raise Retry(f"{words[0]} failed: {done.said}", remedy="see whether slurmctld answers: scontrol ping")
        try:
            return msgspec.json.decode(done.output, type=kind)
        except msgspec.MsgspecError as error:
            raise Garbled(f"{' '.join(words)} printed invalid JSON: {error}") from error


def are_here(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this machine has Slurm's commands."""
    path = environ.get("PATH", "")
    return all(shutil.which(name, path=path) for name in ("squeue", "scontrol"))


async def on_this_machine(words: Sequence[str], fed: bytes) -> Done:
    """Run a command here, as who we are."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            output, errors = await process.communicate(fed)
    except TimeoutError:
        return Done(124, b"", f"no answer within {_PATIENCE:.0f} s".encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Done(process.returncode or 0, output, errors)
