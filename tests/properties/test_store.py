"""The store and its indexes against a model that is obviously right and slow."""

from collections.abc import Iterable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from isthmus.kube.store import Store
from isthmus.model.meta import Key, ObjectMeta
from isthmus.model.pod import Pod, PodSpec

keys = st.builds(Key, st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y", "z"]))
nodes = st.sampled_from(["", "n1", "n2"])
owners = st.frozensets(st.sampled_from(["red", "blue", "green"]))


def on_node(pod: Pod) -> Iterable[str]:
    return [pod.spec.node_name] if pod.spec.node_name else []


def colours(pod: Pod) -> Iterable[str]:
    return pod.metadata.labels


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store: Store[Pod] = Store({"node": on_node, "colour": colours})
        self.model: dict[Key, Pod] = {}
        self.told: dict[Key, Pod] = {}  # what a reader knows who only listens to the hooks
        self.version = 0
        self.store.on_change(self.hook)

    def hook(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        assert self.told.get(key) is old
        assert self.store.get(key) is new  # told right after the change, never before
        assert old is not None or new is not None
        if new is None:
            del self.told[key]
        else:
            self.told[key] = new

    def pod(self, key: Key, node: str, marks: frozenset[str]) -> Pod:
        self.version += 1
        meta = ObjectMeta(
            name=key.name,
            namespace=key.namespace,
            resource_version=str(self.version),
            labels=dict.fromkeys(marks, "yes"),
        )
        return Pod(meta, PodSpec(node_name=node))

    @rule(key=keys, node=nodes, marks=owners)
    def put(self, key: Key, node: str, marks: frozenset[str]) -> None:
        pod = self.pod(key, node, marks)
        self.store.put(pod)
        self.model[key] = pod

    @rule(key=keys)
    def remove(self, key: Key) -> None:
        self.store.remove(key)
        self.model.pop(key, None)

    @rule(
        listed=st.dictionaries(keys, st.tuples(nodes, owners, st.booleans())),
        unreadable=st.frozensets(keys),
    )
    def replace(self, listed: dict[Key, tuple[str, frozenset[str], bool]], unreadable: frozenset[Key]) -> None:
        found: dict[Key, Pod] = {}
        for key, (node, marks, unchanged) in listed.items():
            known = self.model.get(key)
            found[key] = known if known and unchanged else self.pod(key, node, marks)
        kept = {key: pod for key, pod in self.model.items() if key in unreadable and key not in found}
        self.store.replace(found, keep=unreadable)
        self.model = kept | found

    @rule()
    def listen_late(self) -> None:
        seen: dict[Key, Pod | None] = {}
        self.store.on_change(lambda key, _old, new: seen.__setitem__(key, new))
        assert seen == self.model
        self.store._hooks.pop()

    @invariant()
    def objects_agree(self) -> None:
        assert dict(zip(self.store, self.store.values(), strict=True)) == self.model
        assert len(self.store) == len(self.model)
        assert self.told == self.model
        for key in self.model:
            assert key in self.store

    @invariant()
    def indexes_agree(self) -> None:
        for name, index in (("node", on_node), ("colour", colours)):
            expected: dict[str, set[Key]] = {}
            for key, pod in self.model.items():
                for value in index(pod):
                    expected.setdefault(value, set()).add(key)
            assert set(self.store.index_values(name)) == set(expected)  # nothing is left of emptied values
            for value, filed in expected.items():
                found = self.store.by(name, value)
                assert {pod.metadata.key for pod in found} == filed
                assert self.store.count(name, value) == len(filed) == len(found)
                assert all(self.store.get(pod.metadata.key) is pod for pod in found)
            assert self.store.by(name, "nothing") == ()


TestStore = StoreMachine.TestCase
