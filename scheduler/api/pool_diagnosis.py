"""REST endpoint for a node pool's problems."""

from typing import Literal

from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from pools.api.pools import PoolView
from scheduler.reports.pool_diagnosis import diagnose_pool


class FindingResponse(ResponseModel):
    severity: Literal["error", "warning", "note"]
    name: str
    finding: str = Field(description="A sentence with numbers.")
    remedy: str = Field(description="Remedy; empty if no action is needed.")


class PoolDiagnosisResponse(ResponseModel):
    pool: str
    findings: list[FindingResponse] = Field(description="Most important first; empty if there is none.")


class PoolDiagnosis(PoolView):
    @operation("Get the problems of a node pool, most important first", response=PoolDiagnosisResponse)
    def get(self, request: Request, name: str) -> Response:
        pool = self.get_pool(name)
        self.require("administer")
        findings = [FindingResponse.from_row(finding) for finding in diagnose_pool(pool, timezone.now())]
        return Response(PoolDiagnosisResponse(pool=pool.name, findings=findings))
