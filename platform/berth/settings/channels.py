"""Here we choose what carries live updates between processes: PostgreSQL, or Redis where there is one."""
from typing import Any

from berth.settings.database import DATABASES, REDIS_URL

ASGI_APPLICATION = "berth.asgi.application"


def channel_layer() -> dict[str, Any]:
    if REDIS_URL:
        return {"BACKEND": "channels_redis.core.RedisChannelLayer", "CONFIG": {"hosts": [REDIS_URL]}}
    database = dict(DATABASES["default"])
    database["OPTIONS"] = {key: value for key, value in database["OPTIONS"].items() if key != "pool"}
    database["PSYCOPG_OPTIONS"] = {"min_size": 1, "max_size": 4}
    return {"BACKEND": "channels_postgres.core.PostgresChannelLayer", "CONFIG": database}


CHANNEL_LAYERS = {"default": channel_layer()}
