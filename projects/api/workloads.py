"""Here workloads are listed, submitted, looked at, stopped, resumed and removed."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from berth.api.bodies import NoBody, body_of, document_of
from berth.api.door import Door, created, done
from berth.api.idempotency import once
from berth.api.pages import page
from berth.api.queries import no_query, query_of
from berth.api.schema import described
from projects import selectors
from projects.api.workload_lists import WorkloadsQuery, found, order_of
from projects.api.workload_shapes import OneWorkloadAnswer, WorkloadAnswer, answer, fresh, listed, with_counts
from projects.models import Workload
from projects.services import workloads


class Workloads(Door):
    @described("Workloads that you see", query=WorkloadsQuery, page=WorkloadAnswer)
    def get(self, request: Request) -> Response:
        query = query_of(request, WorkloadsQuery)
        rows = with_counts(found(selectors.workloads(self.acting), query)).defer("spec")
        return Response(page(rows, query, order_of(query), listed))

    def submitted(self, request: Request) -> Response:
        """What a submission comes to; the floor above, which can also foresee it, has the door."""
        workload = workloads.submit(acting=self.acting, document=document_of(request))
        return created(fresh(workload), f"/api/v1/workloads/{workload.pk}")


class OneWorkload(Door):
    @described("One workload", answer=OneWorkloadAnswer)
    def get(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        return Response(answer(selectors.find_workload(self.acting, workload_id)))

    @described("Remove a workload that has ended", status=204)
    def delete(self, request: Request, workload_id: UUID) -> Response:
        no_query(request)
        workloads.delete(acting=self.acting, workload=selectors.find_workload(self.acting, workload_id))
        return done()


class Act(Door):
    """What can be done to a workload needs no more than its address."""

    def target(self, request: Request, workload_id: UUID) -> Workload:
        no_query(request)
        body_of(request, NoBody)
        return selectors.find_workload(self.acting, workload_id)


class Cancel(Act):
    @described("End a workload for good", answer=OneWorkloadAnswer)
    @once
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(answer(workloads.cancel(acting=self.acting, workload=target)))


class Suspend(Act):
    @described("Stop a workload until it is resumed", answer=OneWorkloadAnswer)
    @once
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(answer(workloads.suspend(acting=self.acting, workload=target)))


class Resume(Act):
    @described("Let a suspended workload wait for its turn again", answer=OneWorkloadAnswer)
    @once
    def post(self, request: Request, workload_id: UUID) -> Response:
        target = self.target(request, workload_id)
        return Response(answer(workloads.resume(acting=self.acting, workload=target)))
