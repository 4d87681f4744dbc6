"""First-boot script for cloud machines that a pool has ordered."""

import shlex
from pathlib import Path

from django.conf import settings

from pools.joining import secrets
from pools.providers.base import ProviderError, ProviderErrorKind, ProvisionOrder

STATE_DIR = "/var/lib/berth-machine"
SCRIPT = """#!/bin/sh
set -eu
umask 077
mkdir -p {place}
{ca}export BERTH_URL={url}
export BERTH_POOL={pool}
export BERTH_JOIN_TOKEN={token}
{more}cd {place}
until curl -fsS ${{BERTH_CA:+--cacert "$BERTH_CA"}} -o download "$BERTH_URL/api/v1/machines/agent"; do
  sleep 5
done
/usr/bin/python3 download install --join-later
"""


CA = """cat > {place}/ca.pem <<'BERTH_CA'
{ca}
BERTH_CA
"""


def user_data(order: ProvisionOrder) -> str:
    """Return an order's first-boot script, which never changes for the same order.

    Raises ProviderError if machines could not join with the current settings.
    """
    url = str(settings.BERTH_PUBLIC_URL)
    if not url:
        message = "BERTH_PUBLIC_URL is not set. Set it to the URL at which machines reach this server"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    if not url.startswith("https://") and not settings.BERTH_PLAIN_HTTP:
        message = "BERTH_PUBLIC_URL is not https:// (BERTH_PLAIN_HTTP=1 allows plain HTTP)"
        raise ProviderError(ProviderErrorKind.SETTINGS, message)
    ca = _ca_certificates()
    more = f"export BERTH_CA={STATE_DIR}/ca.pem\n" if ca else ""
    more += "export BERTH_PLAIN_HTTP=1\n" if settings.BERTH_PLAIN_HTTP else ""
    return SCRIPT.format(
        place=STATE_DIR, url=shlex.quote(url), pool=order.pool, more=more,
        ca=CA.format(place=STATE_DIR, ca=ca) if ca else "",
        token=secrets.for_order(order.pool, order.client_token),
    )  # fmt: skip


def _ca_certificates() -> str:
    """Return the certificates that machines use to verify this server, or an empty string."""
    if not settings.BERTH_PUBLIC_CA:
        return ""
    try:
        return Path(settings.BERTH_PUBLIC_CA).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"the file in BERTH_PUBLIC_CA cannot be read: {error}"
        raise ProviderError(ProviderErrorKind.SETTINGS, message) from error
