"""The actor: a user with the scopes of the token in use, or a part of Berth itself."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SCOPES = ("read", "write", "admin")
ALL_SCOPES = frozenset(SCOPES)


@dataclass(frozen=True, slots=True)
class Acting:
    """An actor. `user` is None for parts of Berth, which may do everything; the history records `name`."""

    user: "User | None"
    name: str
    scopes: frozenset[str] = ALL_SCOPES
    request_id: str = ""
    until: datetime | None = None  # expiry of the token in use; None without a token or an expiry
    token_id: int | None = None  # id of the token in use; None for a session
    session_key: str = ""  # key of the browser session in use
    # cache for one request
    role_cache: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def person(
        cls,
        user: "User",
        scopes: frozenset[str] = ALL_SCOPES,
        request_id: str = "",
        until: datetime | None = None,
        token_id: int | None = None,
        session_key: str = "",
    ) -> "Acting":
        return cls(user, user.get_username(), scopes, request_id, until, token_id, session_key)

    @classmethod
    def system(cls, part: str) -> "Acting":
        return cls(None, part)

    @property
    def is_system(self) -> bool:
        return self.user is None

    def require(self, action: str, obj: Any = None) -> None:
        """Raise NotFound if the object is not visible, or Forbidden if the action is not allowed."""
        from projects.access import Action, require

        require(self, Action(action), obj)
