"""The verbs of the Kubernetes API, for any kind.

    async with Client(load()) as client:
        pod = await client.get(PODS, "default/web")
        await client.merge_patch(PODS, "default/web", {"metadata": {"labels": {"seen": "yes"}}})

An object is named by its `Key`, or in text: `namespace/name`, or `name` where the kind has no namespaces. Reading
gives structs. Writing takes plain mappings, or structs that are complete. Unknown fields are refused by the server
(`fieldValidation=Strict`): a misspelt field is an error, not a setting that silently does nothing.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from isthmus.errors import Terminal
from isthmus.kube.errors import UNREADABLE, Expired, Garbled
from isthmus.kube.transport import Transport
from isthmus.model.base import EMPTY, Data, Kind, Listing, ListMeta
from isthmus.model.meta import Key
from isthmus.tasks import helpers

T = TypeVar("T")
Body = Mapping[str, Any] | msgspec.Struct

PAGE: Final = 500
"""Objects per page: unpacking and decoding that many holds up the event loop for about 20 ms."""

_PAGES_AHEAD: Final = 2
"""Pages in line behind the one that is read and before the next one asked for: enough to keep a server busy."""

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML

_STRICT = {"fieldValidation": "Strict"}


def _dry(dry_run: bool) -> dict[str, str]:  # noqa: FBT001 - of one argument
    return {"dryRun": "All"} if dry_run else {}


# Built-in kinds are sent with the metadata of the list before its items; custom resources the other way round.
_HEAD = re.compile(rb'\{(?:"kind":"\w+","apiVersion":"[\w./-]+",)?"metadata":(\{[^{}]*\}),"items":\[')


class Selection(TypedDict, total=False):
    """Which objects of a kind: of one namespace or all, by labels and fields as kubectl takes them."""

    namespace: str
    labels: str
    fields: str


class _WithMeta(Data, frozen=True):
    metadata: ListMeta = ListMeta()


_LIST_META = msgspec.json.Decoder(ListMeta)
_LIST_TAIL = msgspec.json.Decoder(_WithMeta)


class Client(Transport):
    """One API server."""

    async def get(self, kind: Kind[T], key: Key | str) -> T:
        return self._decode(kind, await self.send("GET", path(kind, key)))

    async def pages(
        self, kind: Kind[Any], take: Callable[[bytes], None], *, limit: int = PAGE, **selected: Unpack[Selection]
    ) -> None:
        """List page by page, undecoded. All pages together are the state at one version.

        Where a page begins with the token of the next one, as those of built-in kinds do, that one is asked for at
        once: the server prepares several pages at a time, while `take` works on one.
        """
        query = selection(selected) | ({"limit": str(limit)} if limit else {})
        where = collection(kind, selected.get("namespace", ""))
        # As long as this queue is full, no further page is asked for.
        pages: asyncio.Queue[asyncio.Task[bytes] | None] = asyncio.Queue(_PAGES_AHEAD)

        async with helpers() as group:

            async def ask() -> None:
                while True:
                    target = with_query(where, query)
                    token = asyncio.get_running_loop().create_future()
                    await pages.put(group.create_task(self._page(target, token)))
                    query["continue"] = await token
                    if not query["continue"]:
                        break
                await pages.put(None)

            group.create_task(ask())
            while page := await pages.get():
                take(await page)

    async def _page(self, target: str, token: "asyncio.Future[str]") -> bytes:
        """Get one page; pass on the token of the next one as soon as it is known."""

        def peek(beginning: bytes) -> bool:
            head = _HEAD.match(beginning)
            if head and not token.done():
                token.set_result(_next_page(head[0]))
            return head is not None

        page = await self.send("GET", target, compressed=True, peek=peek)
        following = _next_page(page)
        if not token.done():
            token.set_result(following)
        elif token.result() != following:
            # The connection broke in the middle, and what came when it was asked again is another version.
            raise Garbled(f"GET {target}: the list changed while it was read")
        return page

    async def list(self, kind: Kind[T], *, limit: int = PAGE, **selected: Unpack[Selection]) -> Listing[T]:
        """List all objects, of one namespace or of all, as they were at one version."""
        pages: list[Listing[T]] = []

        def take(page: bytes) -> None:
            pages.append(self._decode_page(kind, page))

        try:
            await self.pages(kind, take, limit=limit, **selected)
        except Expired:
            # The snapshot behind the pages was compacted away while we read it: one page has no such problem.
            pages.clear()
            await self.pages(kind, take, limit=0, **selected)
        if len(pages) == 1:
            return pages[0]
        return Listing(tuple(item for page in pages for item in page.items), pages[-1].metadata)

    async def create(self, kind: Kind[T], body: Body, *, dry_run: bool = False) -> T:
        """Create an object; its namespace, if any, stands in its metadata."""
        manifest = complete(kind, body)
        where = collection(kind, manifest["metadata"].get("namespace", ""), one=True)
        return await self._write("POST", with_query(where, _STRICT | _dry(dry_run)), kind, manifest)

    async def merge_patch(
        self, kind: Kind[T], key: Key | str, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> T:
        """Change the given fields (null removes one); a `resourceVersion` in it makes it conditional."""
        target = with_query(path(kind, key, subresource), _STRICT)
        return await self._write("PATCH", target, kind, patch, content=MERGE_PATCH)

    async def json_patch(
        self, kind: Kind[T], key: Key | str, patch: Sequence[Mapping[str, Any]], *, subresource: str = ""
    ) -> T:
        """Change an object step by step; a `test` step that fails refuses the whole (`Invalid`)."""
        target = with_query(path(kind, key, subresource), _STRICT)
        return await self._write("PATCH", target, kind, patch, content=JSON_PATCH)

    async def apply(
        self,
        kind: Kind[T],
        body: Body,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
        dry_run: bool = False,
    ) -> T:
        """Make the given fields so and own them; fields that we applied before and left out now are removed.

        Raises `FieldConflict` where another manager owns a field and wants it otherwise, unless `force` takes it.
        """
        manifest = complete(kind, body)
        query = {"fieldManager": manager, **_STRICT, **_dry(dry_run)}
        if force:
            query["force"] = "true"
        target = with_query(path(kind, _key(manifest), subresource), query)
        return await self._write("PATCH", target, kind, manifest, content=APPLY_PATCH)

    async def delete(
        self,
        kind: Kind[Any],
        key: Key | str,
        *,
        uid: str = "",
        version: str = "",
        propagation: str = "",
        grace: int | None = None,
    ) -> None:
        """Delete an object, if it is still the one with this uid, at this version.

        `propagation` is what happens to the objects it owns: Background, Foreground or Orphan.
        """
        preconditions = {"uid": uid} if uid else {}
        if version:
            preconditions["resourceVersion"] = version
        options = _delete_options(propagation, grace)
        if preconditions:
            options["preconditions"] = preconditions
        await self.send("DELETE", path(kind, key), body=msgspec.json.encode(options))

    async def delete_all(
        self,
        kind: Kind[Any],
        *,
        propagation: str = "",
        grace: int | None = None,
        **selected: Unpack[Selection],
    ) -> None:
        """Delete every object of a kind that is selected; of one namespace, where the kind has them."""
        where = collection(kind, selected.get("namespace", ""), one=True)
        target = with_query(where, selection(selected))
        await self.send("DELETE", target, body=msgspec.json.encode(_delete_options(propagation, grace)))

    async def bind(
        self,
        pod: Key,
        node: str,
        *,
        uid: str = "",
        annotations: Mapping[str, str] = EMPTY,
        labels: Mapping[str, str] = EMPTY,
    ) -> None:
        """Place a pod on a node, and annotate it in the same write. With `uid`, only that very pod."""
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace}
        if uid:
            metadata["uid"] = uid
        if annotations:
            metadata["annotations"] = dict(annotations)
        if labels:
            metadata["labels"] = dict(labels)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self.send("POST", f"{pod_path(pod)}/binding", body=msgspec.json.encode(binding))

    async def evict(self, pod: Key, *, uid: str = "") -> None:
        """Evict a pod; `TooManyRequests` while a disruption budget forbids it."""
        options = _delete_options("", None)
        if uid:
            options["preconditions"] = {"uid": uid}
        metadata = {"name": pod.name, "namespace": pod.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}
        await self.send("POST", f"{pod_path(pod)}/eviction", body=msgspec.json.encode(eviction))

    async def raw(self, target: str, *, accept: str = "*/*") -> bytes:
        """Get anything that the API server serves: `/version`, `/readyz`, `/metrics`."""
        return await self.send("GET", target, accept=accept)

    async def _write(
        self, method: str, target: str, kind: Kind[T], body: object, *, content: str = "application/json"
    ) -> T:
        return self._decode(kind, await self.send(method, target, body=msgspec.json.encode(body), content=content))

    def _decode(self, kind: Kind[T], answer: bytes) -> T:
        try:
            return kind.decoder.decode(answer)
        except UNREADABLE as error:
            raise Garbled(f"{self.config.server} sent an invalid {kind.name}: {error}") from error

    def _decode_page(self, kind: Kind[T], page: bytes) -> Listing[T]:
        try:
            return kind.list_decoder.decode(page)
        except UNREADABLE as error:
            raise Garbled(f"{self.config.server} sent an invalid list of {kind.plural}: {error}") from error


def _next_page(page: bytes) -> str:
    """Find the token of the next page, without reading the objects of this one if that can be helped."""
    head = _HEAD.match(page)
    try:
        found = _LIST_META.decode(head[1]) if head else _LIST_TAIL.decode(page).metadata
    except UNREADABLE:
        return ""  # the decoder of the page says what is wrong with it
    return found.continue_


def collection(kind: Kind[Any], namespace: str = "", *, one: bool = False) -> str:
    """Make the path of all objects of a kind; with `one`, a kind that has namespaces must be given one."""
    if namespace and not kind.namespaced:
        raise Terminal(f"{kind.plural} are not namespaced, but the namespace {namespace!r} was given")
    if one and kind.namespaced and not namespace:
        raise Terminal(f"{kind.plural} are namespaced, but no namespace was given", remedy="set metadata.namespace")
    if namespace:
        return f"{kind.root}/namespaces/{_segment(namespace)}/{kind.plural}"
    return f"{kind.root}/{kind.plural}"


def path(kind: Kind[Any], key: Key | str, subresource: str = "") -> str:
    """Make the path of one object, or of a part of it."""
    namespace, name = Key.parse(key) if isinstance(key, str) else key
    where = f"{collection(kind, namespace, one=True)}/{_segment(name)}"
    return f"{where}/{subresource}" if subresource else where


def pod_path(pod: Key) -> str:
    """Make the path of a pod, under which its binding, eviction, logs and shells are found."""
    return f"/api/v1/namespaces/{_segment(pod.namespace)}/pods/{_segment(pod.name)}"


def selection(selected: Selection) -> dict[str, str]:
    """Make the query that selects by labels and fields."""
    query = {"labelSelector": selected.get("labels", ""), "fieldSelector": selected.get("fields", "")}
    return {name: value for name, value in query.items() if value}


def with_query(where: str, query: Mapping[str, str]) -> str:
    """Put a query behind a path."""
    return f"{where}?{urlencode(query)}" if query else where


def complete(kind: Kind[Any], body: Body) -> dict[str, Any]:
    """Make a manifest that says what kind it is."""
    content: dict[str, Any] = dict(body) if isinstance(body, Mapping) else msgspec.to_builtins(body)
    given = (content.get("apiVersion", kind.api_version), content.get("kind", kind.name))
    if given != (kind.api_version, kind.name):
        raise Terminal(f"expected a {kind.name} of {kind.api_version}, got a {given[1]} of {given[0]}")
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {}, **content}


def _key(manifest: Mapping[str, Any]) -> Key:
    metadata = manifest["metadata"]
    return Key(metadata.get("namespace", ""), metadata.get("name", ""))


def _segment(name: str) -> str:
    """Quote a name for a path, and refuse what would lead to another path."""
    if not name or name in {".", ".."} or "/" in name or "%" in name:
        raise Terminal(f"{name!r} is not a valid object name")
    return quote(name, safe=":")


def _delete_options(propagation: str, grace: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if propagation:
        options["propagationPolicy"] = propagation
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return options
