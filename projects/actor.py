"""Actor of an operation: a user with token scopes, or a component of Berth."""

from dataclasses import dataclass, field
from datetime import datetime
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


@dataclass(frozen=True, slots=True)
class Actor:
    """User or component of Berth that performs an operation.

    `user` is None for a component, which has all permissions. `name` is recorded in the history.
    """

    user: "User | None"
    name: str
    scopes: frozenset[str] = ALL_SCOPES
    request_id: str = ""
    token_expires_at: datetime | None = None  # expiry of the token in use, if any
    token_id: int | None = None  # ID of the token in use, or None for a session
    session_key: str = ""  # key of the browser session in use
    # All roles of the user, loaded with the request's token. If None, roles are loaded when needed.
    roles: tuple[GrantedRole, ...] | None = None
    # Role lookups, cached for the duration of one request.
    role_cache: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def for_user(
        cls,
        user: "User",
        scopes: frozenset[str] = ALL_SCOPES,
        request_id: str = "",
        token_expires_at: datetime | None = None,
        token_id: int | None = None,
        session_key: str = "",
        roles: tuple[GrantedRole, ...] | None = None,
    ) -> Self:
        name = user.get_username()
        return cls(user, name, scopes, request_id, token_expires_at, token_id, session_key, roles)

    @classmethod
    def system(cls, part: str) -> "Actor":
        return cls(None, part)

    @property
    def is_system(self) -> bool:
        return self.user is None

    def require(self, action: str, obj: Any = None) -> None:
        """Raise NotFound if the object is not visible, or Forbidden if the action is denied."""
        from projects.access import Action, require

        require(self, Action(action), obj)
