"""Users, roles, tokens and audit entries."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model


class Token(Model):
    id: int | str
    name: str
    prefix: str = ""
    scopes: list[str] = []
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    interactive: bool = False
    token: str | None = None


class PasswordChanged(Model):
    """Result of a password change; `token` replaces the current token if sign-in created it."""

    revoked_tokens: int
    token: str | None = None
    expires_at: datetime | None = None


class Identity(Model):
    username: str
    platform_admin: bool = False
    roles: list[Any] = []
    scopes: list[str] = []


class Member(Model):
    id: int
    user: str
    role: str
    department: str | None = None
    project: str | None = None
    created_at: datetime | None = None

    @property
    def scope(self) -> str:
        """Project or department to which the role applies, or the platform."""
        return self.project or self.department or "everywhere"


class User(Model):
    username: str
    email: str = ""
    active: bool = True


class Change(Model):
    """One entry of the audit log."""

    id: int
    at: datetime
    actor: str = ""
    action: str = ""
    object_type: str = ""
    object_id: str = ""
    object_name: str = ""
    before: Any = None
    after: Any = None
    request_id: str = ""
