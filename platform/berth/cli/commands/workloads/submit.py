"""The `berth submit` command, which submits workloads from options or files."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from berth.cli.documents.batch import submit_documents
from berth.cli.documents.code import add_code_directories, pop_code_directories, upload_code
from berth.cli.documents.files import (
    SourcedDocuments,
    apply_settings,
    document_from_template,
    documents_from_files,
)
from berth.cli.exits import ExitCode, InvalidInput, exit_code_for
from berth.cli.options.arguments import open_client, with_options_from
from berth.cli.options.submit import SubmitFlags, flag_for_path
from berth.cli.printing.arrays import follow_array, merge_array_section, parse_array_option
from berth.cli.printing.dry_runs import print_dry_run
from berth.cli.printing.output import Output, show_data
from berth.cli.printing.text import print_message, printable
from berth.core.wording.words import format_count

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.arrays import ArrayDryRun, ArraySubmission
    from berth.client.models.scheduling import SmallestChange
    from berth.client.models.workloads import DryRun, Submission


BLOCKED_OUTCOMES = ("would_stay_pending", "unschedulable")
FILE_SUFFIXES = (".yaml", ".yml", ".json")


@with_options_from(SubmitFlags)
def submit(flags: SubmitFlags) -> None:
    """Submit workloads from options, files or a template.

    \b
    berth submit -n train -p vision --gpu 1 --replicas 4 -- python train.py --epochs 3
    berth submit -n sweep --gpu 0.5 --max-runtime 2h --shell 'python a.py | tee log'
    berth submit train.yaml more.json         the same as -f train.yaml -f more.json
    berth submit sweep.yaml --atomic          all documents of the file or none
    generate | berth submit -f -
    berth submit -f train.yaml --dry-run      predict the decision without submitting
    berth submit --template vision/nightly -n run-7 --set roles[0].gpu=2 --set env.EPOCHS=5
    berth submit -n train --gpu 1 --print -- python train.py > train.yaml
    berth submit --array 0-999%50 sweep.yaml  an array of 1,000 tasks, at most 50 at a time
    berth submit -n train --gpu 1 --code . -- python train.py      pods start in a copy of this directory
    berth submit -n train --gpu 1 --git https://git.example.org/train.git --git-ref v2 -- python train.py

    All documents are validated before the first is sent, and several are sent with one request. Requests
    are retried after a lost connection; a retry never submits a workload twice.
    """
    flags = _treat_arguments_as_files(flags)
    documents_by_source = _read_documents(flags)
    if len(documents_by_source) > 1 and (flags.watch or flags.follow):
        raise InvalidInput(
            f"--watch and --follow accept a single document, not {len(documents_by_source)}. Submit the "
            "documents separately, or omit the option."
        )
    documents = [document for _, document in documents_by_source]
    directories = pop_code_directories(documents, flags.code, no_code=flags.no_code)
    _validate(documents_by_source, from_flags=not (flags.file or flags.template))
    has_array = any("array" in document for document in documents)
    _check_array_options(flags, documents, has_array=has_array)
    if flags.show:
        shown = add_code_directories(documents, directories)
        show_data(shown[0] if len(shown) == 1 else shown, _document_format(flags.output))
        return
    with open_client() as client:
        for document in documents:
            _set_project(document, flags.project or client.settings.project)
        if flags.dry_run:
            results = [_dry_run(client, document) for document in documents]
            changes = [
                _find_smallest_change(client, document, result)
                for document, result in zip(documents, results, strict=True)
            ]
            _show_dry_runs(flags.output, results, changes)
            return
        upload_code(client, documents, directories)
        if has_array:
            _submit_with_arrays(client, documents, flags)
            return
        if len(documents) > 1:
            submit_documents(client, documents_by_source, flags.output, atomic=flags.atomic)
            return
        submitted = client.workloads.submit(documents[0])
        _print_submitted_workload(flags.output, submitted)
        if flags.watch or flags.follow:
            _follow(client, submitted, follow=flags.follow)


def _treat_arguments_as_files(flags: SubmitFlags) -> SubmitFlags:
    if flags.name or flags.file or flags.template or not flags.command:
        return flags
    if all(argument.endswith(FILE_SUFFIXES) for argument in flags.command):
        return replace(flags, file=flags.command, command=None)
    return flags


def _read_documents(flags: SubmitFlags) -> list[tuple[str, dict[str, Any]]]:
    """Return each document with its source, such as a file name."""
    if flags.template:
        if flags.file:
            raise InvalidInput("--template and --file cannot be combined. Use only one of them.")
        _check_exclusive("--template", flags.document(), allowed_keys={"roles", "project", "name", "array"})
        documents_by_source = document_from_template(flags.template, flags.project, flags.name)
        return _apply_array_option(apply_settings(documents_by_source, flags.set or ()), flags)
    if flags.file:
        _check_exclusive("--file", flags.document(), allowed_keys={"roles", "project", "array"})
        return _apply_array_option(apply_settings(documents_from_files(flags.file), flags.set or ()), flags)
    if flags.set:
        raise InvalidInput("--set requires --template or --file")
    if not flags.name:
        raise InvalidInput("--name is missing. Specify --name, --file or --template.")
    return [("", flags.document())]


def _apply_array_option(documents: SourcedDocuments, flags: SubmitFlags) -> SourcedDocuments:
    section = parse_array_option(flags.array)
    return [(source, merge_array_section(document, section)) for source, document in documents]


def _check_array_options(flags: SubmitFlags, documents: list[dict[str, Any]], *, has_array: bool) -> None:
    if has_array and flags.follow:
        raise InvalidInput("--follow accepts a single workload. To watch an array's progress, use --watch.")
    if has_array and flags.atomic and len(documents) > 1:
        raise InvalidInput(
            "--atomic cannot be used for an array together with other documents. Submit each array by "
            "itself: an array is always submitted atomically."
        )


def _dry_run(client: "Client", document: dict[str, Any]) -> "DryRun | ArrayDryRun":
    return client.arrays.dry_run(document) if "array" in document else client.workloads.dry_run(document)


def _find_smallest_change(
    client: "Client", document: dict[str, Any], result: "DryRun | ArrayDryRun"
) -> "SmallestChange | None":
    """Return the smallest change that lets the workload start, or None if the server cannot name one."""
    from berth.client.errors import Rejected
    from berth.client.models.workloads import DryRun

    if not isinstance(result, DryRun) or result.outcome not in BLOCKED_OUTCOMES or result.nodes_to_boot:
        return None
    try:
        change = client.workloads.dry_run_change(document)
    except Rejected:
        return None
    return change if change.change else None


def _submit_with_arrays(client: "Client", documents: list[dict[str, Any]], flags: SubmitFlags) -> None:
    """Submit each document in a separate request, because a batch cannot contain arrays."""
    results: list[Submission | ArraySubmission] = []
    for document in documents:
        submit_one = client.arrays.submit if "array" in document else client.workloads.submit
        results.append(submit_one(document))
        if not flags.output.is_data:
            _print_submitted_workload(flags.output, results[-1])
    if flags.output.is_data:
        rows = [result.to_dict() for result in results]
        show_data(rows[0] if len(rows) == 1 else rows, flags.output)
    if flags.watch:
        _follow(client, results[0], follow=False)


def _check_exclusive(option: str, document: dict[str, Any], *, allowed_keys: set[str]) -> None:
    others = [*(set(document) - allowed_keys), *(f"roles[0].{name}" for name in document["roles"][0])]
    if others:
        flags = ", ".join(sorted(flag_for_path(name) for name in others))
        raise InvalidInput(f"{option} cannot be combined with {flags}. Change these values with --set.")


def _validate(documents_by_source: list[tuple[str, dict[str, Any]]], *, from_flags: bool) -> None:
    """Validate all documents. Raise a single SpecError that lists the problems in all of them."""
    from berth.core.spec import SpecError, parse_workload

    problems = []
    for where, document in documents_by_source:
        try:
            parse_workload(document)
        except SpecError as error:
            problems += [
                replace(problem, path=flag_for_path(problem.path))
                if from_flags
                else replace(problem, path=f"{where}: {problem.path or 'document'}")
                for problem in error.problems
            ]
    if problems:
        raise SpecError(problems)


def _set_project(document: dict[str, Any], project: str) -> None:
    from berth.core.spec.parsing.manifest import is_manifest

    if not project:
        return
    if is_manifest(document):
        document.setdefault("metadata", {}).setdefault("namespace", project)
    else:
        document.setdefault("project", project)


def _print_submitted_workload(output: Output, workload: "Submission | ArraySubmission") -> None:
    if output.is_data:
        show_data(workload.to_dict(), output)
        return
    from berth.client.models.arrays import ArraySubmission

    wide = f" {workload.id}" if output is Output.WIDE else ""
    tasks = f"[{workload.tasks}]" if isinstance(workload, ArraySubmission) else ""
    print(f"{workload.handle}{tasks} submitted{wide}")
    for warning in workload.warnings:
        print_message(f"warning: {warning}")


def _follow(client: "Client", workload: "Submission | ArraySubmission", *, follow: bool) -> None:
    from berth.cli.printing.following import follow_output, follow_phases
    from berth.client.models.arrays import ArraySubmission

    try:
        if isinstance(workload, ArraySubmission):
            outcome = follow_array(client, workload).state
        elif follow:
            outcome = follow_output(client, workload).phase
        else:
            outcome = follow_phases(client, workload).phase
    except KeyboardInterrupt:
        print_message(f"{workload.handle} continues to run. To stop it, run `berth cancel {workload.handle}`")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(exit_code_for(outcome))


def _show_dry_runs(
    output: Output, results: "list[DryRun | ArrayDryRun]", changes: "list[SmallestChange | None]"
) -> None:
    from berth.client.models.arrays import ArrayDryRun

    predictions = [result.first_task if isinstance(result, ArrayDryRun) else result for result in results]
    if output.is_data:
        rows = [
            result.to_dict() if change is None else {**result.to_dict(), "smallest_change": change.to_dict()}
            for result, change in zip(results, changes, strict=True)
        ]
        show_data(rows[0] if len(rows) == 1 else rows, output)
    else:
        for result, prediction, change in zip(results, predictions, changes, strict=True):
            if isinstance(result, ArrayDryRun) and result.tasks is not None:
                limit = "" if result.max_running is None else f", at most {result.max_running:,} at a time"
                print(f"array of {format_count(result.tasks, 'task')}{limit}: {_format_outcomes(result)}")
                print("the first task:")
            print_dry_run(prediction)
            if change is not None:
                print(f"  {printable(change.sentence)}")
    if any(prediction.errors for prediction in predictions):
        raise typer.Exit(ExitCode.USAGE)


def _format_outcomes(result: "ArrayDryRun") -> str:
    """Format the number of tasks per outcome, for example "4 would start, 26 would be queued"."""
    counts = {
        "would start": result.would_start, "would start and evict others": result.would_evict,
        "would be queued": result.would_queue,
    }  # fmt: skip
    return ", ".join(f"{count:,} {text}" for text, count in counts.items() if count)


def _document_format(output: Output) -> Output:
    return Output.JSON if output is Output.JSON else Output.YAML
