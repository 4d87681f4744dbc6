"""The `berth edit` command, which changes a workload's document or an array's task limit."""

import sys
from collections.abc import Iterable, Sequence
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.documents.files import apply_settings, documents_from_files
from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import WorkloadArgument, open_client
from berth.cli.printing.arrays import find_target
from berth.cli.printing.dry_runs import print_dry_run
from berth.cli.printing.output import Output, OutputOption, show_data
from berth.cli.printing.text import print_message, printable
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.arrays import ArrayDetail
    from berth.client.models.workloads import Edit, WorkloadDetail

ARRAY_PART = "array.max_running"


def edit(
    *,
    workload: WorkloadArgument,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Value to set in the document; repeatable."),
    ] = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Key to remove from the document; repeatable."),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="File with the new document (`-` for stdin)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes and their effects without applying them.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Edit a pending or suspended workload. Without options, open its document in $EDITOR.

    \b
    berth edit vision/train --set priority=high
    berth edit train --set roles[0].gpu=2 --set labels.team=nlp --unset deadline
    berth edit train -f train.yaml --dry-run
    berth edit train
    berth edit sweep --set array.max_running=20     how many tasks of an array may run

    An edited workload is still ordered by its submission time unless it requests more than before.
    """
    if file is not None and (setting or unset):
        raise InvalidInput("--file cannot be combined with --set or --unset. Use one or the other.")
    with open_client() as client:
        selected = find_target(client, workload)
        if selected.array is not None:
            is_whole = selected.indexes is None and file is None
            limit = _find_task_limit(selected.array, setting or (), unset or (), can_edit=is_whole)
            _edit_array(client, selected.array, limit, dry_run=dry_run, output=output)
            return
        target = selected.workload
        assert target is not None
        before = target.spec
        text = ""
        if setting or unset:
            ((_, after),) = apply_settings([("", _remove_keys(before, unset or ()))], setting or ())
        elif file is not None:
            after = _read_file(file)
        else:
            text, after = _open_editor(target)
        try:
            patch = _find_patch(before, after)
            edited = client.workloads.edit(target.id, patch, version=target.version, dry_run=dry_run)
        except Exception:
            if text:
                _save_rejected_document(text, target)
            raise
    if output.is_data:
        show_data(edited.to_dict(), output)
    else:
        print("\n".join(printable(line) for line in _describe(edited, dry_run=dry_run)))
        if edited.prediction is not None and edited.changes:
            print("Once resumed:" if edited.phase == "suspended" else "In the next scheduling cycle:")
            print_dry_run(edited.prediction)


def _find_task_limit(
    array: "ArrayDetail", settings: Sequence[str], unset: Sequence[str], *, can_edit: bool
) -> int | None:
    """Return the new task limit, or None for no limit. Raises InvalidInput for any other edit."""
    before = array.spec
    edited = can_edit and bool(settings or unset)
    if edited:
        ((_, after),) = apply_settings([("", _remove_keys(before, unset))], settings)
        limit = after["array"].pop("max_running", None) if isinstance(after.get("array"), dict) else None
        section = {key: value for key, value in before["array"].items() if key != "max_running"}
        edited = after == {**before, "array": section}
    if not edited:
        raise InvalidInput(
            f"{array.handle} is an array, so only {ARRAY_PART} can be edited. Use, for example, "
            f"--set {ARRAY_PART}=20, or --unset {ARRAY_PART} to remove the limit."
        )
    return limit


def _edit_array(
    client: "Client", array: "ArrayDetail", limit: int | None, *, dry_run: bool, output: Output
) -> None:
    if not dry_run:
        array = client.arrays.set_max_running(array.id, limit)
    if output.is_data:
        show_data(array.to_dict(), output)
        return
    number = "any number of tasks" if limit is None else f"at most {format_count(limit, 'task')}"
    print(f"{printable(array.handle)} {'would run' if dry_run else 'runs'} {number} at a time")


def _remove_keys(document: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    from berth.documents.values import parse_location, remove_value, value_at

    for key in keys:
        at = parse_location(key)
        if not at or value_at(document, at) is None:
            raise InvalidInput(
                f"--unset: the document does not contain {key}. Use one of: {', '.join(document)}"
            )
        document = remove_value(document, at)
    return document


def _read_file(file: str) -> dict[str, Any]:
    documents = documents_from_files([file])
    if len(documents) != 1:
        raise InvalidInput(f"{file} contains {len(documents)} documents. Use a file with one document.")
    return documents[0][1]


def _open_editor(workload: "WorkloadDetail") -> tuple[str, dict[str, Any]]:
    """Let the user edit the document in $EDITOR. Return the text and the parsed document.

    Raises InvalidInput if the text was not saved or is invalid.
    """
    import click

    from berth.core.errors import BerthError
    from berth.documents import read_document
    from berth.documents.ordered import dump_workload

    if not sys.stdin.isatty():
        raise InvalidInput(
            "edit: specify --set, --unset or --file, or run the command in a terminal to open an editor"
        )
    text = click.edit(dump_workload(workload.spec), extension=".yaml")
    if text is None:
        raise InvalidInput("nothing was changed. Save the document in the editor to apply your changes.")
    try:
        return text, read_document(text)
    except BerthError as error:
        _save_rejected_document(text, workload)
        raise InvalidInput(error.detail) from None


def _save_rejected_document(text: str, workload: "WorkloadDetail") -> None:
    with NamedTemporaryFile("w", prefix=f"{workload.name}-", suffix=".yaml", delete=False) as copy:
        copy.write(text)
    print_message(
        f"Your document is in {copy.name}. After correcting it, run "
        f"`berth edit {workload.handle} -f {copy.name}`"
    )


def _find_patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    from berth.core.merge_patch import apply_patch, find_patch
    from berth.core.spec import parse_workload
    from berth.core.spec.parsing.manifest import is_manifest

    place = {"project": before["project"]} if "project" in before else {}
    document = after if is_manifest(after) else apply_patch(before, find_patch(before, {**place, **after}))
    return find_patch(before, {**place, **parse_workload(document).document()})


def _describe(edited: "Edit", *, dry_run: bool) -> list[str]:
    from berth.core.merge_patch import format_difference

    if not edited.changes:
        return [f"{edited.handle} already has these values."]
    lines = [f"{edited.handle} {'would be edited' if dry_run else 'edited'}:"]
    lines += [f"  {format_difference(item.path, item.before, item.after)}" for item in edited.changes]
    if edited.increases:
        lines.append(f"It requests {' and '.join(edited.increases)}, so it is queued as if submitted now.")
    else:
        lines.append("It is still ordered by its original submission time.")
    return [*lines, *(f"Warning: {warning}" for warning in edited.warnings)]
