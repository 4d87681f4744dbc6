"""Workload templates of projects."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from berth.client.answers import Answer
from berth.client.transport import Transport, content_of


class Template(Answer):
    """`text` and `document` are there when one was asked for by name."""

    name: str
    project: str
    about: str = ""
    kind: str = ""
    made_by: str | None = None
    changed_by: str = ""
    changed_at: datetime | None = None
    version: int = 0
    text: str = ""
    document: dict[str, Any] = {}

    @property
    def handle(self) -> str:
        return f"{self.project}/{self.name}"


class Templates:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, project: str | None = None) -> Iterator[Template]:
        """Of one project, or of all that you see."""
        for item in self._transport.pages("templates", {"project": project}):
            yield Template.model_validate(item)

    def get(self, project: str, name: str) -> Template:
        """With the document that one would submit."""
        return Template.model_validate(self._transport.get(path_of(project, name)))

    def create(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, about: str = ""
    ) -> Template:
        """A document, or its YAML. Refused with Conflict when there is one already."""
        return self._put(path_of(project, name), body_of(document, about), {"If-None-Match": "*"})

    def edit(
        self, project: str, name: str, document: Mapping[str, Any] | str, *, about: str | None = None
    ) -> Template:
        """Refused with Conflict when somebody was faster."""
        path = path_of(project, name)
        found = self._transport.ask("GET", path)
        kept = content_of(found)["about"] if about is None else about
        return self._put(path, body_of(document, kept), {"If-Match": found.headers.get("ETag", "*")})

    def delete(self, project: str, name: str) -> None:
        """Refused with Conflict when somebody changed it meanwhile."""
        path = path_of(project, name)
        tag = self._transport.ask("GET", path).headers.get("ETag", "*")
        self._transport.ask("DELETE", path, headers={"If-Match": tag})

    def _put(self, path: str, body: object, condition: Mapping[str, str]) -> Template:
        return Template.model_validate(
            content_of(self._transport.ask("PUT", path, body=body, headers=condition))
        )


def body_of(document: Mapping[str, Any] | str, about: str) -> dict[str, Any]:
    kept = {"text": document} if isinstance(document, str) else {"document": dict(document)}
    return {**kept, "about": about}


def path_of(project: str, name: str) -> str:
    return f"projects/{project}/templates/{name}"
