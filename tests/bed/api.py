"""The API server, asked from within the test process: reads, and commands in pods, without a kubectl for each.

    api = Api(kubeconfig)
    api.get("pod/web", "default")["status"]
    api.get("pods", "default", selector="app=web")["items"]
    api.exec("web", "hostname", namespace="default").stdout
    api.close()

A kubectl costs a tenth of a second of CPU or more, each time, and tests that wait ask several times a second. This
is our own client, whose event loop runs in a thread of its own. Objects are named as for kubectl (`pod/web`,
`po/web`, `nodeset.slinky.slurm.net/w`) and found by what the server says that it serves.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from isthmus.errors import IsthmusError
from isthmus.kube import config
from isthmus.kube.client import Client, with_query
from isthmus.kube.stream import execute
from isthmus.model.meta import Key
from tests.bed.commands import PATIENCE, CommandError, Done, said

T = TypeVar("T")
Object = dict[str, Any]

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class _Kind(NamedTuple):
    """Where objects of a kind are found."""

    root: str
    plural: str
    namespaced: bool


class Api:
    """One API server, for one test process."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="api", daemon=True)
        self._thread.start()
        self._client = Client(config.from_files([kubeconfig]))
        self._wait(self._client.__aenter__())

    def close(self) -> None:
        """End all connections, and the thread."""
        self._wait(self._client.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def get(self, what: str, namespace: str = "", *, selector: str = "") -> Object:
        """Read an object (`pod/web`), or a list of all that the selector selects (`pods`)."""
        word, _, name = what.partition("/")
        return self._ask(f"get {what}", namespace, self._get(word, name, namespace, selector))

    def ask(self, question: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Let code of ours ask."""
        return self._wait(question(self._client))

    def exec(self, pod: str, *words: str, namespace: str, container: str = "", stdin: str | None = None) -> Done:
        """Run a program in a pod; in the container that kubectl would take, unless one is named."""
        request = f"exec {pod} -- {said(words)}"
        return self._ask(request, namespace, self._exec(Key(namespace, pod), words, container, stdin))

    async def _get(self, word: str, name: str, namespace: str, selector: str) -> Object:
        kind = await self._kind(word)
        where = f"/namespaces/{quote(namespace)}" if kind.namespaced and namespace else ""
        target = f"{kind.root}{where}/{kind.plural}{f'/{quote(name)}' if name else ''}"
        answer = await self._client.raw(
            with_query(target, {"labelSelector": selector} if selector else {}), accept="application/json"
        )
        found: Object = msgspec.json.decode(answer)
        return found

    async def _kind(self, word: str) -> _Kind:
        """Find a kind by any of its names; ask the server again for one that is new."""
        if word not in self._kinds:
            self._kinds = {}
            # As for kubectl, the core group comes first, and then the others in the server's order.
            for root in ("/api", "/apis"):
                answer = msgspec.json.decode(await self._client.raw(root, accept=_DISCOVERY))
                for group in answer["items"]:
                    self._learn(root, group)
        if word not in self._kinds:
            raise LookupError(f"the API server serves no kind {word!r}")
        return self._kinds[word]

    def _learn(self, root: str, group: Object) -> None:
        name = group["metadata"].get("name", "")
        for version in group["versions"]:
            at = "/".join(it for it in (root, name, version["version"]) if it)
            for it in version.get("resources", ()):
                kind = _Kind(at, it["resource"], it["scope"] == "Namespaced")
                singular = it.get("singularResource") or it["responseKind"]["kind"].lower()
                for word in (it["resource"], singular, *it.get("shortNames", ())):
                    self._kinds.setdefault(word, kind)
                    self._kinds.setdefault(f"{word}.{name}", kind)

    async def _exec(self, pod: Key, words: tuple[str, ...], container: str, stdin: str | None) -> Done:
        found = await self._get("pods", pod.name, pod.namespace, "")
        container = container or _default_container(found)
        out, err = bytearray(), bytearray()
        try:
            code = await execute(
                self._client,
                pod,
                words,
                container=container,
                stdin=None if stdin is None else _once(stdin.encode()),
                stdout=out.extend,
                stderr=err.extend,
            )
        except IsthmusError as error:
            # The server says little about a container that does not run; the pod says more.
            raise CommandError(f"{error}\n{_state(found)}") from error
        return Done(list(words), code, out.decode(errors="replace"), err.decode(errors="replace"))

    def _ask(self, request: str, namespace: str, asked: Coroutine[Any, Any, T]) -> T:
        try:
            return self._wait(asked)
        except (IsthmusError, CommandError) as error:
            raise CommandError(f"{request}{f' in namespace {namespace}' if namespace else ''}: {error}") from error

    def _wait(self, asked: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        try:
            return future.result(PATIENCE)
        finally:
            future.cancel()  # whoever was interrupted leaves nothing running


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _default_container(pod: Object) -> str:
    marked = pod["metadata"].get("annotations", {}).get(DEFAULT_CONTAINER)
    return str(marked or pod["spec"]["containers"][0]["name"])


def _state(pod: Object) -> str:
    """How a pod and its containers are."""
    status = pod["status"]
    containers = [f"{it['name']} {it['state']}" for it in status.get("containerStatuses", ())]
    return f"the pod is {status.get('phase')}; {'; '.join(containers) or 'no container was started'}"
