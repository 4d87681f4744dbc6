"""REST endpoints for quota groups."""

from typing import Annotated

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.server.api.pagination import Order, map_rows, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    Word,
    etag,
    expected_version,
    parse_body,
    parse_query,
)
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from pools.models import NodePool, QuotaGroup
from projects import selectors
from projects.access import Action
from projects.api.quotas.views import PRECONDITION_HEADERS
from projects.services.quotas import groups

BY_NAME = Order("name", ("name",))


class QuotaGroupResponse(ResponseModel):
    """Group of pools that have the same GPU model and share quotas."""

    name: str
    pools: list[str]
    version: int


class QuotaGroupBody(Body):
    pools: Annotated[list[Word], Field(min_length=1, max_length=groups.MAX_POOLS)]


class QuotaGroups(ApiView):
    @operation("List quota groups", query=ListQuery, page=QuotaGroupResponse)
    def get(self, request: Request) -> Response:
        rows = selectors.quota_groups(self.actor)
        return Response(page(rows, parse_query(request, ListQuery), BY_NAME, map_rows(serialize_group)))


class QuotaGroupDetail(ApiView):
    change_scope = "admin"

    @operation("Get a quota group", response=QuotaGroupResponse)
    def get(self, request: Request, name: str) -> Response:
        group = selectors.find_quota_group(self.actor, name)
        return Response(serialize_group(group), headers={"ETag": etag(group.version)})

    @operation(
        "Create a quota group or change its pools",
        body=QuotaGroupBody,
        response=QuotaGroupResponse,
        headers=PRECONDITION_HEADERS,
        also_status=201,
    )
    def put(self, request: Request, name: str) -> Response:
        self.require(Action.ADMINISTER)
        existing = selectors.quota_groups(self.actor).filter(name=name).first()
        expected = expected_version(request, existing.version if existing else None)
        pools = resolve_pools(parse_body(request, QuotaGroupBody).pools)
        if existing is None:
            group = groups.create_group(actor=self.actor, name=name, pools=pools)
        else:
            group = groups.edit_group(
                actor=self.actor, group=existing, pools=pools, expected_version=expected
            )
        headers = {"ETag": etag(group.version)}
        if existing is None:
            return created_response(serialize_group(group), f"/api/v1/quota-groups/{name}", **headers)
        return Response(serialize_group(group), headers=headers)

    @operation("Delete a quota group without quotas", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str) -> Response:
        self.require(Action.ADMINISTER)
        group = selectors.find_quota_group(self.actor, name)
        expected = expected_version(request, group.version)
        groups.delete_group(actor=self.actor, group=group, expected_version=expected)
        return no_content()


def serialize_group(group: QuotaGroup) -> QuotaGroupResponse:
    pools = sorted(pool.name for pool in group.pools.all())
    return QuotaGroupResponse(name=group.name, pools=pools, version=group.version)


def resolve_pools(names: list[str]) -> list[NodePool]:
    """Return the pools in the order of `names`. Raises Invalid if a pool does not exist."""
    by_name = {pool.name: pool for pool in NodePool.objects.select_related("quota_group")}
    problems = [
        Problem(f"pools[{number}]", "does not exist", format_value(name), suggest(name, by_name))
        for number, name in enumerate(names)
        if name not in by_name
    ]
    if problems:
        raise Invalid(problems)
    return [by_name[name] for name in names]
