"""The informer against a history: whatever it sees, misses and cannot read, the store ends as the server stands.

No server here: the machine plays the stream of bytes that one would send, through the real framing, and the real
lists. `tests/flows/kube` holds the same against a real one.
"""

from typing import TYPE_CHECKING, Any, cast

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from isthmus.kube.informer import Informer
from isthmus.kube.watch import Frames, Lines
from isthmus.model.meta import Key
from isthmus.model.pod import PODS, Pod

if TYPE_CHECKING:
    from isthmus.kube.client import Client

names = st.sampled_from(["a", "b", "c", "d"])
nodes = st.sampled_from(["n1", "n2"])
UNREADABLE = 7


class InformerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.informer = Informer(cast("Client", None), PODS, indexes={"node": lambda pod: [pod.spec.node_name]})
        self.now: dict[str, dict[str, Any]] = {}  # what the server holds
        self.readable: dict[str, str] = {}  # the newest readable version that the informer was sent, by name
        self.version = 1
        self.unsent = b""
        self.connected = False
        self.told: dict[str, str] = {}
        self.informer.store.on_change(self.hook)

    def hook(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        assert (old.metadata.resource_version if old else None) == self.told.get(key.name)
        if new is None:
            del self.told[key.name]
        else:
            self.told[key.name] = new.metadata.resource_version

    def change(self, type_: str, name: str, node: object) -> None:
        self.version += 1
        meta = {"name": name, "namespace": "ns", "resourceVersion": str(self.version)}
        pod = {"metadata": meta, "spec": {"nodeName": node}}
        if type_ == "DELETED":
            del self.now[name]
        else:
            self.now[name] = pod
        self.unsent += msgspec.json.encode({"type": type_, "object": pod}) + b"\n"
        if self.connected:
            if type_ == "DELETED":
                self.readable.pop(name, None)
            elif node != UNREADABLE:
                self.readable[name] = str(self.version)

    @rule(name=names, node=nodes | st.just(UNREADABLE))
    def write(self, name: str, node: object) -> None:
        self.change("MODIFIED" if name in self.now else "ADDED", name, node)

    @rule(name=names)
    def delete(self, name: str) -> None:
        if name in self.now:
            # A deleted object comes with its last state, which may be the unreadable one.
            self.change("DELETED", name, self.now[name]["spec"]["nodeName"])

    @precondition(lambda self: not self.connected)
    @rule()
    def list_again(self) -> None:
        """Start, or start again after a version that was too old: what happened in between was never sent."""
        page = msgspec.json.encode(
            {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.now.values())}
        )
        unreadable: dict[Key, str] = {}
        listing = self.informer._salvage(page, unreadable)
        self.informer._replace({pod.metadata.key: pod for pod in listing.items}, unreadable, listing.version)
        self.readable = {
            name: pod["metadata"]["resourceVersion"]
            if pod["spec"]["nodeName"] != UNREADABLE
            else self.readable[name]
            for name, pod in self.now.items()
            if pod["spec"]["nodeName"] != UNREADABLE or name in self.readable
        }
        self.unsent = b""
        self.lines = Lines()
        self.frames = Frames(PODS, version=listing.version)
        self.connected = True

    @precondition(lambda self: self.connected)
    @rule(cut=st.integers(0, 400))
    def receive(self, cut: int) -> None:
        piece, self.unsent = self.unsent[:cut], self.unsent[cut:]
        if complete := self.lines.feed(piece):
            batch = self.frames.batch(complete)
            self.informer._apply(batch)

    @precondition(lambda self: self.connected)
    @rule()
    def lose_touch(self) -> None:
        self.receive(len(self.unsent))
        self.connected = False

    @invariant()
    def hooks_and_store_agree(self) -> None:
        store = self.informer.store
        assert {
            key.name: pod.metadata.resource_version for key, pod in zip(store, store.values(), strict=True)
        } == (self.told)

    @invariant()
    def when_everything_was_sent_the_store_stands_as_the_server(self) -> None:
        if self.connected and not self.unsent:
            assert self.told == self.readable


TestInformer = InformerMachine.TestCase
