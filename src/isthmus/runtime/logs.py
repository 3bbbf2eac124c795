"""Logs: text for a person at a terminal, a JSON object per line for machines, and never a secret in either.

Modules log with `structlog.get_logger()`, a short event and values beside it. Call `configure` once per process,
before anything logs.
"""

import logging
import re
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["text", "json"]

HIDDEN = "[hidden]"

# Whole names or their last part: "token" and "slurm_token" are secret, "token_file" and "key" (of a queue) are not.
_SECRET_NAME = re.compile(
    r"(?i)(^|[-_.])(tokens?|jwt|passwords?|passwd|secrets?|credentials?|authorization|cookie|private[-_]?key"
    r"|api[-_]?key|signing[-_]?key|client[-_]?key|ca[-_]?key|tls[-_]?key)([-_]?data)?$"
)
# Secrets that travel inside a sentence: an error may quote a header, a JWT or a key.
_SECRET_TEXT = re.compile(
    r"(?P<scheme>(?i:bearer|basic)\s+)[\w.~+/=-]{8,}"
    r"|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


def configure(*, level: Level = "info", form: Form | None = None, stream: TextIO | None = None) -> None:
    """Send all logs to `stream` (standard error); the form, if not given, depends on whether that is a terminal."""
    stream = stream or sys.stderr
    form = form or ("text" if stream.isatty() else "json")
    threshold = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *_rendering(form, colours=stream.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    # Libraries log through the standard library, and so do `kube` and `slurm`, which are like libraries.
    logging.basicConfig(handlers=[_Forward()], level=max(threshold, logging.WARNING), force=True)
    logging.getLogger("isthmus").setLevel(threshold)


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace values whose names say that they are secret, and secrets within texts, at any depth."""
    return {name: _safe(name, value) for name, value in event.items()}


def _safe(name: str, value: object) -> object:
    match value:
        case _ if _SECRET_NAME.search(name):
            return HIDDEN
        case str():
            return _SECRET_TEXT.sub(lambda found: (found["scheme"] or "") + HIDDEN, value)
        case Mapping():
            return {inner: _safe(str(inner), item) for inner, item in value.items()}
        case list() | tuple():
            return [_safe("", item) for item in value]
        case bool() | int() | float() | None:
            return value
        case _:
            return _safe("", repr(value))


def _rendering(form: Form, *, colours: bool) -> list[Processor]:
    # The traceback becomes text before secrets are looked for: it may quote one.
    if form == "json":
        encode = msgspec.json.Encoder().encode
        render = structlog.processors.JSONRenderer(serializer=lambda event, **_: encode(event).decode())
        return [structlog.processors.format_exc_info, hide_secrets, render]
    return [structlog.processors.format_exc_info, hide_secrets, structlog.dev.ConsoleRenderer(colors=colours)]


class _Forward(logging.Handler):
    """Hands records of the standard library to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        logger: FilteringBoundLogger = structlog.get_logger()
        logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
