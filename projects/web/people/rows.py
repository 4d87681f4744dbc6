"""Rows of the users table: one per role, and one per superuser or user without a role."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User

from berth.core.wording.words import token_to_words
from berth.server.web.lists.tables import Column
from projects.access import administered_departments, administered_projects, is_platform_admin
from projects.actor import Actor
from projects.models import Membership, Role
from projects.selectors import members, users

PLATFORM = "platform"
SUPERUSER, NO_ROLE = "superuser", "none"
ROLE_FILTERS = (
    *((role, token_to_words(role)) for role in Role),
    (SUPERUSER, "Superuser"),
    (NO_ROLE, "No role"),
)


@dataclass(frozen=True, slots=True)
class UserWithRole:
    """User with one role.

    `membership` is None for a superuser or a user without a role. `email` is empty unless the viewer
    administers the role's scope.
    """

    user: User
    membership: Membership | None
    email: str
    may_change: bool = False

    @property
    def role(self) -> str:
        if self.membership is not None:
            return self.membership.role
        return SUPERUSER if self.user.is_superuser else NO_ROLE

    @property
    def since(self) -> datetime | None:
        """Return when the role was granted.

        For a superuser, return when the account was created. Return None for a user without a role.
        """
        if self.membership is not None:
            return self.membership.created_at
        return self.user.date_joined if self.user.is_superuser else None

    @property
    def role_title(self) -> str:
        return dict(ROLE_FILTERS)[self.role]

    @property
    def scope_key(self) -> str:
        """Return the role's scope in the format of the form that grants roles, such as `project:vision`."""
        department, project = ("", "") if self.membership is None else _scope_names(self.membership)
        return f"project:{project}" if project else f"department:{department}" if department else PLATFORM

    @property
    def scope_title(self) -> str:
        if self.membership is None:
            return "The entire platform" if self.user.is_superuser else ""
        return " / ".join(filter(None, _scope_names(self.membership))) or "The entire platform"

    @property
    def state(self) -> str:
        return "active" if self.user.is_active else "deactivated"


COLUMNS: tuple[Column[UserWithRole], ...] = (
    Column("user", "User", lambda row: row.user.username),
    Column("mail", "Email", lambda row: row.email, is_csv_only=True),
    Column("role", "Role", lambda row: row.role_title),
    Column("scope", "Scope", lambda row: row.scope_title),
    Column("since", "Since", lambda row: row.since),
)
ADMIN_COLUMNS: tuple[Column[UserWithRole], ...] = (
    *COLUMNS,
    Column("state", "State", lambda row: row.state, is_csv_only=True),
    Column("created", "Created", lambda row: row.user.date_joined, is_csv_only=True),
    Column("seen", "Last sign-in", lambda row: row.user.last_login),
)


def list_people(actor: Actor) -> list[UserWithRole]:
    """Return the user rows that the viewer may see. Platform admins also see users without a role."""
    is_admin = is_platform_admin(actor)
    by_user: dict[int, list[Membership]] = {}
    for row in sorted(members(actor).order_by("pk"), key=_sort_key):
        by_user.setdefault(row.user_id, []).append(row)
    if not is_admin:
        return list(_visible_roles(actor, by_user))
    rows: list[UserWithRole] = []
    for user in users(actor):
        roles: list[Membership | None] = [*by_user.get(user.pk, ())]
        if user.is_superuser or not roles:
            roles.insert(0, None)
        may_change = actor.user is not None and user.pk != actor.user.pk
        rows += [UserWithRole(user, role, user.email, may_change) for role in roles]
    return rows


def offer_deactivation_once(rows: Iterable[UserWithRole]) -> Iterator[UserWithRole]:
    """Yield the rows of a page. Only a user's first row offers to deactivate the user."""
    users_before: set[int] = set()
    for row in rows:
        yield replace(row, may_change=row.may_change and row.user.pk not in users_before)
        users_before.add(row.user.pk)


def _visible_roles(actor: Actor, by_user: dict[int, list[Membership]]) -> Iterator[UserWithRole]:
    in_projects = set(administered_projects(actor).values_list("pk", flat=True))
    in_departments = set(administered_departments(actor).values_list("pk", flat=True))
    for roles in by_user.values():
        for role in roles:
            may_see_email = role.project_id in in_projects or role.department_id in in_departments
            yield UserWithRole(role.user, role, role.user.email if may_see_email else "")


def _scope_names(row: Membership) -> tuple[str, str]:
    department = row.project.department.name if row.project else row.department.name if row.department else ""
    return department, row.project.name if row.project else ""


def _sort_key(row: Membership) -> tuple[str, str, str, int]:
    """Return a sort key that puts the platform first, and each department before its projects."""
    return *_scope_names(row), row.user.username, row.pk
