"""Writes Events while a process works, and what is left of them at its end."""

import asyncio
from contextlib import suppress

from isthmus.errors import IsthmusError
from isthmus.kube.recorder import Recorder


class Events:
    """A worker that lets a recorder write."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._drained = asyncio.Event()

    async def run(self) -> None:
        """Write until drained, and then the rest."""
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._recorder.run())
            await self._drained.wait()
            writing.cancel()
        with suppress(IsthmusError):
            await self._recorder.flush(everything=True)

    def drain(self) -> None:
        self._drained.set()
