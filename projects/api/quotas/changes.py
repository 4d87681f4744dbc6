"""REST endpoints to apply quota drafts, and to list and revert quota changes."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from berth.server.api.idempotency import idempotent
from berth.server.api.pagination import NEWEST, page
from berth.server.api.requests import ListQuery, etag, expected_etag, parse_document, parse_query
from berth.server.api.responses import ResponseModel
from berth.server.api.schema import operation
from berth.server.api.views import ApiView
from projects import selectors
from projects.actor import Actor
from projects.api.quotas.schemas import DraftBody, OwnerKind
from projects.models import QuotaChange, QuotaExpiry
from projects.services.quotas import drafts, reverts
from projects.services.quotas.documents import read_draft


class ChangedQuota(ResponseModel):
    kind: OwnerKind
    name: str
    pool: str = Field(description="Node pool or quota group.")
    group: bool = Field(description="Whether `pool` is a quota group.")
    before: dict[str, Any] | None = Field(description="Null if there was no quota.")
    after: dict[str, Any] | None = Field(description="Null if the quota was removed.")


class QuotaChangeResponse(ResponseModel):
    """Quota changes that were applied together."""

    id: int
    at: datetime
    actor: str
    comment: str
    reverts: int | None
    reverted_by: int | None
    superseded_by: int | None = Field(
        description="Latest change that changed any of the listed quotas again. It prevents a revert."
    )
    expires_at: datetime | None = Field(description="Time of the automatic revert.")
    expired: str | None = Field(
        description="After an automatic revert, the quotas that it skipped; otherwise null."
    )
    quotas: list[ChangedQuota] = Field(description="Changed quotas that you may see.")
    hidden: int = Field(description="Number of changed quotas that you may not see.")


class ApplyQuotasResponse(ResponseModel):
    change: QuotaChangeResponse | None = Field(description="Null if the quotas already had these values.")


class ApplyQuotas(ApiView):
    change_scope = "admin"

    @operation("Apply a quota draft atomically", body=DraftBody, response=ApplyQuotasResponse,
               headers=("If-Match",))  # fmt: skip
    @idempotent
    def post(self, request: Request) -> Response:
        draft, expected = read_draft(self.actor, parse_document(request)), expected_etag(request)
        change, drafted = drafts.apply_draft(actor=self.actor, draft=draft, expected=expected)
        stored = drafts.version_tag_after_draft(drafted)
        applied = serialize_changes(self.actor, [change])[0] if change else None
        return Response(ApplyQuotasResponse(change=applied), headers={"ETag": etag(stored)})


class QuotaChanges(ApiView):
    @operation("List quota changes, newest first", query=ListQuery, page=QuotaChangeResponse)
    def get(self, request: Request) -> Response:
        rows = selectors.quota_changes(self.actor)
        return Response(
            page(
                rows,
                parse_query(request, ListQuery),
                NEWEST,
                lambda rows: serialize_changes(self.actor, rows),
            )
        )


class QuotaChangeDetail(ApiView):
    @operation("Get a quota change", response=QuotaChangeResponse)
    def get(self, request: Request, change_id: int) -> Response:
        return Response(
            serialize_changes(self.actor, [selectors.find_quota_change(self.actor, change_id)])[0]
        )


class RevertQuotaChange(ApiView):
    change_scope = "admin"

    @operation("Revert a quota change unless a later change overrode it", response=QuotaChangeResponse)
    @idempotent
    def post(self, request: Request, change_id: int) -> Response:
        change = selectors.find_quota_change(self.actor, change_id)
        return Response(serialize_changes(self.actor, [reverts.revert(actor=self.actor, change=change)])[0])


def serialize_changes(actor: Actor, rows: Sequence[QuotaChange]) -> list[Any]:
    seen = selectors.VisibleScope(actor)
    reverted_by = dict(
        QuotaChange.objects.filter(reverts__in=[row.pk for row in rows]).values_list("reverts", "pk")
    )
    expiries = {row.change_id: row for row in QuotaExpiry.objects.filter(change__in=[row.pk for row in rows])}
    latest = reverts.latest_changes(entry for row in rows for entry in row.written)
    return [
        _serialize_change(row, seen, latest, reverted_by.get(row.pk), expiries.get(row.pk)) for row in rows
    ]


def _serialize_change(
    row: QuotaChange,
    seen: selectors.VisibleScope,
    latest: Mapping[reverts.QuotaKey, int],
    reverted_by: int | None,
    expiry: QuotaExpiry | None,
) -> QuotaChangeResponse:
    shown = [entry for entry in row.written if seen.includes(entry.get("project_id"), entry["department_id"])]
    return QuotaChangeResponse.from_row(
        row,
        reverted_by=reverted_by,
        superseded_by=reverts.superseding_change(row, shown, latest),
        expires_at=expiry.due_at if expiry else None,
        expired=expiry.outcome if expiry and expiry.done_at else None,
        quotas=[_changed_quota(entry) for entry in shown],
        hidden=len(row.written) - len(shown),
    )


def _changed_quota(entry: Mapping[str, Any]) -> ChangedQuota:
    values = {name: entry[name] for name in ("kind", "name", "pool", "before", "after")}
    return ChangedQuota(group=entry["pool_id"] is None, **values)
