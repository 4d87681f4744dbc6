"""Workload templates."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model


class Template(Model):
    """Workload template; lists omit `text` and `document`."""

    name: str
    project: str
    description: str = ""
    kind: str = ""
    created_by: str | None = None
    changed_by: str = ""
    changed_at: datetime | None = None
    version: int = 0
    text: str = ""
    document: dict[str, Any] = {}

    @property
    def handle(self) -> str:
        return f"{self.project}/{self.name}"
