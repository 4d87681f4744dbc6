"""The actor: a person with the scopes of the token used, or a part of Berth itself."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.contrib.auth.models import User

SCOPES = ("read", "write", "admin")
ALL_SCOPES = frozenset(SCOPES)


@dataclass(frozen=True, slots=True)
class Acting:
    """`user` is None for Berth's own parts, which may do everything; `name` is what history shows."""

    user: "User | None"
    name: str
    scopes: frozenset[str] = ALL_SCOPES
    request_id: str = ""
    until: datetime | None = None  # when the token used here ends; None: no token, or one without an end
    token_id: int | None = None  # of the token used; None: a session, or no token
    session_key: str = ""  # of the browser session used
    known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)  # asked once per request

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
        """Raise NotFound where the object is not visible, Forbidden where the action is not allowed."""
        from projects.access import Action, require

        require(self, Action(action), obj)
