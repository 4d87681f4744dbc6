"""Upload workload code from the directory that `--code` or a document's `code` key names."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berth.cli.exits import InvalidInput

if TYPE_CHECKING:
    from berth.client import Client

KEY = "code"


def pop_code_directories(
    documents: Sequence[dict[str, Any]], directory: str | None, *, no_code: bool
) -> list[str | None]:
    """Return the directory to upload for each document, or None if there is none.

    `code` keys that name a directory are removed from the documents. `--code` takes precedence over the keys.
    """
    from berth.core.spec.parsing.manifest import is_manifest

    if directory is not None and no_code:
        raise InvalidInput("--code and --no-code cannot be combined. Use only one of them.")
    if directory is not None and any(is_manifest(document) for document in documents):
        raise InvalidInput(
            "--code applies only to workloads. Submit manifests of other kinds without --code."
        )
    directories: list[str | None] = []
    for document in documents:
        own = document.get(KEY)
        if isinstance(own, str) or directory is not None or no_code:
            document.pop(KEY, None)
        listed = own if isinstance(own, str) else None
        directories.append(None if no_code else directory or listed)
    return directories


def add_code_directories(
    documents: Sequence[dict[str, Any]], directories: Sequence[str | None]
) -> list[dict[str, Any]]:
    """Return printable copies of the documents, each with its directory under the `code` key."""
    return [
        document if directory is None else {**document, KEY: directory}
        for document, directory in zip(documents, directories, strict=True)
    ]


def resolve_code_directory(file: str, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with its `code` directory resolved relative to `file`."""
    directory = document.get(KEY)
    if not isinstance(directory, str) or file == "-" or directory.startswith("~"):
        return document
    return {**document, KEY: str(Path(file).parent / directory)}


def upload_code(
    client: "Client", documents: Sequence[dict[str, Any]], directories: Sequence[str | None]
) -> None:
    """Upload each directory once per project, and set `code` in the documents."""
    sections: dict[tuple[str, str], dict[str, Any]] = {}
    for document, directory in zip(documents, directories, strict=True):
        if directory is None:
            continue
        place = directory, str(document.get("project") or "")
        if place not in sections:
            with _upload_progress() as report:
                sections[place] = client.code.upload(directory, project=place[1], progress=report)
        document[KEY] = sections[place]


@contextmanager
def _upload_progress() -> Iterator[Callable[[int, int], None]]:
    if not sys.stderr.isatty():
        yield lambda sent, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = TextColumn("sending code"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda sent, total: bar.update(task, completed=sent, total=total)
