"""First-boot script of cloud machines that join a pool."""

import shlex

from pools.joining import secrets
from pools.joining.server import reachable_server
from pools.providers.base import LaunchRequest

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


def user_data(order: LaunchRequest) -> str:
    """Return a launch request's first-boot script, which stays the same if the request is repeated.

    Raises ProviderError if machines could not join with the current settings.
    """
    server = reachable_server()
    more = f"export BERTH_CA={STATE_DIR}/ca.pem\n" if server.ca else ""
    more += "export BERTH_PLAIN_HTTP=1\n" if server.plain_http else ""
    return SCRIPT.format(
        place=STATE_DIR, url=shlex.quote(server.url), pool=order.pool, more=more,
        ca=CA.format(place=STATE_DIR, ca=server.ca) if server.ca else "",
        token=secrets.launch_request_secret(order.pool, order.client_token),
    )  # fmt: skip
