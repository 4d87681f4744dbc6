"""State directory, secret key, allowed hosts and time zone."""

import environ

from berth.home import home
from berth.server.settings.secret import secret_key

env = environ.Env()

BERTH_HOME = home()
DEBUG = env.bool("BERTH_DEBUG", default=False)
SECRET_KEY = env.str("BERTH_SECRET_KEY", default="") or secret_key(BERTH_HOME)
SECRET_KEY_FALLBACKS = env.list("BERTH_SECRET_KEY_FALLBACKS", default=[])

ALLOWED_HOSTS = env.list("BERTH_ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.list("BERTH_TRUSTED_ORIGINS", default=[])

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
FORMAT_MODULE_PATH = "berth.server.web.formats"

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Machines of a provider carry this name in their tags; left out, one is made and kept in the database.
BERTH_INSTALLATION = env.str("BERTH_INSTALLATION", default="")
# Where machines that boot elsewhere reach this server, such as https://berth.example.org.
BERTH_PUBLIC_URL = env.str("BERTH_PUBLIC_URL", default="").rstrip("/")
BERTH_PUBLIC_CA = env.str("BERTH_PUBLIC_CA", default="")
BERTH_PLAIN_HTTP = env.bool("BERTH_PLAIN_HTTP", default=False)

# GPUs in name only, for a machine that has no real ones: work is placed on them, nothing is accelerated.
BERTH_DECLARED_GPUS = env.int("BERTH_DECLARED_GPUS", default=0)

# A package with the provider and the runtime `fake`, for tests only; empty: neither is offered.
BERTH_FAKE_POOLS = env.str("BERTH_FAKE_POOLS", default="")
