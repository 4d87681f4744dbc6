"""First-boot script for cloud machines that a pool has ordered."""

import base64
import gzip
import shlex
from importlib.resources import files
from pathlib import Path

from django.conf import settings

from pools.joining import secrets
from pools.providers.base import ProviderError, ProviderErrorKind, ProvisionOrder

STATE_DIR = "/var/lib/berth-machine"
SCRIPT = """#!/bin/sh
set -eu
umask 077
mkdir -p {place}
cat > {place}/environment <<'BERTH_ENVIRONMENT'
BERTH_URL={url}
BERTH_POOL={pool}
BERTH_JOIN_TOKEN={token}
{more}BERTH_ENVIRONMENT
{ca}base64 -d <<'BERTH_PROGRAM' | gunzip > {place}/program.py
{program}BERTH_PROGRAM
cat > /etc/systemd/system/berth-machine.service <<'BERTH_UNIT'
[Unit]
After=network-online.target
Wants=network-online.target
[Service]
EnvironmentFile={place}/environment
ExecStart=/usr/bin/python3 {place}/program.py
Restart=on-failure
RestartSec=5
KillMode=process
[Install]
WantedBy=multi-user.target
BERTH_UNIT
systemctl daemon-reload
systemctl enable --now berth-machine
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
    more = f"BERTH_CA={STATE_DIR}/ca.pem\n" if ca else ""
    more += "BERTH_PLAIN_HTTP=1\n" if settings.BERTH_PLAIN_HTTP else ""
    return SCRIPT.format(
        place=STATE_DIR, url=shlex.quote(url), pool=order.pool, more=more,
        ca=CA.format(place=STATE_DIR, ca=ca) if ca else "",
        token=secrets.for_order(order.pool, order.client_token), program=_compress(program_source()),
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


def _compress(text: str) -> str:
    """Compress deterministically, because EC2 limits user data to 16 KiB."""
    return base64.encodebytes(gzip.compress(text.encode(), mtime=0)).decode()


def program_source() -> str:
    return files("pools.joining").joinpath("program.py").read_text(encoding="utf-8")
