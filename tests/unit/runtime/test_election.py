"""What a leader does when its process stands still at a bad moment."""

import pytest

from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client
from isthmus.kube.config import Config
from isthmus.model.meta import Key
from isthmus.runtime import election
from isthmus.runtime.candidate import Record, Terms
from isthmus.runtime.election import Election
from isthmus.runtime.metrics import Metrics

TERMS = Terms()
NOBODY_LISTENS = "http://127.0.0.1:1"


class NoFuse:
    def set(self, seconds: float) -> None:
        raise AssertionError(f"a fuse for {seconds} s")

    def remove(self) -> None:
        pass


async def test_work_that_would_begin_in_a_term_that_is_over_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(election, "clock", lambda: now[0])
    began: list[float] = []

    async def work() -> None:
        began.append(now[0])

    class SlowLog:
        def info(self, *_: object, **__: object) -> None:
            now[0] += TERMS.deadline

        warning = info

    monkeypatch.setattr(election, "log", SlowLog())
    async with Client(Config(NOBODY_LISTENS, Fixed())) as client:
        elected = Election(client, Key("default", "leader"), metrics=Metrics(), fuse=NoFuse(), terms=TERMS)
        ours = Record(elected.identity, TERMS.duration, transitions=0, version="1")
        elected._candidate.stored(ours, started=now[0], now=now[0])
        assert elected.leads()
        assert not await elected._reign(work)
    assert began == []
