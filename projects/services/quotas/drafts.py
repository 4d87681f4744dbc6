"""Apply and revert quota drafts, all or nothing.

A draft is judged against the versions that its writer has seen: the tag names one for each quota that it
touches, so that a refusal can say which of them somebody else has changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError
from django.db.models import Q
from psycopg.errors import UniqueViolation

from berth.core.errors import Conflict, Forbidden, Invalid, PreconditionFailed
from berth.core.problems import Problem
from berth.db.references import with_living_references
from pools.models import NodePool
from projects import selectors
from projects.acting import Acting
from projects.models import Audit, Department, Lapse, Project, Quota, QuotaChange
from projects.services.quotas.changes import Written, record
from projects.services.quotas.values import Columns, columns_of, faults_of, values_of
from projects.services.quotas.versions import next_version
from projects.services.quotas.write import place_of, require_to_set

NONE_YET = "0.0"

PlaceKey = tuple[int | None, int | None, int]  # department, project, pool


@dataclass(frozen=True, slots=True)
class Change:
    """What one quota is to be; `columns` None: removed. `path` points into the document."""

    owner: Department | Project
    pool: NodePool
    columns: Columns | None
    path: str

    @property
    def place(self) -> dict[str, Any]:
        return {"pool": self.pool, **place_of(self.owner)}


@dataclass(frozen=True, slots=True)
class Draft:
    changes: tuple[Change, ...]
    comment: str = ""
    expires_at: datetime | None = None  # then what it set goes back, unless somebody has set it since


@dataclass(frozen=True, slots=True)
class Drafted:
    """One change beside what is stored now. `after` has no row of its own; None: there would be none."""

    change: Change
    before: Quota | None
    after: Quota | None

    @property
    def is_news(self) -> bool:
        return _values(self.before) != _values(self.after)


def compared(draft: Draft, *, lock: bool = False) -> list[Drafted]:
    """Each change beside what is stored. Raises Invalid with every fault of what it would come to."""
    stored = _stored(draft, lock=lock)
    found = [Drafted(change, before, _after(change, before)) for change, before in stored]
    problems = [
        Problem(f"{each.change.path}.set.{fault.path}", fault.message, fault.received, fault.allowed)
        for each in found
        for fault in (faults_of(each.after) if each.after else ())
    ]
    if problems:
        raise Invalid(problems)
    return found


def tag_of(drafted: Sequence[Drafted]) -> str:
    """The versions that it builds upon, in the draft's order."""
    return "-".join(version_of(each.before) for each in drafted)


def tag_after(drafted: Sequence[Drafted]) -> str:
    """The versions that its application left behind: not those of whoever came next."""
    return "-".join(version_of(each.after) for each in drafted)


def apply_draft(
    *, acting: Acting, draft: Draft, expected: str | None = None, reverts: int | None = None
) -> tuple[QuotaChange | None, list[Drafted]]:
    """All or nothing. None where everything is as the draft says already.

    `expected` is the tag that the writer has seen. Raises PreconditionFailed, Invalid, NotFound, Forbidden.
    """
    for owner in dict.fromkeys(change.owner for change in draft.changes):
        require_to_set(acting, owner)
    try:
        with with_living_references("One of its owners or pools"):
            drafted = compared(draft, lock=True)
            if expected is not None and expected != tag_of(drafted):
                raise _overtaken(drafted, expected)
            news = [each for each in drafted if each.is_news]
            return (_write(acting, news, draft, reverts) if news else None), drafted
    except IntegrityError as error:
        if not isinstance(error.__cause__, UniqueViolation):
            raise
        raise PreconditionFailed("Somebody created one of these quotas at the same moment.") from None


def inverse_of(change: QuotaChange) -> tuple[Draft, str]:
    """What would take it back, and the tag of what it left behind. Raises Conflict where owners are gone."""
    changes, versions = [], []
    for number, entry in enumerate(change.written):
        owner, pool = _owner(entry), NodePool.objects.filter(pk=entry["pool_id"]).first()
        if owner is None or pool is None:
            gone = entry["pool"] if pool is None else entry["name"]
            raise Conflict(f"Change {change.pk} cannot be taken back: {gone} is gone.")
        before = entry["before"]
        changes.append(Change(owner, pool, _columns(before), f"changes[{number}]"))
        versions.append(f"{entry['quota_id']}.{entry['version']}" if entry["version"] else NONE_YET)
    return Draft(tuple(changes), f"Takes back change {change.pk}"), "-".join(versions)


def revert(*, acting: Acting, change: QuotaChange) -> QuotaChange:
    """Refused with PreconditionFailed where somebody has changed one of its quotas since.

    Who does not see all of it learns nothing of the rest, nor what has become of it.
    """
    seen = selectors.Scope(acting)
    if not all(seen.holds(entry.get("project_id"), entry["department_id"]) for entry in change.written):
        raise Forbidden(f"Change {change.pk} touched quotas that you may not set.")
    taken_back = QuotaChange.objects.filter(reverts=change.pk).first()
    if taken_back is not None:
        raise Conflict(f"Change {change.pk} was taken back already, by change {taken_back.pk}.")
    draft, left = inverse_of(change)
    made, _ = apply_draft(acting=acting, draft=draft, expected=left, reverts=change.pk)
    assert made is not None, "a change that changed nothing is not written down"
    return made


def _write(acting: Acting, news: Sequence[Drafted], draft: Draft, reverts: int | None) -> QuotaChange:
    written = []
    for each in news:
        quota = each.after or each.before
        assert quota is not None, "what there neither is nor will be is no news"
        if each.after is not None:
            quota.version = next_version(quota)
            quota.save()
        written.append(Written(quota, each.change.owner, _values(each.before), _values(each.after)))
    change = record(acting, written, comment=draft.comment, reverts=reverts)
    if draft.expires_at is not None:
        Lapse.objects.create(change=change, due_at=draft.expires_at)
    for each in news:
        if each.after is None and each.before is not None:
            each.before.delete()
    return change


def _stored(draft: Draft, *, lock: bool) -> list[tuple[Change, Quota | None]]:
    by_place = stored_of([(change.owner, change.pool) for change in draft.changes], lock=lock)
    return [(change, by_place.get(place_key(change.owner, change.pool))) for change in draft.changes]


def stored_of(
    places: Sequence[tuple[Department | Project, NodePool]], *, lock: bool = False
) -> dict[PlaceKey, Quota]:
    """What is stored in these places, by place; locked in one order, and nothing beside it."""
    wanted = {place_key(owner, pool) for owner, pool in places}
    tops, inner, pools = ({key[part] for key in wanted} for part in range(3))
    near = Quota.objects.filter(pool__in=pools).filter(Q(department__in=tops) | Q(project__in=inner))
    keys = near.order_by().values_list("pk", "department_id", "project_id", "pool_id")
    rows = Quota.objects.filter(pk__in=[pk for pk, *key in keys if tuple(key) in wanted])
    rows = rows.select_related("department", "project__department", "pool")
    if lock:
        rows = rows.select_for_update(of=("self",))
    return {(row.department_id, row.project_id, row.pool_id): row for row in rows.order_by("pk")}


def place_key(owner: Department | Project, pool: NodePool) -> PlaceKey:
    return (owner.pk, None, pool.pk) if isinstance(owner, Department) else (None, owner.pk, pool.pk)


def _after(change: Change, before: Quota | None) -> Quota | None:
    if change.columns is None:
        return None
    after = Quota(version=0, **change.place)
    if before is not None:
        after = Quota(**{field.attname: getattr(before, field.attname) for field in Quota._meta.fields})
        after._state.adding = False
        after.pool, owner = change.pool, place_of(change.owner)
        for name, value in owner.items():
            setattr(after, name, value)
    for column, value in change.columns.items():
        setattr(after, column, value)
    return after


def _values(quota: Quota | None) -> dict[str, Any] | None:
    return None if quota is None else values_of(quota)


def version_of(quota: Quota | None) -> str:
    return NONE_YET if quota is None else f"{quota.pk}.{quota.version}"


def _overtaken(drafted: Sequence[Drafted], expected: str) -> PreconditionFailed:
    """What changed since the draft was begun, and by whom."""
    seen = expected.split("-")
    if len(seen) != len(drafted):
        return PreconditionFailed("If-Match does not belong to this draft: preview it again.")
    moved = [each for each, version in zip(drafted, seen, strict=True) if version != version_of(each.before)]
    changed = [_who(each) for each in moved]
    names = ", ".join(f"{entry['name']} on {entry['pool']} (by {entry['by']})" for entry in changed)
    return PreconditionFailed(
        f"Somebody was faster: {names}. Preview the draft again.", changed=changed, current=tag_of(drafted)
    )


def _who(each: Drafted) -> dict[str, Any]:
    owner, rows = each.change.owner, Audit.objects.filter(object_type="quota")
    if each.before is not None:
        last = rows.filter(object_id=str(each.before.pk)).first()
    else:
        last = rows.filter(object_name=f"{owner} on {each.change.pool}", action="remove_quota").first()
    return {
        "kind": "department" if isinstance(owner, Department) else "project",
        "name": owner.name,
        "pool": each.change.pool.name,
        "by": last.actor if last else "somebody",
        "at": last.at.isoformat() if last else None,
        "current": _values(each.before),
    }


def _owner(entry: Mapping[str, Any]) -> Department | Project | None:
    if entry["kind"] == "department":
        return Department.objects.filter(pk=entry["department_id"]).first()
    return Project.objects.select_related("department").filter(pk=entry["project_id"]).first()


def _columns(values: Mapping[str, Any] | None) -> Columns | None:
    return None if values is None else columns_of(values)
