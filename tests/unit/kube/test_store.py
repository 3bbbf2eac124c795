import pytest

from isthmus.hooks import Faults
from isthmus.kube.store import Store
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import Pod


def test_a_hook_that_fails_is_reported_and_stops_no_other() -> None:
    failures: list[Exception] = []
    heard: list[Key] = []
    store: Store[Pod] = Store(failed=failures.append)
    store.on_change(lambda *_: 1 / 0)  # type: ignore[arg-type] # what it returns does not matter
    store.on_change(lambda key, _old, _new: heard.append(key))
    key = Key("ns", "a")
    store.put(Pod(ObjectMeta(name="a", namespace="ns")))
    store.remove(key)
    store.replace({key: Pod(ObjectMeta(name="a", namespace="ns"))})
    assert heard == [key] * 3
    assert [type(it) for it in failures] == [ZeroDivisionError] * 3


def test_a_fault_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    report = Faults("pods")
    for _ in range(3):
        report(ValueError("odd"))
    report(ValueError("another"))
    told = [it.getMessage() for it in caplog.records]
    assert told == ["pods: a change was not processed; this is a bug"] * 2
