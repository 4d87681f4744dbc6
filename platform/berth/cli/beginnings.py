"""Read the documents a command starts from: files or project templates."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from berth.cli.exits import BadInput
from berth.cli.link import connected

if TYPE_CHECKING:
    from berth.client import Client

Named = list[tuple[str, dict[str, Any]]]  # where it stands, document


def from_files(files: Iterable[str]) -> Named:
    from berth.client.documents import read_documents

    return [found for file in files for found in read_documents(file)]


def from_template(reference: str, project: str | None, name: str | None) -> Named:
    """The document that it begins, in its project; `name` is the new workload's."""
    with connected() as client:
        found = client.templates.get(*place_of(client, reference, project))
    renamed = {"name": name} if name else {}
    return [(found.handle, {**found.document, **renamed})]


def place_of(client: "Client", reference: str, project: str | None) -> tuple[str, str]:
    """PROJECT/NAME, or NAME in the project that was said, or in the one that is the usual one here."""
    inside, _, name = reference.rpartition("/")
    place = inside or project or client.settings.project
    if not place:
        raise BadInput(f"--project: nothing given; allowed: a project, or PROJECT/{name}")
    return place, name


def with_settings(documents: Named, settings: Iterable[str]) -> Named:
    """Each with the parts that were set; `roles[0].gpu=2` is read as YAML."""
    from berth.core.errors import Invalid
    from berth.documents.values import assigned, setting

    try:
        wanted = [setting(text) for text in settings]
        for at, value in wanted:
            documents = [(where, assigned(document, at, value)) for where, document in documents]
    except Invalid as error:
        raise BadInput("\n".join(f"--{problem}" for problem in error.problems)) from None
    except KeyError as missing:
        raise BadInput(f"--set: there is no such part: {missing}; allowed: parts of the document") from None
    return documents
