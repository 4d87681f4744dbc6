"""Actor of an operation: a user with token scopes, or a component of Berth."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SCOPES = ("read", "write", "admin")
ALL_SCOPES = frozenset(SCOPES)


@dataclass(frozen=True, slots=True)
class GrantedRole:
    """Role on the platform, in a department or in a project."""

    name: str
    department_id: int | None = None
    project_id: int | None = None

    def covers(self, project: Any) -> bool:
        """Return whether this role applies to the project, directly or through its department."""
        if self.project_id is not None:
            return bool(self.project_id == project.pk)
        return self.department_id is not None and bool(self.department_id == project.department_id)


@dataclass(frozen=True)
class Actor:
    """User or component of Berth that performs an operation.

    `user` is None for a component, which has all permissions. `name` is recorded in the history. An actor is
    created for each request, so a granted or revoked role takes effect with the next request.
    """

    user: "User | None"
    name: str
    scopes: frozenset[str] = ALL_SCOPES
    request_id: str = ""
    token_expires_at: datetime | None = None  # expiry of the token in use, if any
    token_id: int | None = None  # ID of the token in use, or None for a session
    session_key: str = ""  # key of the browser session in use
    # Roles that were loaded with the request's token. If None, `roles` loads them when they are needed.
    roles_of_token: tuple[GrantedRole, ...] | None = None

    @classmethod
    def for_user(
        cls,
        user: "User",
        scopes: frozenset[str] = ALL_SCOPES,
        request_id: str = "",
        token_expires_at: datetime | None = None,
        token_id: int | None = None,
        session_key: str = "",
        roles_of_token: tuple[GrantedRole, ...] | None = None,
    ) -> Self:
        name = user.get_username()
        return cls(user, name, scopes, request_id, token_expires_at, token_id, session_key, roles_of_token)

    @classmethod
    def system(cls, part: str) -> "Actor":
        return cls(None, part)

    @property
    def is_system(self) -> bool:
        return self.user is None

    @cached_property
    def roles(self) -> tuple[GrantedRole, ...]:
        """All roles of the user, or none if the user is not active."""
        from projects.models import Membership

        if self.user is None or not self.user.is_active:
            return ()
        if self.roles_of_token is not None:
            return self.roles_of_token
        rows = Membership.objects.filter(user=self.user).values_list("role", "department_id", "project_id")
        return tuple(GrantedRole(*row) for row in rows)

    def require(self, action: str, obj: Any = None) -> None:
        """Raise NotFound if the object is not visible, or Forbidden if the action is denied."""
        from projects.access import Action, require

        require(self, Action(action), obj)
