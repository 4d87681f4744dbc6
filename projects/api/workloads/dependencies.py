"""REST endpoints for workload and array dependencies."""

from dataclasses import asdict
from typing import Literal
from uuid import UUID

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.core.spec.sections.after import DependencyState
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.actor import Actor
from projects.models import Workload, WorkloadArray
from projects.services.dependencies import dependency_statuses, find_dependents
from projects.services.dependencies.dependents import SHOWN


class DependencyResponse(ResponseModel):
    """Workload or array that must first reach `state`. Its current status is hidden if you cannot see the
    project.
    """

    project: str
    name: str
    state: DependencyState = Field(description="Required state.")
    tasks: Literal["same"] | None
    outcome: Literal["met", "waiting", "never_met", "hidden"]
    id: UUID | None = Field(description="Null if it is hidden or was not submitted.")
    is_array: bool
    phase: str | None = Field(description="Current phase or, for an array, current state.")
    queue_position: int | None


class DependentResponse(ResponseModel):
    """Pending workload or array that depends on this one, and the state that it requires."""

    project: str
    name: str
    state: DependencyState
    tasks: Literal["same"] | None
    id: UUID
    is_array: bool
    phase: str


class DependenciesResponse(ResponseModel):
    waits_for: list[DependencyResponse]
    awaited_by: list[DependentResponse] = Field(description=f"The first {SHOWN} that you can see, by name.")


class WorkloadDependencies(ApiView):
    @operation("List the dependencies and dependents of a workload", response=DependenciesResponse)
    def get(self, request: Request, workload_id: UUID) -> Response:
        return Response(_serialize(self.actor, selectors.find_workload(self.actor, workload_id)))


class ArrayDependencies(ApiView):
    @operation("List the dependencies and dependents of an array", response=DependenciesResponse)
    def get(self, request: Request, array_id: UUID) -> Response:
        return Response(_serialize(self.actor, selectors.find_array(self.actor, array_id)))


def _serialize(actor: Actor, owner: Workload | WorkloadArray) -> DependenciesResponse:
    return DependenciesResponse(
        waits_for=[DependencyResponse(**asdict(each)) for each in dependency_statuses(actor, owner)],
        awaited_by=[DependentResponse(**asdict(each)) for each in find_dependents(actor, owner)],
    )
