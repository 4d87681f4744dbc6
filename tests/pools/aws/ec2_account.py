"""moto's EC2 server, with or without a proxy that adds behaviour and faults of EC2."""

import logging
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from pools.models import Node
from pools.providers.aws.clients import Clients
from pools.providers.aws.provider import AwsProvider
from pools.providers.aws.settings import AwsSettings, aws_settings
from pools.providers.base import LaunchRequest, Shape
from pools.runtimes.ray.runtime import RayRuntime
from tests.pools.aws.ec2_proxy import Ec2Proxy, serve

REGION = "us-east-1"
TWO_GPUS = "g7.12xlarge"
IMAGE_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
USER_DATA = "#!/bin/sh\necho hello\n"
EC2_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


@dataclass
class Ec2Account:
    """One installation in an EC2 account. `calls` lists SDK calls as (service, operation, parameters)."""

    url: str
    proxy: Ec2Proxy
    installation: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)

    def clients(self) -> Clients:
        clients = Clients(REGION, self.url)
        clients.session.events.register("provide-client-params.*.*", self._note)
        return clients

    def settings(self, **more: Any) -> AwsSettings:
        defaults = {"image_parameter": IMAGE_PARAMETER} if "image" not in more else {}
        return aws_settings(
            {"region": REGION, "instance_types": [TWO_GPUS], "subnets": subnets()[:1], **defaults, **more}
        )

    def provider(self, **more: Any) -> AwsProvider:
        return AwsProvider(
            self.settings(**more), self.clients(), self.installation, user_data=lambda order: USER_DATA
        )

    def _note(self, params: dict[str, Any], model: Any, **kwargs: Any) -> None:
        self.calls.append((model.service_model.service_name, model.name, params))


def order(token: str = "t-1", count: int = 2, start: int = 0, **more: Any) -> LaunchRequest:
    shape = more.pop("shape", Shape(4000, 8192, gpus=2))
    return LaunchRequest("small", count, token, start, shape, **more)


@contextmanager
def ec2_account(monkeypatch: pytest.MonkeyPatch, *, with_proxy: bool = True) -> Iterator[Ec2Account]:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in EC2_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # moto's machines have no reachable addresses. Unjoined machines are never queried, and these tests do not
    # cover the agents of joined machines.
    monkeypatch.setattr(RayRuntime, "unready_reasons", lambda _, each: unready_reasons_of_joined(each))
    proxy = Ec2Proxy(moto())
    if not with_proxy:
        yield Ec2Account(moto(), proxy)
        return
    server, url = serve(proxy)
    try:
        yield Ec2Account(url, proxy)
    finally:
        server.shutdown()
        server.server_close()


def unready_reasons_of_joined(instance_ids: Collection[str]) -> dict[str, str]:
    """Return no reasons. Fail if called for a machine that never joined."""
    nodes = Node.objects.filter(instance_id__in=instance_ids)
    assert not nodes.filter(joined_at=None).exists()
    return {}


@cache
def moto() -> str:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


@cache
def subnets() -> list[str]:
    subnet_list = Clients(REGION, moto()).ec2.describe_subnets()["Subnets"]
    return sorted(subnet["SubnetId"] for subnet in subnet_list)
