"""Edit several quotas of a pool as one draft."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from berth.core.errors import Forbidden, Invalid, PreconditionFailed
from berth.core.problems import Problem
from berth.core.words import counted
from berth.web.faults import take_faults
from berth.web.pages import Request, done, page, signed_in
from berth.web.zones import zone_of
from pools.models import NodePool
from projects.models import Department
from projects.services.quotas import columns_of
from projects.services.quotas.drafts import Change, Draft, apply_draft
from projects.services.quotas.expiry import faults_of_time
from projects.web.quota_rows import FIELD_OF, FIELDS, RowForm, fresh, moved, rebased, typed
from scheduler.quota_preview import Impact, preview
from scheduler.web.lines import Line, lines
from scheduler.web.quotas import MOST_UNFOLDED, rights


@dataclass
class Row:
    """One quota of the tree; `form` None: shown, not to be edited. `moved`: what others changed meanwhile."""

    line: Line
    form: RowForm | None
    by: str = ""
    moved: dict[str, Any] = field(default_factory=dict)

    @property
    def cells(self) -> Iterator[tuple[Any, bool, Any]]:
        assert self.form is not None, "asked only of rows that may be edited"
        for name in FIELDS:
            yield self.form[name], name in self.moved, self.moved.get(name)

    @property
    def is_changed(self) -> bool:
        return self.form is not None and self.form.is_bound and bool(self.form.touched())

    @property
    def is_department(self) -> bool:
        return isinstance(self.line.owner, Department)


@signed_in
@require_http_methods(["GET", "POST"])
def edit(request: Request) -> HttpResponse:
    pool = get_object_or_404(NodePool, name=request.GET.get("pool", ""))
    rows = list(_rows(request, pool))
    if not any(row.form for row in rows):
        raise Forbidden("You may set no quota that you see here.")
    if request.method == "GET":
        return _page(request, pool, rows)
    news = [row for row in rows if row.is_changed]
    faulty = any(row.form.errors for row in rows if row.form is not None and row.form.is_bound)
    if faulty or not news:
        return _page(request, pool, rows, status=422, told="" if faulty else "Nothing is changed yet.")
    return _answer(request, pool, rows, news)


def _answer(request: Request, pool: NodePool, rows: list[Row], news: list[Row]) -> HttpResponse:
    try:
        note = request.POST.get("note", "").replace("\x00", "")[:500].strip()
        until = until_of(request)
        draft = Draft(tuple(_changes(pool, news)), note, until)
        if request.POST.get("do") != "apply":
            return _page(request, pool, rows, impact=preview(acting=request.acting, draft=draft))
        expected = "-".join(row.form.cleaned_data["version"] for row in news if row.form)
        apply_draft(acting=request.acting, draft=draft, expected=expected)
    except Invalid as error:
        _take(news, error)
        fault = next((f"{each.message}; allowed: {each.allowed}" for each in error.problems
                      if each.path == "lapses_at"), "")  # fmt: skip
        return _page(request, pool, rows, status=422, until_fault=fault)
    except PreconditionFailed as error:
        _overtaken(pool, rows, news, error)
        return _page(request, pool, rows, status=412, overtaken=True)
    told = f"{counted(len(news), 'quota')} on {pool} {'is' if len(news) == 1 else 'are'} set."
    return done(request, told, to=f"{reverse('quotas')}?pool={pool.name}", leave=True)


def until_of(request: Request) -> datetime | None:
    """Return the time at which the change ends, or None for never; a time without offset is in the
    reader's zone. Raises Invalid.
    """
    text = request.POST.get("until", "").strip()
    if not text:
        return None
    try:
        typed = datetime.fromisoformat(text)
        at = (typed if typed.tzinfo else typed.replace(tzinfo=zone_of(request))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid([Problem("lapses_at", "Is not a time", text[:40], "a day and a time")]) from None
    if faults := faults_of_time(at, timezone.now()):
        raise Invalid(faults)
    return at


def _rows(request: Request, pool: NodePool) -> Iterator[Row]:
    """As the tree shows them: beyond so many projects, those of one department at a time."""
    tree = lines(request.acting, [pool])
    few = sum(len(top.children) for top in tree) <= MOST_UNFOLDED
    for top in tree:
        may = rights(request.acting, top)
        yield _row(request, top, editable=may["quota"] and top.known)
        if few or top.owner.name == request.GET.get("open", ""):
            for line in top.children:
                yield _row(request, line, editable=may["projects"])


def _row(request: Request, line: Line, *, editable: bool) -> Row:
    form = (typed(line.owner, request.POST) if request.method == "POST" else None) if editable else None
    return Row(line, form or fresh(line.owner, line.quota) if editable else None)


def _changes(pool: NodePool, news: list[Row]) -> Iterator[Change]:
    """Raises Invalid, naming the row by its number."""
    for number, row in enumerate(news):
        path = f"changes[{number}]"
        assert row.form is not None, "what may not be edited is no news"
        try:
            columns = columns_of(row.form.values(row.line.quota))
        except Invalid as error:
            take_faults(row.form, error, FIELD_OF)
            raise Invalid([]) from None
        yield Change(row.line.owner, pool, columns, path)


def _take(news: list[Row], error: Invalid) -> None:
    """Beside the field of the row that it is about."""
    for number, row in enumerate(news):
        within = f"changes[{number}].set."
        mine = [problem for problem in error.problems if problem.path.startswith(within)]
        if mine and row.form is not None:
            names = {f"{within}{path}": name for path, name in FIELD_OF.items()}
            take_faults(row.form, Invalid(mine), names)


def _overtaken(pool: NodePool, rows: list[Row], news: list[Row], error: PreconditionFailed) -> None:
    """The draft stays, on top of what is stored now; what others changed stands beside it."""
    who = {(each["kind"], each["name"]): each["by"] for each in error.extra.get("changed", ())}
    for row in rows:
        if row.form is None or not row.form.is_bound:
            continue
        row.moved = moved(row.form, row.line.quota)
        kind = "department" if row.is_department else "project"
        row.by = who.get((kind, row.line.owner.name), "")
        row.form = rebased(row.form, row.line.owner, row.line.quota)


def _page(
    request: Request,
    pool: NodePool,
    rows: list[Row],
    *,
    status: int = 200,
    told: str = "",
    impact: Impact | None = None,
    overtaken: bool = False,
    until_fault: str = "",
) -> HttpResponse:
    context = {
        "pool": pool,
        "rows": rows,
        "changed": sum(row.is_changed for row in rows),
        "told": told,
        "impact": impact,
        "overtaken": overtaken,
        "note": request.POST.get("note", ""),
        "until": request.POST.get("until", "")[:40],
        "until_fault": until_fault,
        "zone": zone_of(request).key,
        "post_to": request.get_full_path(),
        "back": f"{reverse('quotas')}?pool={pool.name}",
    }
    return page(
        request, "scheduler/quota_draft.html", context, inner="scheduler/quota_draft_form.html", status=status
    )
