"""REST endpoints of monthly budgets."""

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
    no_query,
    parse_document,
    parse_query,
)
from berth.server.api.responses import Answer, created, no_content
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.api.quotas.schemas import Owner
from projects.models import Budget, Department, Project
from projects.services.quotas import budgets
from scheduler.reports.usage.budgets import Standing, standings

OLDEST = Order("oldest", ("id",))
GUARDS = ("If-Match", "If-None-Match")


class BudgetValues(Body):
    """Values of a monthly budget; omitted fields keep their value."""

    gpu_hours: Annotated[int, Field(ge=1, le=10**9)]
    warn_at: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        default=[80, 100], description="Percentages of the budget at which subscribers are notified."
    )


class MonthAnswer(Answer):
    """GPU-hours of this calendar month (UTC)."""

    begin: datetime
    end: datetime
    used: float
    percent: float
    pace_per_hour: float = Field(description="Over the last seven days.")
    forecast: float = Field(description="At the month's end, at that pace.")
    forecast_percent: float


class BudgetAnswer(Answer):
    owner: Owner
    gpu_hours: int
    warn_at: list[int]
    version: int
    month: MonthAnswer


class Budgets(ApiView):
    @operation("Budgets that you see, and how they stand", query=ListQuery, page=BudgetAnswer)
    def get(self, request: Request) -> Response:
        query = parse_query(request, ListQuery)
        return Response(page(selectors.budgets(self.acting), query, OLDEST, presented))


class OneBudget(ApiView):
    change_scope = "admin"
    kind: ClassVar[str]

    def owner(self, name: str) -> Department | Project:
        raise NotImplementedError

    @operation("Budget with its usage and forecast", answer=BudgetAnswer)
    def get(self, request: Request, name: str) -> Response:
        no_query(request)
        budget = self._present(self.owner(name))
        if budget is None:
            raise NotFound("There is no such budget.")
        return Response(presented([budget])[0], headers={"ETag": etag(budget.version)})

    @operation("Set a budget", body=BudgetValues, answer=BudgetAnswer, headers=GUARDS, also_status=201)
    def put(self, request: Request, name: str) -> Response:
        no_query(request)
        owner = self.owner(name)
        self.require("set_quota", owner)
        present = self._present(owner)
        expected = expected_version(request, present.version if present else None)
        budget = budgets.set_budget(
            acting=self.acting, owner=owner, values=parse_document(request), expected_version=expected
        )
        stored, tag = presented([budget])[0], etag(budget.version)
        if present is None:
            return created(stored, f"/api/v1/budgets/{self.kind}/{name}", ETag=tag)
        return Response(stored, headers={"ETag": tag})

    @operation("Remove a budget", status=204, headers=("If-Match",))
    def delete(self, request: Request, name: str) -> Response:
        no_query(request)
        owner = self.owner(name)
        self.require("set_quota", owner)
        present = self._present(owner)
        if present is None:
            raise NotFound("There is no such budget.")
        expected = expected_version(request, present.version)
        budgets.delete_budget(acting=self.acting, budget=present, expected_version=expected)
        return no_content()

    def _present(self, owner: Department | Project) -> Budget | None:
        whose = {"department": owner} if isinstance(owner, Department) else {"project": owner}
        return selectors.budgets(self.acting).filter(**whose).first()


class DepartmentBudget(OneBudget):
    kind = "departments"

    def owner(self, name: str) -> Department:
        return selectors.find_department(self.acting, name)


class ProjectBudget(OneBudget):
    kind = "projects"

    def owner(self, name: str) -> Project:
        return selectors.find_project(self.acting, name)


def presented(rows: Sequence[Budget]) -> list[Any]:
    return [answer(standing) for standing in standings(rows, timezone.now())]


def answer(standing: Standing) -> BudgetAnswer:
    budget, owner = standing.budget, standing.budget.owner
    return BudgetAnswer(
        owner=Owner(kind="department" if isinstance(owner, Department) else "project", name=owner.name),
        gpu_hours=budget.gpu_hours,
        warn_at=list(budget.warn_at),
        version=budget.version,
        month=MonthAnswer(
            begin=standing.begin,
            end=standing.end,
            used=round(standing.used, 4),
            percent=round(standing.percent, 2),
            pace_per_hour=round(standing.pace, 4),
            forecast=round(standing.forecast, 4),
            forecast_percent=round(standing.forecast_percent, 2),
        ),
    )
