"""Typed answers about people and audit entries."""

from datetime import datetime
from typing import Any

from berth.client.answers import Answer


class Member(Answer):
    id: int
    user: str
    role: str
    department: str | None = None
    project: str | None = None
    created_at: datetime | None = None

    @property
    def scope(self) -> str:
        """Where the role counts."""
        return self.project or self.department or "everywhere"


class User(Answer):
    username: str
    email: str = ""
    active: bool = True


class Change(Answer):
    """One row of the audit."""

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


class Health(Answer):
    """How the scheduler does; `invariants` are checked as one asks."""

    leader: dict[str, Any] | None = None
    last_cycle: dict[str, Any] | None = None
    invariants: list[dict[str, Any]] = []
    pending: int = 0
    wake: dict[str, Any] | None = None

    @property
    def is_well(self) -> bool:
        leads = self.leader is not None and bool(self.leader.get("alive"))
        return leads and all(law.get("ok") for law in self.invariants)
