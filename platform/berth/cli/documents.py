"""Read workload documents, templates and quota drafts."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from berth.cli.arguments import connected
from berth.cli.exits import BadInput, invalid

if TYPE_CHECKING:
    from berth.client import Client

Named = list[tuple[str, dict[str, Any]]]  # source, document


def from_files(files: Iterable[str]) -> Named:
    from berth.client.documents import read_documents

    return [document for file in files for document in read_documents(file)]


def from_template(reference: str, project: str | None, name: str | None) -> Named:
    """Return the document of a template, renamed to `name` if given."""
    with connected() as client:
        template = client.templates.get(*place_of(client, reference, project))
    renamed = {"name": name} if name else {}
    return [(template.handle, {**template.document, **renamed})]


def place_of(client: "Client", reference: str, project: str | None) -> tuple[str, str]:
    """Return the project and name of PROJECT/NAME, or of NAME in `project` or the default project."""
    inside, _, name = reference.rpartition("/")
    place = inside or project or client.settings.project
    if not place:
        raise BadInput(f"--project: missing; allowed: a project, or PROJECT/{name}")
    return place, name


def with_settings(documents: Named, settings: Iterable[str]) -> Named:
    """Return the documents with `settings` applied, such as `roles[0].gpu=2`. Values are YAML."""
    from berth.core.errors import Invalid
    from berth.documents.values import assigned, setting

    try:
        wanted = [setting(text) for text in settings]
        for at, value in wanted:
            documents = [(where, assigned(document, at, value)) for where, document in documents]
    except Invalid as error:
        raise BadInput("\n".join(f"--{problem}" for problem in error.problems)) from None
    except KeyError as missing:
        raise BadInput(f"--set: the document has no such part: {missing}") from None
    return documents


SET_FORM = "DEPARTMENT/PROJECT:POOL.KEY=VALUE, or DEPARTMENT:POOL.KEY=VALUE"
FILE_FORM = "changes: [{project: NAME, pool: POOL, set: {gpu: 8}}]"
REMOVE_FORM = "DEPARTMENT/PROJECT:POOL, or DEPARTMENT:POOL"
WORDS: Mapping[str, Any] = {"unlimited": None, "none": None, "owner": None, "true": True, "yes": True,
                            "false": False, "no": False}  # fmt: skip
Place = tuple[str, str, str]  # "project" or "department", its name, the pool


def draft_of(
    client: "Client", file: str | None, sets: Iterable[str], removes: Iterable[str], note: str | None
) -> dict[str, Any]:
    """Return the quota draft for preview or apply. The server validates its values."""
    draft: dict[str, Any] = _from_file(file) if file is not None else {"changes": []}
    words = list(sets), list(removes)
    if any(words):
        if file is not None:
            raise BadInput("-f FILE excludes --set and --remove")
        draft["changes"] = _from_words(client, *words)
    if note is not None:
        draft["comment"] = note
    elif file is not None and "changes" not in draft:
        keys = ", ".join(map(str, draft))
        raise BadInput(f"{file}: `changes` is missing; received {keys}; allowed: {FILE_FORM}")
    if not draft.get("changes"):
        raise BadInput(f"nothing to change; allowed: -f FILE, --set {SET_FORM}, --remove {REMOVE_FORM}")
    return draft


def _from_file(file: str) -> dict[str, Any]:
    from berth.client.documents import read_documents

    documents = [document for _, document in read_documents(file)]
    if len(documents) != 1:
        raise BadInput(f"{file}: contains {len(documents)} documents; allowed: one, with `changes`")
    return dict(documents[0])


def _from_words(client: "Client", sets: list[str], removes: list[str]) -> list[dict[str, Any]]:
    departments = {project.name: project.department for project in client.projects.list()}
    changes: dict[Place, dict[str, Any]] = {}
    for text in sets:
        left, sign, value = text.partition("=")
        place, key = _place(text, left, departments, keyed=True)
        if not sign or not key:
            raise invalid("--set", "is not a quota change", text, SET_FORM)
        _set_nested(changes.setdefault(place, {}), key.split("."), _value(value), text)
    named: list[tuple[Place, dict[str, Any]]] = [
        (place, {"set": values}) for place, values in changes.items()
    ]
    for text in removes:
        place, _ = _place(text, text, departments, keyed=False)
        if place in changes:
            raise BadInput(f"--remove: {text} is also set; allowed: either --set or --remove of one quota")
        named.append((place, {"remove": True}))
    return [{kind: name, "pool": pool, **what} for (kind, name, pool), what in named]


def _place(text: str, left: str, departments: Mapping[str, str], *, keyed: bool) -> tuple[Place, str]:
    owner, colon, rest = left.partition(":")
    pool, _, key = rest.partition(".") if keyed else (rest, "", "")
    if not (owner and colon and pool):
        option, form = ("--set", SET_FORM) if keyed else ("--remove", REMOVE_FORM)
        raise invalid(option, "does not name a quota", text, form)
    department, slash, project = owner.partition("/")
    if not slash:
        return ("department", department, pool), key
    if departments.get(project, department) != department:
        where = departments[project]
        option = "--set" if keyed else "--remove"
        raise invalid(option, f"{project} belongs to {where}", text, f"{where}/{project}")
    return ("project", project, pool), key


def _set_nested(values: dict[str, Any], path: list[str], value: Any, text: str) -> None:
    *groups, last = path
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise BadInput(f"--set: {text!r} sets a part of a key that is also set as a whole")
    if last in values:
        raise BadInput(f"--set: {'.'.join(path)} is set twice, the second time in {text!r}")
    values[last] = value


def _value(text: str) -> Any:
    """Return a number, `unlimited`, `yes`, `no`, or the text, which the server validates."""
    if text in WORDS:
        return WORDS[text]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number
