"""REST endpoints that list a pool's SSH hosts, accept their keys, and remove hosts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.texts import Name, Text
from berth.db.queries.known_names import NameColumn
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, page
from berth.server.api.requests import Body, ListQuery, parse_body, parse_query
from berth.server.api.responses import ResponseModel, no_content
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from pools.engine.ssh_hosts import HostState
from pools.models import SshHost
from pools.providers.ssh.endpoint import fingerprint
from pools.services.ssh.hosts import accept_host_keys, displayed_state, forget_host

BY_NAME = Order("name", ("name", "id"))


class SshHostResponse(ResponseModel):
    name: str
    address: str
    port: int
    user: str
    bastion: str | None = Field(description="Address of the server through which the host is reached.")
    state: HostState = Field(
        description="`unverified`: its key has not been accepted; `pending`: not connected yet; `silent`: "
        "its agent no longer reports; `failing`: the last attempt failed, see `message`; `removing`: its "
        "node is drained, then the agent is uninstalled."
    )
    problem: str | None = Field(
        description="Kind of the problem: unreachable, timeout, host_key, login, key, command or unsuitable."
    )
    message: str
    host_key: str | None = Field(description="Pinned public key.")
    fingerprint: str | None
    presented_key: str | None = Field(
        description="Public key that the host presented and that is not pinned."
    )
    presented_fingerprint: str | None
    failures: int = Field(description="Consecutive failed connections.")
    connected_at: datetime | None = Field(description="Time of the last SSH connection.")
    retry_at: datetime | None
    last_seen_at: datetime | None = Field(description="Time of the last report of the host's agent.")
    facts: dict[str, Any] = Field(description="Properties of the host as detected by the last installation.")


class AcceptKeysBody(Body):
    """Keys to pin, by host name. Each key must be the host's `presented_key`."""

    keys: Annotated[dict[Name, Annotated[Text, Field(max_length=4096)]], Field(min_length=1, max_length=2000)]


class SshHosts(PoolView):
    @operation("List the SSH hosts of a pool", query=ListQuery, page=SshHostResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        rows = SshHost.objects.filter(pool=self.get_administered_pool(name)).select_related("machine")
        return Response(page(rows, query, BY_NAME, _host_responses))


class AcceptHostKeys(PoolView):
    @operation("Pin the keys that SSH hosts presented", body=AcceptKeysBody, status=204)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        pool = self.get_administered_pool(name)
        accept_host_keys(actor=self.actor, pool=pool, keys=parse_body(request, AcceptKeysBody).keys)
        return no_content()


class SshHostDetail(PoolView):
    @operation("Forget a removed SSH host without uninstalling its agent", status=204)
    def delete(self, request: Request, name: str, host: str) -> Response:
        pool = self.get_administered_pool(name)
        row = SshHost.objects.filter(pool=pool, name=host).select_related("pool", "machine").first()
        if row is None:
            names = NameColumn(SshHost.objects.filter(pool=pool)).list()
            raise not_found_error(ObjectKind.SSH_HOST, name=host, owner=pool.name, visible=names)
        forget_host(row, actor=self.actor)
        return no_content()


def _host_responses(rows: Sequence[SshHost]) -> list[SshHostResponse]:
    now = timezone.now()
    return [_response(row, now) for row in rows]


def _response(row: SshHost, now: datetime) -> SshHostResponse:
    settings, bastion = row.settings, row.settings["bastion"]
    return SshHostResponse(
        name=row.name, address=row.address, port=row.port, user=settings["user"],
        bastion=bastion["address"] if bastion else None, state=displayed_state(row, now),
        problem=row.problem or None, message=row.message, host_key=settings["host_key"] or None,
        fingerprint=fingerprint(settings["host_key"]) if settings["host_key"] else None,
        presented_key=row.presented_key or None,
        presented_fingerprint=fingerprint(row.presented_key) if row.presented_key else None,
        failures=row.failures, connected_at=row.connected_at, retry_at=row.retry_at,
        last_seen_at=row.machine.last_seen_at if row.machine else None, facts=row.facts,
    )  # fmt: skip
