"""The routes of the page.

Without a session there are the page's own files, which hold no data, and the way to log in. Requests that change
something must come from the page itself: other sites do not get the cookie sent (SameSite=Strict), the origin must
be ours, and a header repeats a secret that only the page can have read.
"""

import asyncio
import ipaddress
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypedDict, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
import structlog
from aiohttp import web

from isthmus.domain.bridge import reasons
from isthmus.domain.views.people import people
from isthmus.domain.web.audience import EVERYBODY, Audience
from isthmus.domain.web.frames import frame
from isthmus.domain.web.history import LEVELS, SERIES
from isthmus.errors import IsthmusError, Retry, Terminal, Wait
from isthmus.inspect import slurmsource, worklogs
from isthmus.kube.auth import Fixed
from isthmus.kube.client import Client as KubeClient
from isthmus.kube.config import Config as KubeConfig
from isthmus.kube.errors import Forbidden, NotFound
from isthmus.kube.stream import logs
from isthmus.model.meta import Key
from isthmus.tasks import helpers
from isthmus.web import assets, oidc
from isthmus.web.access import Person, UserInfo
from isthmus.web.actions import Act, Actions, RefusedError
from isthmus.web.hub import Hub, Viewer
from isthmus.web.oidc import Tokens
from isthmus.web.sessions import Session, Sessions
from isthmus.web.state import State
from isthmus.web.watch import Watch
from isthmus.web.why import Explainer, NotSeenError

log = structlog.get_logger()

COOKIE: Final = "__Host-isthmus"
CSRF_HEADER: Final = "X-Isthmus-Csrf"

_MAX_BODY: Final = 16 << 10
_MAX_VIEWERS: Final = 5000
_LOG_LINES: Final = 1000
_MAX_CODES: Final = 200
_LOOK: Final = 5.0
"""Seconds between two looks whether somebody still reads a log."""

_REVIEW: Final = 600.0
_NOT_ACCEPTED: Final = "Kubernetes does not accept this token: it may have expired"
_NOBODY: Final = Person(UserInfo("everybody on this machine"), "", EVERYBODY)


class _CookieFlags(TypedDict):
    path: str
    secure: bool
    httponly: bool


_COOKIE: Final[_CookieFlags] = {"path": "/", "secure": True, "httponly": True}

T = TypeVar("T", bound=msgspec.Struct)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Login(msgspec.Struct, frozen=True):
    token: str


class Server:
    """Answers browsers. Without `sessions` nobody needs to log in, and nobody can do anything."""

    def __init__(
        self,
        hub: Hub,
        watch: Watch,
        state: State,
        explainer: Explainer,
        *,
        kube: KubeConfig,
        sessions: Sessions | None,
        actions: Actions | None,
    ) -> None:
        self._hub, self._watch, self._state, self._explainer = hub, watch, state, explainer
        self._kube, self._sessions, self._actions = kube, sessions, actions
        self._assets = assets.load()
        self._page_headers = assets.HEADERS | {
            "Content-Security-Policy": assets.policy(self._assets["index.html"].content)
        }

    def routes(self) -> list[web.RouteDef]:
        seen = self._seen
        return [
            web.get("/", self._page),
            web.get("/static/{path:.+}", self._static),
            web.get("/api/logins", self._guarded(self._logins)),
            web.post("/api/login", self._guarded(self._login)),
            web.get(oidc.BEGIN, self._begin),
            web.get(oidc.RETURN, self._returned),
            web.post("/api/logout", self._guarded(self._logout)),
            web.get("/api/me", seen(self._me)),
            web.get("/api/snapshot", seen(self._snapshot)),
            web.get("/api/stream", seen(self._stream)),
            web.get("/api/why/job/{id:[0-9]{1,10}}", seen(self._why_job)),
            web.get("/api/why/pod/{namespace}/{name}", seen(self._why_pod)),
            web.get("/api/node/{name}", seen(self._node)),
            web.get("/api/log/pod/{namespace}/{name}", seen(self._pod_log)),
            web.get("/api/log/job/{id:[0-9]{1,10}}", seen(self._job_log)),
            web.get("/api/people", seen(self._people)),
            web.get("/api/reasons", seen(self._reasons)),
            web.get("/api/history/{level:[0-2]}", seen(self._history)),
            web.post("/api/act", seen(self._act, changes=True)),
        ]

    # Files

    async def _page(self, request: web.Request) -> web.Response:
        return self._file(request, "index.html")

    async def _static(self, request: web.Request) -> web.Response:
        return self._file(request, request.match_info["path"])

    def _file(self, request: web.Request, path: str) -> web.Response:
        asset = self._assets.get(path)
        if asset is None:
            raise web.HTTPNotFound(headers=assets.HEADERS)
        headers = self._page_headers | {"ETag": asset.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("If-None-Match") == asset.etag:
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        packs = "gzip" in request.headers.get("Accept-Encoding", "")
        headers |= {"Content-Type": asset.content_type} | ({"Content-Encoding": "gzip"} if packs else {})
        return web.Response(body=asset.packed if packs else asset.content, headers=headers)

    # Who asks

    def _guarded(self, handle: Handler) -> Handler:
        """Answer errors in JSON, with a sentence for people."""

        async def answer(request: web.Request) -> web.StreamResponse:
            try:
                self._check_origin(request)
                return await handle(request)
            except web.HTTPException as error:
                return _failed(error.status, error.text or error.reason)
            except NotSeenError as error:
                return _failed(HTTPStatus.NOT_FOUND, error.what)
            except (Forbidden, RefusedError) as error:
                return _failed(HTTPStatus.FORBIDDEN, str(error))
            except (Retry, Wait) as error:
                return _failed(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            except IsthmusError as error:
                return _failed(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))

        return answer

    def _seen(
        self, handle: Callable[[web.Request, Session], Awaitable[web.StreamResponse]], *, changes: bool = False
    ) -> Handler:
        """Answer only those who are logged in; what changes something asks for proof that the page sends it."""

        async def answer(request: web.Request) -> web.StreamResponse:
            session = await self._session(request, afresh=changes)
            if changes and request.headers.get(CSRF_HEADER, "") != session.csrf:
                raise web.HTTPForbidden(text="this request did not come from the page: reload it")
            return await handle(request, session)

        return self._guarded(answer)

    async def _session(self, request: web.Request, *, afresh: bool = False) -> Session:
        if self._sessions is None:
            return Session(Tokens(""), _NOBODY, now=0.0)
        found = await self._sessions.find(request.cookies.get(COOKIE, ""), afresh=afresh)
        if found is None:
            raise web.HTTPUnauthorized(text="log in first")
        return found

    def _check_origin(self, request: web.Request) -> None:
        origin = request.headers.get("Origin")
        if origin and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="requests from other sites are refused")
        if self._sessions is None and not is_loopback(request.host):
            # Else a site that points its name at this machine could read everything.
            raise web.HTTPForbidden(text="without login, this page is served on localhost only")

    async def _login(self, request: web.Request) -> web.Response:
        if self._sessions is None:
            raise web.HTTPBadRequest(text="there is no login here")
        token = _read(await _body(request), _Login).token.strip()
        if not (token.isascii() and token.isprintable() and token):
            raise web.HTTPUnauthorized(text=_NOT_ACCEPTED)
        session_id, session = await self._enter(request, self._sessions, Tokens(token))
        response = self._told(session)
        response.set_cookie(COOKIE, session_id, **_COOKIE, samesite="Strict")
        return response

    async def _enter(self, request: web.Request, sessions: Sessions, tokens: Tokens) -> tuple[str, Session]:
        """Begin a session with a token that the API server accepts."""
        begun = await sessions.begin(tokens)
        if begun is None:
            log.warning("login refused", peer=request.remote)
            raise web.HTTPUnauthorized(text=_NOT_ACCEPTED)
        person = begun[1].person
        log.info("login", user=person.user.username, slurm_user=person.slurm_user)
        return begun

    async def _logins(self, _request: web.Request) -> web.Response:
        """Ways to log in beside a token that is pasted."""
        return _json({"provider": oidc.BEGIN if self._sessions and self._sessions.provider else ""})

    def _provider(self) -> tuple[Sessions, oidc.Provider]:
        if self._sessions is None or self._sessions.provider is None:
            raise Terminal("there is no single sign-on here", remedy="log in with a token")
        return self._sessions, self._sessions.provider

    async def _begin(self, _request: web.Request) -> web.Response:
        try:
            place, state = await self._provider()[1].begin()
        except IsthmusError as error:
            return _refused(error)
        response = _elsewhere(place)
        # It comes back from another site, so the browser has to send this one along.
        response.set_cookie(oidc.COOKIE, state, **_COOKIE, samesite="Lax", max_age=600)
        return response

    async def _returned(self, request: web.Request) -> web.Response:
        """Begin a session with what the provider gave the browser."""
        query = request.query
        try:
            sessions, provider = self._provider()
            if refusal := query.get("error_description") or query.get("error"):
                raise Terminal(f"the provider refuses it: {refusal[:200]}")
            held = request.cookies.get(oidc.COOKIE, "")
            tokens = await provider.finish(query.get("code", ""), state=query.get("state", ""), held=held)
            session_id, _ = await self._enter(request, sessions, tokens)
        except (IsthmusError, web.HTTPUnauthorized) as error:
            return _refused(error)
        response = _elsewhere("/")
        response.set_cookie(COOKIE, session_id, **_COOKIE, samesite="Strict")
        response.del_cookie(oidc.COOKIE, **_COOKIE, samesite="Lax")
        return response

    async def _logout(self, request: web.Request) -> web.Response:
        if self._sessions is not None:
            self._sessions.end(request.cookies.get(COOKIE, ""))
        response = _json({})
        response.del_cookie(COOKIE, **_COOKIE, samesite="Strict")
        return response

    async def _me(self, _request: web.Request, session: Session) -> web.Response:
        return self._told(session)

    def _told(self, session: Session) -> web.Response:
        person = session.person
        audience = person.audience
        offered = self._actions.offered if self._actions else frozenset()
        return _json(
            {
                "user": person.user.username,
                "slurmUser": person.slurm_user,
                "login": self._sessions is not None,
                "can": sorted(person.can & offered),
                "csrf": session.csrf,
                "sees": {
                    "jobs": "all" if audience.all_jobs else "own" if audience.slurm_user else "none",
                    "pods": "all" if audience.all_pods else "some" if audience.namespaces else "none",
                    "nodes": "all" if audience.nodes else "none",
                },
            }
        )

    # What is seen

    async def _snapshot(self, request: web.Request, session: Session) -> web.Response:
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(status=HTTPStatus.NOT_ACCEPTABLE, text="this answer is compressed with gzip\n")
        packed = await self._hub.feed(session.person.audience).snapshot(self._hub.about)
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return web.Response(body=packed, headers=assets.HEADERS | headers)

    async def _stream(self, request: web.Request, session: Session) -> web.StreamResponse:
        if self._hub.viewers >= _MAX_VIEWERS:
            raise web.HTTPServiceUnavailable(text="too many pages are open: close some, or try again later")
        audience = session.person.audience
        headers = {
            "Content-Type": "text/event-stream",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",
        }
        response = web.StreamResponse(headers=assets.HEADERS | headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b"retry: 2000\n\n" + frame("beat", self._hub.about()))
        transport = request.transport
        if transport is None:
            return response
        viewer, feed = Viewer(transport), self._hub.feed(audience)
        epoch, _, version = request.query.get("since", "").rpartition(".")
        # Nothing is awaited between these: a change in between would be lost.
        for sent in feed.missed(epoch, int(version) if version.isdecimal() else 0):
            viewer.send(sent)
        feed.viewers.add(viewer)
        try:
            await self._until_gone(request, viewer, audience)
        finally:
            feed.viewers.discard(viewer)
        return response

    async def _until_gone(self, request: web.Request, viewer: Viewer, audience: Audience) -> None:
        """Wait until the viewer leaves, is logged out, or has other rights than when it came."""
        while not viewer.gone.is_set():
            try:
                async with asyncio.timeout(_REVIEW):
                    await viewer.gone.wait()
            except TimeoutError:
                try:
                    session = await self._session(request)
                except web.HTTPUnauthorized:
                    return
                if session.person.audience != audience:
                    return

    async def _why_job(self, request: web.Request, session: Session) -> web.Response:
        return _answer(await self._explainer.answer("job", request.match_info["id"], session.person.audience))

    async def _why_pod(self, request: web.Request, session: Session) -> web.Response:
        return _answer(await self._explainer.answer("pod", str(_key(request)), session.person.audience))

    async def _node(self, request: web.Request, session: Session) -> web.Response:
        return _answer(await self._explainer.answer("node", request.match_info["name"], session.person.audience))

    async def _reasons(self, request: web.Request, _session: Session) -> web.Response:
        """Put codes of Slurm's reasons in words."""
        codes = request.query.get("codes", "").split(",")[:_MAX_CODES]
        return _json({code: reasons.sentence(code) for code in codes if code.isalpha()})

    async def _people(self, _request: web.Request, session: Session) -> web.Response:
        watch = self._watch
        found = people(
            watch.poller.jobs.values(),
            watch.shares,
            watch.associations,
            now=time.time(),
            sees=lambda user: session.person.audience.sees("jobs", user),
        )
        return _json({"people": found, "read": watch.has_read_slurm})

    async def _history(self, request: web.Request, session: Session) -> web.Response:
        audience = session.person.audience
        if not (audience.all_jobs and audience.nodes):
            raise web.HTTPForbidden(text="the history shows sums over all jobs, which you may not see")
        level = int(request.match_info["level"])
        return _json({"series": SERIES, "seconds": LEVELS[level][0], "columns": self._state.history.columns(level)})

    async def _pod_log(self, request: web.Request, session: Session) -> web.StreamResponse:
        """Pass on what a container writes."""
        container = request.query.get("container", "")[:63]

        def read(client: KubeClient) -> AsyncIterator[bytes]:
            return logs(client, _key(request), container=container, follow=True, tail=_LOG_LINES)

        return await self._log(request, session, read)

    async def _job_log(self, request: web.Request, session: Session) -> web.StreamResponse:
        """Pass on what a batch script writes into its file, read in a login pod of its cluster."""
        job = self._explainer.seen_job(int(request.match_info["id"]), session.person.audience)

        async def read(client: KubeClient) -> AsyncIterator[bytes]:
            source = await slurmsource.in_kubernetes(client)
            async for piece in worklogs.followed(source, job, tail=_LOG_LINES):
                yield piece

        return await self._log(request, session, read)

    async def _log(
        self, request: web.Request, session: Session, read: Callable[[KubeClient], AsyncIterator[bytes]]
    ) -> web.StreamResponse:
        """Pass on a log as it grows, read with the token of who asks."""
        response = web.StreamResponse(
            headers=assets.HEADERS | {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}
        )
        async with helpers() as group:
            passing = group.create_task(self._pass_on(request, response, session, read))
            while not passing.done():
                await asyncio.wait({passing}, timeout=_LOOK)
                if request.transport is None or request.transport.is_closing():
                    passing.cancel()  # a container may be silent for days, and nobody waits for it any more
        if not response.prepared:
            await response.prepare(request)
        return response

    async def _pass_on(
        self,
        request: web.Request,
        response: web.StreamResponse,
        session: Session,
        read: Callable[[KubeClient], AsyncIterator[bytes]],
    ) -> None:
        config = self._kube
        if self._sessions is not None:
            config = msgspec.structs.replace(config, credentials=Fixed.token(session.token))
        async with KubeClient(config) as client:
            try:
                async for piece in read(client):
                    if not response.prepared:
                        await response.prepare(request)
                    await response.write(piece)
            except NotFound as error:
                raise NotSeenError(error.what) from error
            except ConnectionResetError:
                return  # the reader left

    async def _act(self, request: web.Request, session: Session) -> web.Response:
        if self._actions is None:
            raise web.HTTPForbidden(text="this page has no login, so nothing can be changed here")
        return _json({"done": await self._actions.do(session, _read(await _body(request), Act))})


async def _body(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(text="send JSON")
    body = await request.read()  # aiohttp takes no more than a mebibyte
    if len(body) > _MAX_BODY:
        raise web.HTTPRequestEntityTooLarge(_MAX_BODY, len(body))
    return body


def _read(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise web.HTTPBadRequest(text=f"the request cannot be read: {error}") from None


def _key(request: web.Request) -> Key:
    return Key(request.match_info["namespace"], request.match_info["name"])


def _json(found: object, *, status: int = HTTPStatus.OK) -> web.Response:
    return _answer(msgspec.json.encode(found), status=status)


def _answer(text: bytes, *, status: int = HTTPStatus.OK) -> web.Response:
    return web.Response(
        body=text,
        status=status,
        headers=assets.HEADERS | {"Content-Type": "application/json", "Cache-Control": "no-store"},
    )


def _elsewhere(place: str) -> web.Response:
    return web.Response(status=HTTPStatus.FOUND, headers=assets.HEADERS | {"Location": place})


def _refused(error: Exception) -> web.Response:
    """Tell on the login page why nobody is logged in."""
    text = error.text if isinstance(error, web.HTTPException) else str(error)
    return _elsewhere(f"/?{urlencode({'refused': text or ''})}")


def _failed(status: int, text: str) -> web.Response:
    return _json({"error": text}, status=status)


def is_loopback(host: str) -> bool:
    """Whether a host, perhaps with a port, is this machine itself."""
    name = urlsplit(f"//{host}").hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
