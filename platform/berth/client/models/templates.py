"""Workload templates."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model


class Template(Model):
    """`text` and `document` are there when one was asked for by name."""

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
