"""REST endpoints for join tokens and joined machines, for platform admins."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.not_found import ObjectKind, not_found_error
from berth.core.spec.values.texts import Text
from berth.db.queries.known_names import NameColumn
from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import Order, filter_by, page
from berth.server.api.requests import Body, ListQuery, parse_body, parse_query
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from pools import joined_machines, services
from pools.api.pools import PoolView, ReasonBody
from pools.api.schemas.inventory import InventoryResponse, inventory_response
from pools.models import JoinToken, Machine
from pools.services.machines import LIFETIME, MAX_LIFETIME, MAX_MACHINES, check_removable

NEWEST = Order("newest", ("issued_at", "id"), is_descending=True)
BY_NAME = Order("name", ("name", "id"))


class IssueJoinTokenBody(Body):
    lifetime_seconds: Annotated[int, Field(ge=1, le=int(MAX_LIFETIME.total_seconds()))] = int(
        LIFETIME.total_seconds()
    )
    max_machines: Annotated[
        int, Field(ge=1, le=MAX_MACHINES, description="Number of machines that may join.")
    ] = 1
    comment: Annotated[Text, Field(max_length=100, description="Purpose of the token.")] = ""


class JoinTokenResponse(ResponseModel):
    id: int
    prefix: str = Field(description="First characters of the token; the token itself is not stored.")
    comment: str
    state: joined_machines.TokenState = Field(description="`used`: all machines have joined.")
    issued_by: str
    issued_at: datetime
    expires_at: datetime
    max_machines: int = Field(description="Number of machines that may join.")
    machines_joined: int = Field(
        description="Number of machines that joined; a machine that joined again counts once."
    )
    revoked_at: datetime | None


class IssuedJoinTokenResponse(JoinTokenResponse):
    token: str | None = Field(description="Shown only once; null in a repeated response.")


class MachineResponse(ResponseModel):
    name: str
    state: joined_machines.MachineState = Field(
        description="`draining`: to be removed once the node is drained; `silent`: no longer reporting."
    )
    node: str | None = Field(description="Node that the machine currently serves as.")
    address: str
    cpu: float
    memory_mib: int
    gpus: int
    gpu_model: str
    inventory: InventoryResponse | None = Field(description="Null until the machine's agent has reported it.")
    token_prefix: str | None = Field(
        description="First characters of the token with which the machine last joined; null once deleted."
    )
    joined_at: datetime
    last_seen_at: datetime = Field(description="Time of the last report.")
    departed_at: datetime | None


class MachinesQuery(ListQuery):
    departed: bool = False
    token: int | None = Field(None, description="Only machines that joined with the token that has this ID.")


class JoinTokens(PoolView):
    @operation("List join tokens, newest first", query=ListQuery, page=JoinTokenResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, ListQuery)
        rows = joined_machines.join_tokens(self.get_administered_pool(name), timezone.now())
        return Response(page(rows, query, NEWEST, lambda tokens: [_token_response(row) for row in tokens]))

    @operation(
        "Issue a join token for one or more machines",
        body=IssueJoinTokenBody,
        response=IssuedJoinTokenResponse,
        status=201,
    )
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        pool, body, now = (
            self.get_administered_pool(name),
            parse_body(request, IssueJoinTokenBody),
            timezone.now(),
        )
        lifetime = timedelta(seconds=body.lifetime_seconds)
        token, secret = services.issue_join_token(
            actor=self.actor, pool=pool, lifetime=lifetime, at=now, machines=body.max_machines,
            comment=body.comment,
        )  # fmt: skip
        base = _token_response(joined_machines.join_tokens(pool, now).get(pk=token.pk))
        answer = IssuedJoinTokenResponse(**base.model_dump(), token=secret)
        return created_response(answer, f"/api/v1/node-pools/{pool.name}/join-tokens/{token.pk}")


class JoinTokenDetail(PoolView):
    @operation("Get a join token", response=JoinTokenResponse)
    def get(self, request: Request, name: str, token_id: int) -> Response:
        return Response(_token_response(self._get_token(name, token_id)))

    @operation("Revoke a join token", status=204)
    def delete(self, request: Request, name: str, token_id: int) -> Response:
        token = self._get_token(name, token_id)
        services.revoke_join_token(actor=self.actor, token=token, at=timezone.now())
        return no_content()

    def _get_token(self, name: str, token_id: int) -> JoinToken:
        rows = joined_machines.join_tokens(self.get_administered_pool(name), timezone.now())
        token = rows.filter(pk=token_id).first()
        if token is None:
            raise not_found_error(ObjectKind.JOIN_TOKEN, object_id=token_id, owner=name)
        return token


class MachineView(PoolView):
    def get_machine(self, name: str, machine: str) -> Machine:
        """Return the last machine that joined under the given name, even if it has departed.

        Raises NotFound.
        """
        rows = joined_machines.machines(self.get_administered_pool(name), timezone.now())
        row = rows.filter(name=machine).order_by("-joined_at", "-pk").first()
        if row is None:
            names = NameColumn(rows).list()
            raise not_found_error(ObjectKind.MACHINE, name=machine, owner=name, visible=names)
        return row


class Machines(PoolView):
    @operation("List joined machines", query=MachinesQuery, page=MachineResponse)
    def get(self, request: Request, name: str) -> Response:
        query = parse_query(request, MachinesQuery)
        rows = joined_machines.machines(self.get_administered_pool(name), timezone.now())
        if not query.departed:
            rows = rows.filter(departed_at=None)
        rows = filter_by(rows, token_uses__token=query.token)
        return Response(page(rows, query, BY_NAME, _machine_responses))


class MachineDetail(MachineView):
    @operation("Get a joined machine", response=MachineResponse)
    def get(self, request: Request, name: str, machine: str) -> Response:
        return Response(_machine_responses([self.get_machine(name, machine)])[0])


class RemoveMachine(MachineView):
    @operation(
        "Remove a machine from its pool after draining its node",
        body=ReasonBody, response=MachineResponse,
    )  # fmt: skip
    @idempotent
    def post(self, request: Request, name: str, machine: str) -> Response:
        target, reason = self.get_machine(name, machine), parse_body(request, ReasonBody).reason
        check_removable(target)
        services.remove_machine(actor=self.actor, machine=target, at=timezone.now(), reason=reason)
        return Response(_machine_responses([self.get_machine(name, machine)])[0])


def _token_response(row: Any) -> JoinTokenResponse:
    return JoinTokenResponse.from_row(row)


def _machine_responses(rows: Sequence[Any]) -> list[Any]:
    nodes = joined_machines.current_node_names(list(rows))
    return [
        MachineResponse.from_row(
            row,
            node=nodes.get(row.pk),
            cpu=row.cpu_milli / 1000,
            gpus=len(row.devices),
            inventory=inventory_response(row.inventory),
        )
        for row in rows
    ]
