"""REST endpoints that apply, list and revert quota drafts."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, page
from berth.server.api.requests import ListQuery, etag, expected_tag, no_query, parse_document, parse_query
from berth.server.api.responses import Answer
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.acting import Acting
from projects.api.quotas.schemas import DraftBody, OwnerKind
from projects.models import QuotaChange, QuotaExpiry
from projects.services.quotas import drafts
from projects.services.quotas.documents import read_draft


class ChangedQuota(Answer):
    kind: OwnerKind
    name: str
    pool: str
    before: dict[str, Any] | None = Field(description="Null: there was none.")
    after: dict[str, Any] | None = Field(description="Null: it was removed.")


class QuotaChangeAnswer(Answer):
    id: int
    at: datetime
    actor: str
    comment: str
    reverts: int | None
    reverted_by: int | None
    expires_at: datetime | None = Field(description="When what it set goes back by itself.")
    expired: str | None = Field(description="Once that was done, what was left alone; else null.")
    quotas: list[ChangedQuota] = Field(description="Those that you may see.")
    hidden: int = Field(description="How many more were changed together with them.")


class AppliedAnswer(Answer):
    change: QuotaChangeAnswer | None = Field(description="Null: everything was so already.")


class ApplyQuotas(ApiView):
    change_scope = "admin"

    @operation("Apply an edited set of quotas, all or nothing", body=DraftBody, answer=AppliedAnswer,
               headers=("If-Match",))  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        no_query(request)
        draft, expected = read_draft(self.acting, parse_document(request)), expected_tag(request)
        change, drafted = drafts.apply_draft(acting=self.acting, draft=draft, expected=expected)
        stored = drafts.tag_after(drafted)
        applied = presented(self.acting, [change])[0] if change else None
        return Response(AppliedAnswer(change=applied), headers={"ETag": etag(stored)})


class QuotaChanges(ApiView):
    @operation("Changes of quotas, newest first", query=ListQuery, page=QuotaChangeAnswer)
    def get(self, request: Request) -> Response:
        rows = selectors.quota_changes(self.acting)
        return Response(
            page(rows, parse_query(request, ListQuery), NEWEST, lambda rows: presented(self.acting, rows))
        )


class OneQuotaChange(ApiView):
    @operation("One change of quotas", answer=QuotaChangeAnswer)
    def get(self, request: Request, change_id: int) -> Response:
        no_query(request)
        return Response(presented(self.acting, [selectors.find_quota_change(self.acting, change_id)])[0])


class RevertQuotaChange(ApiView):
    change_scope = "admin"

    @operation("Take a change of quotas back unless overtaken", answer=QuotaChangeAnswer)
    @idempotent
    def post(self, request: Request, change_id: int) -> Response:
        no_query(request)
        change = selectors.find_quota_change(self.acting, change_id)
        return Response(presented(self.acting, [drafts.revert(acting=self.acting, change=change)])[0])


def presented(acting: Acting, rows: Sequence[QuotaChange]) -> list[Any]:
    seen = selectors.Scope(acting)
    reverted_by = dict(
        QuotaChange.objects.filter(reverts__in=[row.pk for row in rows]).values_list("reverts", "pk")
    )
    expiries = {row.change_id: row for row in QuotaExpiry.objects.filter(change__in=[row.pk for row in rows])}
    return [_answer(row, seen, reverted_by.get(row.pk), expiries.get(row.pk)) for row in rows]


def _answer(
    row: QuotaChange, seen: selectors.Scope, reverted_by: int | None, expiry: QuotaExpiry | None
) -> QuotaChangeAnswer:
    shown = [entry for entry in row.written if seen.holds(entry.get("project_id"), entry["department_id"])]
    return QuotaChangeAnswer(
        id=row.pk,
        at=row.at,
        actor=row.actor,
        comment=row.comment,
        reverts=row.reverts,
        reverted_by=reverted_by,
        expires_at=expiry.due_at if expiry else None,
        expired=expiry.outcome if expiry and expiry.done_at else None,
        quotas=[ChangedQuota(**{name: entry[name] for name in ChangedQuota.model_fields}) for entry in shown],
        hidden=len(row.written) - len(shown),
    )
