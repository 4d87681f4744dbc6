"""Access to /metrics, beside platform admins'."""

from ipaddress import ip_network

from django.core.exceptions import ImproperlyConfigured

from berth.server.settings.base import BERTH_HOME, env
from berth.server.settings.secret import kept_key

# Of Prometheus. Generated at the first start, unless given.
BERTH_METRICS_TOKEN = env.str("BERTH_METRICS_TOKEN", default="") or kept_key(BERTH_HOME / "metrics_token")
# Callers from these networks need no token.
try:
    BERTH_METRICS_NETWORKS = [ip_network(text) for text in env.list("BERTH_METRICS_NETWORKS", default=[])]
except ValueError as error:
    raise ImproperlyConfigured(
        f"BERTH_METRICS_NETWORKS: {error}. List networks with commas between, such as 10.0.0.5/32."
    ) from None
