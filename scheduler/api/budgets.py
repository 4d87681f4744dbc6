"""REST endpoints for monthly budgets."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.errors import NotFound
from berth.server.api.pagination import Order, page
from berth.server.api.requests import (
    Body,
    ListQuery,
    etag,
    expected_version,
    parse_document,
    parse_query,
)
from berth.server.api.responses import ResponseModel, created_response, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.quotas.schemas import Owner
from projects.models import Budget, Department, Project
from projects.models.budgets import MAX_PERCENT
from projects.models.tenants import Tenant, owner_columns, owner_kind
from projects.services.quotas import budgets
from scheduler.reports.usage.budgets import BudgetStatus, budget_statuses

OLDEST = Order("oldest", ("id",))
PRECONDITION_HEADERS = ("If-Match", "If-None-Match")


class BudgetValues(Body):
    """Settings of a monthly budget. Omitted fields are unchanged."""

    gpu_hours: Annotated[int, Field(ge=1, le=10**9)]
    warn_at: list[Annotated[int, Field(ge=1, le=MAX_PERCENT)]] = Field(
        default=[80, 100], description="Budget percentages at which subscribers are notified."
    )


class BudgetMonthResponse(ResponseModel):
    """GPU-hours in the current calendar month (UTC)."""

    begin: datetime
    end: datetime
    used: float
    percent: float
    pace_per_hour: float = Field(description="Average GPU-hours per hour over the last seven days.")
    forecast: float = Field(description="Forecast of GPU-hours by the end of the month at that rate.")
    forecast_percent: float


class BudgetResponse(ResponseModel):
    owner: Owner
    gpu_hours: int
    warn_at: list[int]
    version: int
    month: BudgetMonthResponse


class Budgets(ApiView):
    @operation("List budgets with their usage and forecast", query=ListQuery, page=BudgetResponse)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(selectors.budgets(self.actor), query, OLDEST, serialize_budgets))


class BudgetDetail(ApiView):
    change_scope = "admin"
    kind: ClassVar[str]

    def owner(self, name: str) -> Tenant:
        raise NotImplementedError

    @operation("Get a budget with its usage and forecast", response=BudgetResponse)
    def get(self, request: Request, name: str) -> Response:
        owner = self.owner(name)
        budget = self._find_budget(owner)
        if budget is None:
            raise NotFound(_missing_budget_message(owner))
        return Response(serialize_budgets([budget])[0], headers={"ETag": etag(budget.version)})

    @operation(
        "Set a budget",
        body=BudgetValues,
        response=BudgetResponse,
        headers=PRECONDITION_HEADERS,
        also_status=201,
    )
    def put(self, request: Request, name: str) -> Response:
        owner = self.owner(name)
        self.require("set_quota", owner)
        existing = self._find_budget(owner)
        expected = expected_version(request, existing.version if existing else None)
        budget = budgets.set_budget(
            actor=self.actor, owner=owner, values=parse_document(request), expected_version=expected
        )
        stored, tag = serialize_budgets([budget])[0], etag(budget.version)
        if existing is None:
            return created_response(stored, f"/api/v1/budgets/{self.kind}/{name}", ETag=tag)
        return Response(stored, headers={"ETag": tag})

    @operation("Delete a budget", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str) -> Response:
        owner = self.owner(name)
        self.require("set_quota", owner)
        existing = self._find_budget(owner)
        if existing is None:
            raise NotFound(_missing_budget_message(owner))
        expected = expected_version(request, existing.version)
        budgets.delete_budget(actor=self.actor, budget=existing, expected_version=expected)
        return no_content()

    def _find_budget(self, owner: Tenant) -> Budget | None:
        return selectors.budgets(self.actor).filter(**owner_columns(owner)).first()


def _missing_budget_message(owner: Tenant) -> str:
    return (
        f"{owner_kind(owner).capitalize()} {owner.name} has no budget. List budgets with `berth budget list`."
    )


class DepartmentBudget(BudgetDetail):
    kind = "departments"

    def owner(self, name: str) -> Department:
        return selectors.find_department(self.actor, name)


class ProjectBudget(BudgetDetail):
    kind = "projects"

    def owner(self, name: str) -> Project:
        return selectors.find_project(self.actor, name)


def serialize_budgets(rows: Sequence[Budget]) -> list[Any]:
    return [serialize_budget(status) for status in budget_statuses(rows, timezone.now())]


def serialize_budget(status: BudgetStatus) -> BudgetResponse:
    budget, owner = status.budget, status.budget.owner
    return BudgetResponse(
        owner=Owner(kind=owner_kind(owner), name=owner.name),
        gpu_hours=budget.gpu_hours,
        warn_at=list(budget.warn_at),
        version=budget.version,
        month=BudgetMonthResponse(
            begin=status.begin,
            end=status.end,
            used=round(status.used, 4),
            percent=round(status.percent, 2),
            pace_per_hour=round(status.pace, 4),
            forecast=round(status.forecast, 4),
            forecast_percent=round(status.forecast_percent, 2),
        ),
    )
