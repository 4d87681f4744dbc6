"""URL where machines and pods reach this server."""

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from pools.providers.base import ProviderError, ProviderErrorKind
from pools.runtimes.capabilities import KUBERNETES, REMOTE_PROVIDERS


@dataclass(frozen=True, slots=True)
class ReachableServer:
    """URL at which machines reach this server, and the CA certificates that verify it.

    If `ca` is empty, machines use their system's certificates.
    """

    url: str
    ca: str
    plain_http: bool


def reachable_server() -> ReachableServer:
    """Return the server's URL and certificates. Raises ProviderError if machines could not use them to
    join.
    """
    url = str(settings.BERTH_PUBLIC_URL)
    if not url:
        message = "BERTH_PUBLIC_URL is not set. Set it to the URL at which machines reach this server"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    if not url.startswith("https://") and not settings.BERTH_PLAIN_HTTP:
        message = "BERTH_PUBLIC_URL is not https:// (BERTH_PLAIN_HTTP=1 allows plain HTTP)"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    return ReachableServer(url, _ca_certificates(), bool(settings.BERTH_PLAIN_HTTP))


def reachable_server_for_pods(provider: str) -> ReachableServer:
    """Return the server's URL from which nodes download the code of pods.

    Raises ProviderError if the settings do not allow the download.
    """
    if (provider not in REMOTE_PROVIDERS or provider == KUBERNETES) and settings.BERTH_LOCAL_URL:
        return ReachableServer(str(settings.BERTH_LOCAL_URL), "", plain_http=True)
    return reachable_server()


def _ca_certificates() -> str:
    """Return the CA certificates that verify this server, or "" if machines use their own."""
    if not settings.BERTH_PUBLIC_CA:
        return ""
    try:
        return Path(settings.BERTH_PUBLIC_CA).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"the file in BERTH_PUBLIC_CA cannot be read: {error}"
        raise ProviderError(ProviderErrorKind.SETTINGS, message) from error
