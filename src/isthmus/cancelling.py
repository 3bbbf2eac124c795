"""Lets those end who are cancelled, also where a failure hides it.

A task group that has failed, and is cancelled before all its tasks are through, raises its failures alone (before
Python 3.13). A loop that goes on after failures would then go on for ever, since nobody cancels it twice: with work
that is another's since leadership was lost, or at the end of a process, which waits for it.
"""

import asyncio


def heed(error: BaseException) -> None:
    """Raise `CancelledError` if the current task is being cancelled: before going on after an error."""
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        raise asyncio.CancelledError from error
