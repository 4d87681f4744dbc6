"""Structured logging: JSON for machines, colours on a terminal."""

import sys
from typing import Any

import structlog

from berth.server.settings.base import env
from berth.server.tracing import spans

LOG_FORMAT = env.str("BERTH_LOG", default="console" if sys.stderr.isatty() else "json")
LOG_REQUESTS = env.bool("BERTH_LOG_REQUESTS", default=False)
LOG_LEVEL = env.str("BERTH_LOG_LEVEL", default="INFO").upper()


def with_origin(logger: object, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Which process says it, and to which trace it belongs, if to any."""
    return event | {"process": spans.this_process()} | spans.ids()


SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    with_origin,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]

if LOG_FORMAT == "json":
    RENDER = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
else:
    RENDER = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]

structlog.configure(
    processors=[
        structlog.stdlib.filter_by_level,
        *SHARED,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
    ],
    logger_factory=structlog.stdlib.LoggerFactory(),
    wrapper_class=structlog.stdlib.BoundLogger,
    cache_logger_on_first_use=True,
)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "event": {
            "()": structlog.stdlib.ProcessorFormatter,
            "foreign_pre_chain": SHARED,
            "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *RENDER],
        }
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "event"}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        "django": {"level": LOG_LEVEL, "propagate": True, "handlers": []},
        "django.request": {"level": "ERROR"},  # a 404 is an answer, not an event
        "django-q": {"level": "WARNING"},
        "psycopg.pool": {"level": "ERROR"},
        "botocore": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        # Where uvicorn is started by its own command it has set handlers of its own by now.
        "uvicorn": {"handlers": [], "propagate": True},
        "uvicorn.error": {"handlers": [], "propagate": True},
        "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": True},
        "berth.requests": {"level": "INFO" if LOG_REQUESTS else "WARNING"},
        "opentelemetry": {"level": "ERROR"},
    },
}
