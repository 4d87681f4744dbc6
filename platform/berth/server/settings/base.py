"""Settings for the state directory, secret key, applications, database, caches, tasks and logging."""

import os
import secrets
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
import structlog

from berth.db.embedded.cluster import EmbeddedCluster
from berth.home import home
from berth.server.tracing import spans

env = environ.Env()


def persistent_key(path: Path) -> str:
    """Return the key in the file `path`. Generate the key first if the file does not exist."""
    if not path.exists():
        _write_once(path, secrets.token_urlsafe(50))
    return path.read_text().strip()


def _write_once(path: Path, text: str) -> None:
    """Create the file atomically. If two processes do so at the same time, the first one wins."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(text + "\n")
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()


BERTH_HOME = home()
DEBUG = env.bool("BERTH_DEBUG", default=False)
SECRET_KEY = env.str("BERTH_SECRET_KEY", default="") or persistent_key(BERTH_HOME / "secret_key")
SECRET_KEY_FALLBACKS = env.list("BERTH_SECRET_KEY_FALLBACKS", default=[])

ALLOWED_HOSTS = env.list("BERTH_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
# URL at which pods on the server's own machine reach the server. `berth up` sets this variable.
BERTH_LOCAL_URL = env.str("BERTH_LOCAL_URL", default="").rstrip("/")
if BERTH_LOCAL_URL:
    _host = urlsplit(BERTH_LOCAL_URL).hostname or ""
    ALLOWED_HOSTS.append(f"[{_host}]" if ":" in _host else _host)
CSRF_TRUSTED_ORIGINS = env.list("BERTH_TRUSTED_ORIGINS", default=[])

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "berth.server.web.formats"

# Pools

# Providers tag their machines with this name. If it is empty, a name is generated and stored in the database.
BERTH_INSTALLATION = env.str("BERTH_INSTALLATION", default="")
# URL that providers' machines use to reach this server, such as https://berth.example.org.
BERTH_PUBLIC_URL = env.str("BERTH_PUBLIC_URL", default="").rstrip("/")
BERTH_PUBLIC_CA = env.str("BERTH_PUBLIC_CA", default="")
BERTH_PLAIN_HTTP = env.bool("BERTH_PLAIN_HTTP", default=False)
# Number of simulated GPUs that replace the machine's own. Workloads on simulated GPUs run on the CPU.
BERTH_DECLARED_GPUS = env.int("BERTH_DECLARED_GPUS", default=0)
# Package with the `fake` provider and runtime, for tests only. If it is empty, neither is available.
BERTH_FAKE_POOLS = env.str("BERTH_FAKE_POOLS", default="")

# Applications

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "berth.server.web.admin_app.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "django_q",
    "channels",
    "berth.db",
    "berth.server.api",
    "berth.server.web",
    "pools",
    "projects",
    "scheduler",
]

# Database and caches

DATABASES = {"default": env.db_url("DATABASE_URL", default=EmbeddedCluster(BERTH_HOME / "postgres").url())}
DATABASES["default"].setdefault("OPTIONS", {})
DATABASES["default"]["CONN_MAX_AGE"] = 300
# The queries in berth.db.queries.prepared are prepared when a connection runs them for the second time.
DATABASES["default"]["OPTIONS"]["prepare_threshold"] = 1
# Check before each request whether PostgreSQL has closed the connection.
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
# Number of connections shared by the threads of a web process. With 0, each thread has its own.
BERTH_DATABASE_POOL = env.int("BERTH_DATABASE_POOL", default=8)

REDIS_URL = env.str("REDIS_URL", default="")
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}
    if REDIS_URL
    else {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        # Large enough that no client can evict the rate limit counters of another client.
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}

# Background tasks, which may be delayed and may run twice

Q_CLUSTER = {
    "name": "berth",
    "orm": "default",
    "workers": env.int("BERTH_TASK_WORKERS", default=1),
    "poll": 2,
    "guard_cycle": 2,
    "timeout": 300,
    "retry": 360,  # longer than the timeout, so that a task is retried only after its first run has ended
    "max_attempts": 5,
    "ack_failures": True,
    "catch_up": False,
    "save_limit": 500,
    "recycle": 2000,
    "label": "Tasks",
}

# Logs are JSON for machines and coloured text on a terminal.

LOG_FORMAT = env.str("BERTH_LOG", default="console" if sys.stderr.isatty() else "json")
LOG_REQUESTS = env.bool("BERTH_LOG_REQUESTS", default=False)
LOG_LEVEL = env.str("BERTH_LOG_LEVEL", default="INFO").upper()


def add_origin(logger: object, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """Add the process name to a log event, and the trace and span IDs if there is a current span."""
    return event | {"process": spans.process_name()} | spans.current_ids()


SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    add_origin,
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
        "django.request": {"level": "ERROR"},  # do not warn about every 404 response
        "django-q": {"level": "WARNING"},
        "psycopg.pool": {"level": "ERROR"},
        "botocore": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
        # The `uvicorn` command installs its own handlers before it imports the application.
        "uvicorn": {"handlers": [], "propagate": True},
        "uvicorn.error": {"handlers": [], "propagate": True},
        "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": True},
        "berth.requests": {"level": "INFO" if LOG_REQUESTS else "WARNING"},
        "opentelemetry": {"level": "ERROR"},
    },
}
