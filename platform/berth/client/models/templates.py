# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for templates."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model
from berth.client.models.mixins import TemplateMixin


class Template(TemplateMixin, Model):
    name: str
    project: str = ""
    description: str = ""
    kind: str = ""
    created_by: str | None = None
    changed_by: str = ""
    changed_at: datetime
    version: int = 0


class TemplateDetail(Template):
    text: str = ""
    document: dict[str, Any] = {}
