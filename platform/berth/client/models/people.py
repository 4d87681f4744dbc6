# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for people."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model
from berth.client.models.mixins import MemberMixin


class AuditEntry(Model):
    """Entry in the audit log."""

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


class User(Model):
    username: str = ""
    email: str = ""
    active: bool = False
    """False for a deactivated account, which cannot sign in."""


class Member(MemberMixin, Model):
    id: int
    user: str = ""
    role: str = ""
    department: str | None = None
    project: str | None = None
    created_at: datetime


class UserDetail(User):
    created_at: datetime
    roles: list[Member] = []
    """Roles that you may see."""
    live_workloads: int = 0
    """Live workloads of the user in your projects, which keep running after a deactivation."""


class Deactivation(UserDetail):
    revoked_tokens: int = 0
    ended_sessions: int = 0


class Role(Model):
    role: str = ""
    department: str | None = None
    project: str | None = None


class Identity(Model):
    username: str = ""
    platform_admin: bool = False
    roles: list[Role] = []
    scopes: list[str] = []


class Token(Model):
    id: int
    user: str = ""
    name: str
    prefix: str = ""
    scopes: list[str] = []
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    interactive: bool = False
    """Created by sign-in, and therefore revoked when the password changes."""


class NewToken(Token):
    token: str | None = None
    """The secret, returned only once; None if the request is repeated."""


class PasswordChange(Model):
    revoked_tokens: int = 0
    token: str | None = None
    """Replacement for this request's token if sign-in created it; otherwise None."""
    expires_at: datetime | None = None
    """Expiry of the replacement token."""
