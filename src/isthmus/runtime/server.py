"""The HTTP servers of a process: health and metrics in the clear, webhooks over TLS.

aiohttp speaks HTTP/1.1 and nothing else, so the floods that HTTP/2 invites cannot be sent to us. Bodies are bounded
in size, and every request in time.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from isthmus.runtime.health import Checks, report
from isthmus.runtime.metrics import Metrics
from isthmus.runtime.reviews import Admit, Convert, NotAReviewError, review_admission, review_conversion

log = structlog.get_logger()

# The API server takes objects of up to 3 MiB; a review holds the old and the new one, and some words around them.
ADMISSION_LIMIT = 7 << 20
# A list is converted in one request, however long it is.
CONVERSION_LIMIT = 128 << 20

_BODY_WITHIN = 15.0
# The longest `timeoutSeconds` that a webhook can be registered with: the API server does not wait longer.
_ANSWER_WITHIN = 30.0
_CLOSE_WITHIN = 5.0
# What is left of a body that was refused is read for so long, so that its sender gets to see the answer.
_DISCARD_WITHIN = 0.5

Answer = Callable[[bytes], Awaitable[bytes]]


def health_routes(checks: Checks) -> list[web.RouteDef]:
    """Serve /healthz and /livez, which say that the process lives, and /readyz: whether it can work."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        ok, text = report(checks)
        return web.Response(
            text=text, status=web.HTTPOk.status_code if ok else web.HTTPServiceUnavailable.status_code
        )

    return [web.get("/healthz", healthz), web.get("/livez", healthz), web.get("/readyz", readyz)]


def metrics_routes(metrics: Metrics) -> list[web.RouteDef]:
    async def scrape(request: web.Request) -> web.Response:
        body, content_type = metrics.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    return [web.get("/metrics", scrape)]


def admission_route(path: str, admit: Admit, *, metrics: Metrics) -> web.RouteDef:
    """Serve a validating or mutating webhook."""
    return _review_route(path, lambda body: review_admission(body, admit), limit=ADMISSION_LIMIT, metrics=metrics)


def conversion_route(path: str, convert: Convert, *, metrics: Metrics) -> web.RouteDef:
    return _review_route(
        path, lambda body: review_conversion(body, convert), limit=CONVERSION_LIMIT, metrics=metrics
    )


@asynccontextmanager
async def serve(
    routes: Iterable[web.RouteDef], *, host: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve as long as the block lasts, and give it the port (a free one, if `port` is 0).

    At the end no new connection is taken, and requests under way have a few seconds.
    """
    app = web.Application()
    app.add_routes(routes)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=_CLOSE_WITHIN,
        lingering_time=_DISCARD_WITHIN,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _review_route(path: str, answer: Answer, *, limit: int, metrics: Metrics) -> web.RouteDef:
    counts = metrics.webhook(path)

    async def handle(request: web.Request) -> web.Response:
        began = time.perf_counter()
        counts.in_flight.inc()
        response = web.Response(status=web.HTTPInternalServerError.status_code)
        try:
            response = await _reviewed(request, answer, limit=limit)
        finally:
            counts.in_flight.dec()
            counts.codes(response.status).inc()
            counts.seconds.observe(time.perf_counter() - began)
        return response

    return web.post(path, handle)


async def _reviewed(request: web.Request, answer: Answer, *, limit: int) -> web.Response:
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            body = await _read(request, limit)
        async with asyncio.timeout(_ANSWER_WITHIN):
            reviewed = await answer(body)
    except NotAReviewError as error:
        return web.Response(status=web.HTTPBadRequest.status_code, text=f"not a valid review: {error}\n")
    except _TooLargeError:
        text = f"the body is longer than {limit} bytes\n"
        return web.Response(status=web.HTTPRequestEntityTooLarge.status_code, text=text)
    except TimeoutError:
        return web.Response(status=web.HTTPRequestTimeout.status_code, text="the request took too long\n")
    except Exception:
        log.exception("unexpected error in a webhook", path=request.path)
        return web.Response(status=web.HTTPInternalServerError.status_code, text="see the log of the webhook\n")
    return web.Response(body=reviewed, content_type="application/json")


class _TooLargeError(Exception):
    """The body is longer than anything that the API server sends."""


async def _read(request: web.Request, limit: int) -> bytes:
    if (request.content_length or 0) > limit:
        raise _TooLargeError
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > limit:
            raise _TooLargeError
    return bytes(body)
