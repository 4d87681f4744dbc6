"""Pages for platform admins: the API tokens of all users, and one user's roles and tokens."""

from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.http import require_GET

from berth.core.errors import Forbidden
from berth.server.web.lists.tables import Column, Listing, list_query, requested_csv, table_state
from berth.server.web.pages import Request, page, signed_in
from projects.access import Action, may
from projects.models import ApiToken
from projects.selectors import all_tokens, members

COLUMNS: tuple[Column[ApiToken], ...] = (
    Column("user", "User", lambda row: row.user.username, order="user__username"),
    Column("name", "Name", lambda row: row.name, order="name"),
    Column("prefix", "Prefix", lambda row: row.prefix, is_csv_only=True),
    Column("scopes", "Scopes", lambda row: ", ".join(row.scopes)),
    Column("created", "Created", lambda row: row.created_at, order="created_at", is_secondary=True),
    Column("used", "Last used", lambda row: row.last_used_at, order="last_used_at"),
    Column("expires", "Expires", lambda row: row.expires_at, order="expires_at"),
)


@signed_in
@require_GET
def index(request: Request) -> HttpResponse | StreamingHttpResponse:
    _require_platform_admin(request)
    rows = _valid_tokens(request)
    for word in table_state(request.GET, "")["search"].split():
        rows = rows.filter(
            Q(user__username__icontains=word) | Q(name__icontains=word) | Q(scopes__contains=[word.lower()])
        )
    listing = _token_listing(request, COLUMNS, rows, "tokens-of-all-users")
    if file := requested_csv(request, listing):
        return file
    return page(
        request, "projects/people/all_tokens.html", {"tokens": listing},
        inner="projects/people/all_tokens_rows.html",
    )  # fmt: skip


@signed_in
@require_GET
def user(request: Request, user_id: str) -> HttpResponse | StreamingHttpResponse:
    _require_platform_admin(request)
    shown = get_object_or_404(User, pk=user_id)
    tokens = _token_listing(
        request, COLUMNS[1:], _valid_tokens(request).filter(user=shown), f"tokens-{shown}"
    )
    if file := requested_csv(request, tokens):
        return file
    roles = members(request.actor).filter(user=shown).select_related("department", "project")
    context = {
        "shown": shown,
        "roles": roles.order_by("pk"),
        "tokens": tokens,
        "may_change": shown.pk != request.user.pk,
    }
    return page(request, "projects/people/user.html", context, inner="projects/people/user_body.html")


def _token_listing(
    request: Request, columns: tuple[Column[ApiToken], ...], rows: QuerySet[ApiToken], file_name: str
) -> Listing[ApiToken]:
    return list_query(request, columns, rows, list, file_name=file_name, default="-created")


def _valid_tokens(request: Request) -> QuerySet[ApiToken]:
    expiry: Any = Q(expires_at__isnull=True) | Q(expires_at__gt=timezone.now())
    return all_tokens(request.actor).filter(expiry, revoked_at__isnull=True)


def _require_platform_admin(request: Request) -> None:
    if not may(request.actor, Action.ADMINISTER):
        raise Forbidden("Only platform admins can see the tokens of other users. Ask a platform admin.")
