"""Notification settings: mail server, signing key, allowed addresses."""

from berth.server.settings.base import BERTH_HOME, env
from berth.server.settings.secret import kept_key

BERTH_SENDS_MAIL = bool(env.str("BERTH_EMAIL_URL", default=""))
if BERTH_SENDS_MAIL:
    vars().update(env.email_url("BERTH_EMAIL_URL"))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.str("BERTH_EMAIL_FROM", default="berth@localhost")

BERTH_WEBHOOK_SECRET = env.str("BERTH_WEBHOOK_SECRET", default="") or kept_key(BERTH_HOME / "webhook_secret")

# Networks that may be called although they are not public, such as 10.0.0.0/8 or 127.0.0.1/32.
BERTH_NOTIFY_NETWORKS = env.list("BERTH_NOTIFY_NETWORKS", default=[])
