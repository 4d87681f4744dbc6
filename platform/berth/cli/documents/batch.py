"""Submit several documents in as few requests as possible, and print each outcome."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from berth.cli.documents.files import SourcedDocuments
from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.printing.output import Output, show_data
from berth.cli.printing.text import print_message

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.workloads import BatchItem

DOCUMENTS_MAX = 1000
BYTES_MAX = 8 * 2**20  # half of the server's maximum body size


def submit_documents(client: "Client", documents: SourcedDocuments, output: Output, *, atomic: bool) -> None:
    """Submit the documents. Exit with code 2 if the server rejects a document."""
    parts = list(_split_into_requests(documents))
    if atomic and len(parts) > 1:
        raise InvalidInput(
            f"--atomic accepts at most {DOCUMENTS_MAX} documents and {BYTES_MAX >> 20} MiB in total. Submit "
            "fewer documents, or omit --atomic."
        )
    results: list[dict[str, Any]] = []
    rejected = False
    for part in parts:
        batch = client.workloads.submit_many((document for _, document in part), atomic=atomic)
        for (source, _), item in zip(part, batch.items, strict=True):
            rejected = rejected or item.error is not None
            if item.workload is not None:
                results.append({**item.workload.to_dict(), "warnings": item.warnings})
            _print_item(source, item, output)
    if output.is_data:
        show_data(results, output)
    if rejected:
        raise typer.Exit(ExitCode.USAGE)


def _split_into_requests(documents: SourcedDocuments) -> Iterator[SourcedDocuments]:
    from pydantic_core import to_json

    part: SourcedDocuments = []
    size = 0
    for source, document in documents:
        length = len(to_json(document))
        if part and (len(part) == DOCUMENTS_MAX or size + length > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append((source, document))
        size += length
    yield part


def _print_item(source: str, item: "BatchItem", output: Output) -> None:
    if item.error is not None:
        print_message(f"{source}: {item.error.detail}")
    if item.workload is None or output.is_data:
        return
    wide = f" {item.workload.id}" if output is Output.WIDE else ""
    print(f"{item.workload.handle} submitted{wide}")
    for warning in item.warnings:
        print_message(f"warning: {warning}")
