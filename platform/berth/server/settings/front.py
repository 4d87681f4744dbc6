"""Limits on connections, and the proxies whose word about a caller's address is taken."""

from ipaddress import ip_network

from django.core.exceptions import ImproperlyConfigured

from berth.server.settings.base import env


def networks(variable: str) -> list[str]:
    """The addresses and networks that the variable lists. Raises ImproperlyConfigured."""
    values = [value.strip() for value in env.list(variable, default=[])]
    try:
        return [str(ip_network(value, strict=False)) for value in values if value]
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{variable}: {error}. Allowed: addresses and networks with commas between, "
            "such as 127.0.0.1,10.0.0.0/24."
        ) from None


# Without any, the address of a caller is that of its connection, whatever X-Forwarded-For claims.
BERTH_TRUSTED_PROXIES = networks("BERTH_TRUSTED_PROXIES")
# Of each web process. A proxy that is trusted has no limit of its own.
BERTH_CONNECTIONS_PER_ADDRESS = env.int("BERTH_CONNECTIONS_PER_ADDRESS", default=1000)
BERTH_CONNECTIONS_PER_PERSON = env.int("BERTH_CONNECTIONS_PER_PERSON", default=200)
