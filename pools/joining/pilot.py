"""Shell variables that a Slurm pilot job uses to join its pool."""

from collections.abc import Mapping

from pools.joining import secrets
from pools.joining.server import reachable_server
from pools.providers.base import LaunchRequest


def pilot_shell_variables(order: LaunchRequest) -> Mapping[str, str]:
    """Return the shell variables for a launch request's pilot jobs.

    The join token admits only the nodes of this request. Raises ProviderError if machines could not join with
    the current settings.
    """
    server = reachable_server()
    return {
        "url": server.url,
        "pool": order.pool,
        "token": secrets.launch_request_secret(order.pool, order.client_token),
        "certificates": server.ca,
        "plain_http": "1" if server.plain_http else "",
    }
