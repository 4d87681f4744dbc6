"""Database settings: DATABASE_URL or the embedded PostgreSQL."""

from berth.db.embedded import Embedded
from berth.server.settings.base import BERTH_HOME, env

DATABASES = {"default": env.db_url("DATABASE_URL", default=Embedded(BERTH_HOME / "postgres").url())}
DATABASES["default"].setdefault("OPTIONS", {})

# A web process answers on many threads: it shares a pool of connections. The others keep one each.
if pool := env.int("BERTH_DATABASE_POOL", default=0):
    DATABASES["default"]["OPTIONS"]["pool"] = {"min_size": 1, "max_size": pool, "timeout": 10}
    DATABASES["default"]["CONN_MAX_AGE"] = 0
else:
    DATABASES["default"]["CONN_MAX_AGE"] = 300
# A connection that the server has ended meanwhile is noticed before a request is answered by it.
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True

REDIS_URL = env.str("REDIS_URL", default="")

CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}
    if REDIS_URL
    else {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 100_000},  # counts of requests live here: nobody pushes another's out
    }
}
