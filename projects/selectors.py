"""Tenant-scoped queries for the objects that a user may see."""

import re
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import TypeVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import BooleanField, Count, ExpressionWrapper, F, Model, Q, QuerySet
from django.db.models.expressions import CombinedExpression

from berth.core.not_found import ObjectKind, not_found_error
from berth.db.queries.known_names import NameColumn
from pools.models import PluginSecret, PoolSecret, QuotaGroup
from projects.access import (
    administered_departments,
    administered_projects,
    fully_visible_departments,
    has_any_role,
    is_platform_admin,
    visible_departments,
    visible_pools,
    visible_projects,
)
from projects.actor import Actor
from projects.models import (
    ApiToken,
    Audit,
    Budget,
    Department,
    Event,
    Membership,
    Phase,
    Pod,
    Project,
    ProjectSecret,
    Quota,
    QuotaChange,
    Schedule,
    SecretUse,
    Subscription,
    Template,
    UserSecret,
    Workload,
    WorkloadArray,
)
from projects.models.tenants import Tenant
from projects.models.workloads import ENDED_PHASES, LIVE_PHASES

AnySecret = ProjectSecret | PoolSecret | UserSecret
RecordedSecret = AnySecret | PluginSecret
R = TypeVar("R", bound=Model)
MIN_ID_LETTERS, ID_LETTERS = 6, 32
ID_START = re.compile(
    r"[0-9a-f]{1,32}|[0-9a-f]{8}(-[0-9a-f]{4}){0,2}-[0-9a-f]{0,4}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{0,12}"
)


def departments(actor: Actor) -> QuerySet[Department]:
    return visible_departments(actor).order_by("name")


def projects(actor: Actor) -> QuerySet[Project]:
    return visible_projects(actor).select_related("department").order_by("department__name", "name")


def restrict_to_visible_owners(actor: Actor, rows: QuerySet[R]) -> QuerySet[R]:
    """Return the rows of visible projects, and of departments that the user sees in full."""
    if is_platform_admin(actor):
        return rows
    return rows.filter(
        Q(project__in=visible_projects(actor)) | Q(department__in=fully_visible_departments(actor))
    )


def quotas(actor: Actor) -> QuerySet[Quota]:
    """Return the quotas of visible projects, and of departments that the user sees in full."""
    return restrict_to_visible_owners(
        actor, Quota.objects.select_related("department", "project__department", "pool", "group")
    )


def quota_groups(actor: Actor) -> QuerySet[QuotaGroup]:
    """Return all quota groups, or none if the user may not see pools."""
    rows = QuotaGroup.objects.prefetch_related("pools").order_by("name")
    return rows if has_any_role(actor) else rows.none()


def find_quota_group(actor: Actor, name: str) -> QuotaGroup:
    return _find_by_name(quota_groups(actor), name, ObjectKind.QUOTA_GROUP)


def budgets(actor: Actor) -> QuerySet[Budget]:
    """Return the budgets of visible projects, and of departments that the user sees in full."""
    return restrict_to_visible_owners(
        actor, Budget.objects.select_related("department", "project__department")
    )


def members(actor: Actor) -> QuerySet[Membership]:
    return restrict_to_visible_owners(
        actor, Membership.objects.select_related("user", "department", "project__department")
    )


def workload_count(condition: Q | None = None) -> CombinedExpression:
    """Return an aggregate that counts the workloads matching a condition. An array counts as one workload."""
    matching = condition or Q()
    return Count("pk", filter=matching & Q(array__isnull=True)) + Count(
        "array", filter=matching & Q(array__isnull=False), distinct=True
    )


def workloads(actor: Actor) -> QuerySet[Workload]:
    rows = Workload.objects.select_related("project__department", "submitted_by", "pool")
    return _in_visible_projects(actor, rows)


def id_condition(word: str, column: str = "pk") -> Q:
    """Return a condition for IDs that start with `word`.

    No ID matches unless `word` has at least MIN_ID_LETTERS hexadecimal digits.
    """
    digits = word.lower().replace("-", "")
    if not ID_START.fullmatch(word.lower()) or not MIN_ID_LETTERS <= len(digits) <= ID_LETTERS:
        return Q(pk__in=())
    first, last = (UUID(digits.ljust(ID_LETTERS, digit)) for digit in "0f")
    return Q(**{f"{column}__gte": first, f"{column}__lte": last})


def arrays(actor: Actor) -> QuerySet[WorkloadArray]:
    rows = WorkloadArray.objects.select_related("project__department", "submitted_by")
    return _in_visible_projects(actor, rows)


def pods(actor: Actor) -> QuerySet[Pod]:
    rows = Pod.objects.select_related("workload__project__department", "node__pool")
    if is_platform_admin(actor):
        return rows
    return rows.filter(workload__project__in=visible_projects(actor))


def events(actor: Actor) -> QuerySet[Event]:
    rows = Event.objects.order_by("-id")
    if is_platform_admin(actor):
        return rows
    return rows.filter(project_id__in=visible_projects(actor).values("pk"))


def audit(actor: Actor) -> QuerySet[Audit]:
    """Return audit entries of visible projects and departments. Platform admins see all entries."""
    rows = Audit.objects.order_by("-id")
    if is_platform_admin(actor):
        return rows
    return rows.filter(
        Q(project_id__in=visible_projects(actor).values("pk"))
        | Q(department_id__in=fully_visible_departments(actor).values("pk"))
    )


def quota_changes(actor: Actor) -> QuerySet[QuotaChange]:
    """Return the quota changes that affect at least one visible quota."""
    rows = QuotaChange.objects.order_by("-id")
    if is_platform_admin(actor):
        return rows
    return rows.filter(pk__in=audit(actor).filter(change_id__isnull=False).values("change_id"))


def project_secrets(actor: Actor) -> QuerySet[ProjectSecret]:
    rows = ProjectSecret.objects.select_related("project__department")
    return rows.filter(project__in=visible_projects(actor))


def personal_secrets(actor: Actor) -> QuerySet[UserSecret]:
    """Return the user's own secrets."""
    rows = UserSecret.objects.select_related("user")
    return rows.none() if actor.user is None else rows.filter(user=actor.user)


def pool_secrets(actor: Actor) -> QuerySet[PoolSecret]:
    return PoolSecret.objects.select_related("pool").filter(pool__in=visible_pools(actor))


def plugin_secrets(actor: Actor) -> QuerySet[PluginSecret]:
    """Return the plugin secrets of the visible pools. Plugin secrets are part of a pool's settings."""
    return PluginSecret.objects.select_related("pool").filter(pool__in=visible_pools(actor))


def secret_users(actor: Actor, secret: AnySecret) -> QuerySet[Workload]:
    """Return the visible live workloads whose documents name the secret, ordered by name."""
    personal = {"personal": True} if isinstance(secret, UserSecret) else {}
    use = {"secrets": [{"name": secret.name, **personal}]}
    rows = workloads(actor).filter(phase__in=LIVE_PHASES)
    rows = rows.filter(Q(spec__contains=use) | Q(spec__contains={"roles": [use]}))
    if isinstance(secret, UserSecret):
        rows = rows.filter(submitted_by=secret.user)
    elif isinstance(secret, ProjectSecret):
        rows = rows.filter(project=secret.project)
    else:
        hidden = ProjectSecret.objects.filter(name=secret.name, kind=secret.kind).values("project")
        rows = rows.filter(pools__contains=[secret.pool.name]).exclude(project__in=hidden)
    return rows.order_by("project__name", "name")


def secret_uses(actor: Actor, secret: RecordedSecret) -> QuerySet[SecretUse]:
    """Return the runs of visible workloads that received the secret.

    `is_outdated` is True for live runs with an earlier version.
    """
    rows = _visible_secret_uses(actor).filter(_secret_use_condition(secret))
    rows = rows.select_related("workload__project__department")
    return rows.annotate(
        is_outdated=ExpressionWrapper(_outdated_condition(secret), output_field=BooleanField())
    )


def outdated_workload_counts(
    actor: Actor, secrets: Iterable[RecordedSecret]
) -> dict[tuple[str, str, str], int]:
    """Return the number of visible workloads that run with an outdated version of each secret.

    Each key is (owner's kind, owner's name, secret's name).
    """
    outdated = [_secret_use_condition(secret) & _outdated_condition(secret) for secret in secrets]
    if not outdated:
        return {}
    rows = _visible_secret_uses(actor).filter(reduce(or_, outdated)).order_by()
    counted = rows.values_list("owner_kind", "owner", "name").annotate(Count("workload", distinct=True))
    return {(kind, owner, name): count for kind, owner, name, count in counted}


def secret_use_counts(actor: Actor, secrets: Iterable[RecordedSecret]) -> dict[tuple[str, str, str], int]:
    """Return how many visible runs received each secret. Keys are as in `outdated_workload_counts`."""
    wanted = [_secret_use_condition(secret) for secret in secrets]
    if not wanted:
        return {}
    rows = _visible_secret_uses(actor).filter(reduce(or_, wanted)).order_by()
    counted = rows.values_list("owner_kind", "owner", "name").annotate(Count("pk"))
    return {(kind, owner, name): count for kind, owner, name, count in counted}


def _visible_secret_uses(actor: Actor) -> QuerySet[SecretUse]:
    rows = SecretUse.objects.all()
    if is_platform_admin(actor):
        return rows
    return rows.filter(workload__project__in=visible_projects(actor))


def _secret_use_condition(secret: RecordedSecret) -> Q:
    if isinstance(secret, UserSecret):
        return Q(owner_kind=SecretUse.Owner.USER, owner=secret.user.get_username(), name=secret.name)
    if isinstance(secret, ProjectSecret):
        return Q(owner_kind=SecretUse.Owner.PROJECT, owner=secret.project.name, name=secret.name)
    return Q(owner_kind=SecretUse.Owner.POOL, owner=secret.pool.name, name=secret.name)


def _outdated_condition(secret: RecordedSecret) -> Q:
    is_running = Q(run=F("workload__run")) & ~Q(workload__phase__in=[*ENDED_PHASES, Phase.SUSPENDED])
    return is_running & (Q(version__lt=secret.version) | ~Q(value__secret=secret.pk))


def find_quota_change(actor: Actor, change_id: int) -> QuotaChange:
    return _find_by_id(quota_changes(actor), change_id, ObjectKind.QUOTA_CHANGE)


class VisibleScope:
    """IDs of the projects and departments that a user may see, loaded once for many checks."""

    def __init__(self, actor: Actor) -> None:
        self._all = is_platform_admin(actor)
        self._projects, self._departments = set[int](), set[int]()
        if not self._all:
            self._projects = set(visible_projects(actor).values_list("pk", flat=True))
            self._departments = set(fully_visible_departments(actor).values_list("pk", flat=True))

    def includes(self, project_id: int | None, department_id: int | None) -> bool:
        """Return whether the user sees objects of the project or, if there is no project, of the
        department.
        """
        if self._all:
            return True
        return project_id in self._projects if project_id is not None else department_id in self._departments


def subscriptions(actor: Actor) -> QuerySet[Subscription]:
    """Return the user's own subscriptions, and subscriptions of scopes that the user administers."""
    rows = Subscription.objects.select_related("user", "project", "department").order_by("pk")
    by_user = Q(user=actor.user) if actor.user else Q(pk=None)
    if is_platform_admin(actor):
        return rows.filter(by_user | Q(user__isnull=True))
    in_projects = Q(project__in=administered_projects(actor))
    return rows.filter(by_user | in_projects | Q(department__in=administered_departments(actor)))


def templates(actor: Actor) -> QuerySet[Template]:
    """Return the templates of visible projects."""
    rows = Template.objects.select_related("project__department", "made_by").order_by("project__name", "name")
    return _in_visible_projects(actor, rows)


def schedules(actor: Actor) -> QuerySet[Schedule]:
    """Return the schedules of visible projects."""
    rows = Schedule.objects.select_related("project__department", "owner").order_by("project__name", "name")
    return _in_visible_projects(actor, rows)


def tokens(actor: Actor) -> QuerySet[ApiToken]:
    """Return the actor's own tokens."""
    return ApiToken.objects.filter(user=actor.user) if actor.user else ApiToken.objects.none()


def all_tokens(actor: Actor) -> QuerySet[ApiToken]:
    """Return the tokens of all users if the actor is a platform admin, otherwise the actor's own tokens."""
    rows = ApiToken.objects.select_related("user")
    if is_platform_admin(actor):
        return rows
    return rows.filter(user=actor.user) if actor.user else rows.none()


def users(actor: Actor) -> QuerySet[User]:
    """Return the users in scopes that the actor administers. Platform admins see all users."""
    rows = User.objects.order_by("username")
    if is_platform_admin(actor):
        return rows
    administered = Membership.objects.filter(
        Q(project__in=administered_projects(actor)) | Q(department__in=administered_departments(actor))
    )
    return rows.filter(pk__in=administered.values("user"))


def find_grantee(username: str) -> User | None:
    """Return the user with exactly this name, or None."""
    return User.objects.filter(username=username).first()


def find_department(actor: Actor, name: str) -> Department:
    return _find_by_name(departments(actor), name, ObjectKind.DEPARTMENT)


def find_owner(actor: Actor, kind: str, name: str) -> Tenant:
    """Return a department if `kind` is "departments", otherwise a project. Raises NotFound."""
    return find_department(actor, name) if kind == "departments" else find_project(actor, name)


def find_project(actor: Actor, name: str) -> Project:
    return _find_by_name(projects(actor), name, ObjectKind.PROJECT)


def find_workload(actor: Actor, workload_id: UUID | str) -> Workload:
    return _find_by_id(workloads(actor), workload_id, ObjectKind.WORKLOAD)


def find_array(actor: Actor, array_id: UUID | str) -> WorkloadArray:
    return _find_by_id(arrays(actor), array_id, ObjectKind.ARRAY)


def _in_visible_projects(actor: Actor, rows: QuerySet[R]) -> QuerySet[R]:
    return rows if is_platform_admin(actor) else rows.filter(project__in=visible_projects(actor))


def _find_by_name(rows: QuerySet[R], name: str, kind: ObjectKind) -> R:
    row = rows.filter(name=name).first()
    if row is None:
        raise not_found_error(kind, name=name, visible=NameColumn(rows).list())
    return row


def _find_by_id(rows: QuerySet[R], object_id: UUID | int | str, kind: ObjectKind) -> R:
    row = rows.filter(pk=object_id).first()
    if row is None:
        raise not_found_error(kind, object_id=object_id)
    return row
