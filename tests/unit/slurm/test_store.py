from isthmus.slurm.store import Store


def test_hooks_hear_of_changes_and_of_nothing_else() -> None:
    store: Store[str, int] = Store()
    heard: list[tuple[str, int | None, int | None]] = []
    store.on_change(lambda key, old, new: heard.append((key, old, new)))
    store.put("a", 1)
    store.put("a", 1)
    store.put("a", 2)
    store.drop("a")
    store.drop("a")
    assert heard == [("a", None, 1), ("a", 1, 2), ("a", 2, None)]


def test_reads_like_a_mapping() -> None:
    store: Store[str, int] = Store()
    store.put("a", 1)
    assert dict(store) == {"a": 1}
    assert store.get("b") is None
    assert "a" in store


def test_a_hook_that_fails_is_reported_and_stops_no_other() -> None:
    failures: list[Exception] = []
    heard: list[str] = []
    store: Store[str, int] = Store(failed=failures.append)
    store.on_change(lambda *_: 1 / 0)  # type: ignore[arg-type] # what it returns does not matter
    store.on_change(lambda key, _old, _new: heard.append(key))
    store.put("a", 1)
    store.drop("a")
    assert heard == ["a", "a"]
    assert [type(it) for it in failures] == [ZeroDivisionError] * 2
