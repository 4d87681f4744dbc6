"""EC2 and SSM clients with the credentials that boto3 finds in its environment.

Berth stores no AWS credentials.
"""

from functools import cache, cached_property
from typing import Any

CONNECT_SECONDS, READ_SECONDS, LAUNCH_SECONDS = 5, 20, 60


class Clients:
    """Clients of one region, created on first use.

    The SDK retries calls that only read or terminate, but not launches, which the reconciler repeats.
    """

    def __init__(self, region: str, endpoint_url: str | None = None) -> None:
        self.region, self.endpoint_url = region, endpoint_url

    @cached_property
    def launch_client(self) -> Any:
        return self._client("ec2", attempts=1, seconds=LAUNCH_SECONDS)

    @cached_property
    def ec2(self) -> Any:
        return self._client("ec2", attempts=3, seconds=READ_SECONDS)

    @cached_property
    def ssm(self) -> Any:
        return self._client("ssm", attempts=3, seconds=READ_SECONDS)

    @cached_property
    def session(self) -> Any:
        from boto3.session import Session
        from botocore.session import Session as Core

        core = Core()
        core.register_component("data_loader", model_loader())
        session = Session(region_name=self.region, botocore_session=core)
        paths = model_loader().search_paths
        # Remove duplicates, because every session extends the search path again.
        paths[:] = dict.fromkeys(paths)
        return session

    def _client(self, service: str, *, attempts: int, seconds: int) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=seconds,
            retries={"mode": "standard", "total_max_attempts": attempts},
            user_agent_appid="berth",
        )
        return self.session.client(service, config=config, endpoint_url=self.endpoint_url)


@cache
def model_loader() -> Any:
    """Return the SDK's model loader. All clients share it, because reading EC2's model takes a second."""
    from botocore.session import Session

    return Session().get_component("data_loader")
