"""Read workload documents, templates and quota drafts."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from berth.cli.documents.code import resolve_code_directory
from berth.cli.exits import InvalidInput, invalid_value_error
from berth.cli.options.arguments import open_client

if TYPE_CHECKING:
    from berth.client import Client

SourcedDocuments = list[tuple[str, dict[str, Any]]]  # (source, document) pairs


def documents_from_files(files: Iterable[str]) -> SourcedDocuments:
    from berth.client.documents import read_documents

    return [
        (source, resolve_code_directory(file, document))
        for file in files
        for source, document in read_documents(file)
    ]


def document_from_template(reference: str, project: str | None, name: str | None) -> SourcedDocuments:
    """Return a template's document, renamed to `name` if `name` is set."""
    with open_client() as client:
        template = client.templates.get(*resolve_project_and_name(client, reference, project))
    renamed = {"name": name} if name else {}
    return [(template.handle, {**template.document, **renamed})]


def resolve_project_and_name(client: "Client", reference: str, project: str | None) -> tuple[str, str]:
    """Parse NAME or PROJECT/NAME, and return the project and the name.

    If the reference names no project, `project` or else the default project is used. Raises InvalidInput if
    there is no default project either.
    """
    inside, _, name = reference.rpartition("/")
    place = inside or project or client.settings.project
    if not place:
        raise InvalidInput(f"--project is missing. Specify a project, or PROJECT/{name}.")
    return place, name


def apply_settings(documents: SourcedDocuments, settings: Iterable[str]) -> SourcedDocuments:
    """Return the documents with `settings` applied, such as `roles[0].gpu=2`. Values are YAML."""
    from berth.core.errors import Invalid
    from berth.documents.values import parse_setting, set_value

    try:
        assignments = [parse_setting(text) for text in settings]
        for at, value in assignments:
            documents = [(source, set_value(document, at, value)) for source, document in documents]
    except Invalid as error:
        raise InvalidInput("\n".join(f"--{problem}" for problem in error.problems)) from None
    except KeyError as missing:
        raise InvalidInput(f"--set: the document does not contain {missing}. Check the path.") from None
    return documents


SET_FORM = "DEPARTMENT/PROJECT:POOL.KEY=VALUE, or DEPARTMENT:POOL.KEY=VALUE"
FILE_FORM = "changes: [{project: NAME, pool: POOL, set: {gpu: 8}}]"
REMOVE_FORM = "DEPARTMENT/PROJECT:POOL, or DEPARTMENT:POOL"
KEYWORD_VALUES: Mapping[str, Any] = {
    "unlimited": None,
    "none": None,
    "owner": None,
    "true": True,
    "yes": True,
    "false": False,
    "no": False,
}
QuotaKey = tuple[str, str, str]  # kind ("project" or "department"), owner name and pool name


def build_quota_draft(
    client: "Client", file: str | None, sets: Iterable[str], removals: Iterable[str], comment: str | None
) -> dict[str, Any]:
    """Return a quota draft for `berth quota preview` or `apply`. The server validates its values."""
    draft: dict[str, Any] = {"changes": []}
    if file is not None:
        draft = read_single_document(file, "one document, which contains `changes`")
    words = list(sets), list(removals)
    if any(words):
        if file is not None:
            raise InvalidInput("-f FILE cannot be combined with --set or --remove. Use one or the other.")
        draft["changes"] = _parse_changes(client, *words)
    if comment is not None:
        draft["comment"] = comment
    elif file is not None and "changes" not in draft:
        keys = ", ".join(map(str, draft))
        raise InvalidInput(f"{file} lacks the key `changes` (keys found: {keys}). Write {FILE_FORM}.")
    if not draft.get("changes"):
        raise InvalidInput(f"nothing to change. Specify -f FILE, --set {SET_FORM} or --remove {REMOVE_FORM}.")
    return draft


def read_single_document(file: str, expected: str) -> dict[str, Any]:
    """Read a file that contains exactly one document. `expected` describes the document in error messages."""
    from berth.client.documents import read_documents

    documents = [document for _, document in read_documents(file)]
    if len(documents) != 1:
        raise InvalidInput(f"{file} contains {len(documents)} documents. Use a file with {expected}.")
    return dict(documents[0])


def _parse_changes(client: "Client", sets: list[str], removals: list[str]) -> list[dict[str, Any]]:
    departments = {project.name: project.department for project in client.projects.list()}
    changes: dict[QuotaKey, dict[str, Any]] = {}
    for text in sets:
        target, sign, value = text.partition("=")
        place, key = _parse_quota_key(text, target, departments, keyed=True)
        if not sign or not key:
            raise invalid_value_error("--set", "is not a valid quota change", text, SET_FORM)
        _set_nested(changes.setdefault(place, {}), key.split("."), _parse_value(value), text)
    entries: list[tuple[QuotaKey, dict[str, Any]]] = [
        (place, {"set": values}) for place, values in changes.items()
    ]
    for text in removals:
        place, _ = _parse_quota_key(text, text, departments, keyed=False)
        if place in changes:
            raise InvalidInput(
                f"--remove {text}: --set also changes this quota. Use only one of the two options."
            )
        entries.append((place, {"remove": True}))
    return [{kind: name, "pool": pool, **what} for (kind, name, pool), what in entries]


def _parse_quota_key(
    text: str, target: str, departments: Mapping[str, str], *, keyed: bool
) -> tuple[QuotaKey, str]:
    owner, colon, rest = target.partition(":")
    pool, _, key = rest.partition(".") if keyed else (rest, "", "")
    if not (owner and colon and pool):
        option, form = ("--set", SET_FORM) if keyed else ("--remove", REMOVE_FORM)
        raise invalid_value_error(option, "is not a valid quota", text, form)
    department, slash, project = owner.partition("/")
    if not slash:
        return ("department", department, pool), key
    if departments.get(project, department) != department:
        actual_department = departments[project]
        option = "--set" if keyed else "--remove"
        raise invalid_value_error(
            option, f"{project} belongs to {actual_department}", text, f"{actual_department}/{project}"
        )
    return ("project", project, pool), key


def _set_nested(values: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    *groups, last = path
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise InvalidInput(
                f"--set: {text!r} conflicts with another --set option that sets the entire key. Remove one "
                "of the options."
            )
    if last in values:
        raise InvalidInput(f"--set: {text!r} sets {'.'.join(path)} a second time. Remove one of the options.")
    values[last] = value


def _parse_value(text: str) -> Any:
    """Parse a keyword or number. Return any other text unchanged."""
    if text in KEYWORD_VALUES:
        return KEYWORD_VALUES[text]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
