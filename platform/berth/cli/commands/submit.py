"""`berth submit`: submit workloads from options or files."""

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from berth.cli.arguments import connected, takes
from berth.cli.documents import from_files, from_template, with_settings
from berth.cli.exits import BadInput, ExitCode, code_of_outcome
from berth.cli.explain import blocker_numbers, expected_line
from berth.cli.flags import SubmitFlags, flag_of
from berth.cli.output import Output, show_data
from berth.cli.text import safe
from berth.core.problems import Problem
from berth.core.words import counted

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.workloads import DryRun, Workload


@takes(SubmitFlags)
def submit(flags: SubmitFlags) -> None:
    """Submit workloads from options, files or a template.

    \b
    berth submit -n train -p vision --gpu 1 --replicas 4 -- python train.py --epochs 3
    berth submit -n sweep --gpu 0.5 --max-runtime 2h --shell 'python a.py | tee log'
    berth submit -f train.yaml -f more.json
    generate | berth submit -f -
    berth submit -f train.yaml --dry-run      predict the decision, submit nothing
    berth submit --template vision/nightly -n run-7 --set roles[0].gpu=2 --set env.EPOCHS=5
    berth submit -n train --gpu 1 --print -- python train.py > train.yaml

    All documents are validated before the first is sent. A request whose connection is lost is repeated
    and never submits twice.
    """
    named = _documents(flags)
    if len(named) > 1 and (flags.watch or flags.follow):
        raise BadInput(f"--watch and --follow take one document, not {len(named)}")
    _check(named, from_flags=not (flags.file or flags.template))
    documents = [document for _, document in named]
    if flags.show:
        show_data(documents[0] if len(documents) == 1 else documents, _document_format(flags.output))
        return
    with connected() as client:
        for document in documents:
            _set_project(document, flags.project or client.settings.project)
        if flags.dry_run:
            _show_dry_runs(flags.output, [client.workloads.dry_run(document) for document in documents])
            return
        submitted = _submit(client, documents)
        _report(flags.output, submitted)
        if flags.watch or flags.follow:
            _follow(client, submitted[0], follow=flags.follow)


def _documents(flags: SubmitFlags) -> list[tuple[str, dict[str, Any]]]:
    """Return each document with its source."""
    if flags.template:
        if flags.file:
            raise BadInput("--template and --file exclude each other")
        _refuse_mixture("--template", flags.document(), beside={"roles", "project", "name"})
        named = from_template(flags.template, flags.project, flags.name)
        return with_settings(named, flags.set or ())
    if flags.file:
        _refuse_mixture("--file", flags.document(), beside={"roles", "project"})
        return with_settings(from_files(flags.file), flags.set or ())
    if flags.set:
        raise BadInput("--set needs --template or --file")
    if not flags.name:
        raise BadInput("--name is missing; or use --file or --template")
    return [("", flags.document())]


def _refuse_mixture(option: str, document: dict[str, Any], *, beside: set[str]) -> None:
    """Raise BadInput if `document` has values for keys that are not in `beside`."""
    others = [*(set(document) - beside), *(f"roles[0].{name}" for name in document["roles"][0])]
    if others:
        flags = ", ".join(sorted(flag_of(name) for name in others))
        raise BadInput(f"{option} and {flags} exclude each other")


def _check(named: list[tuple[str, dict[str, Any]]], *, from_flags: bool) -> None:
    """Raise one SpecError with the problems of all documents."""
    from dataclasses import replace

    from berth.core.spec import SpecError, parse_workload

    problems = []
    for where, document in named:
        try:
            parse_workload(document)
        except SpecError as error:
            problems += [
                replace(problem, path=flag_of(problem.path))
                if from_flags
                else replace(problem, path=f"{where}: {problem.path or 'document'}")
                for problem in error.problems
            ]
    if problems:
        raise SpecError(problems)


def _set_project(document: dict[str, Any], project: str) -> None:
    """Set the project of a document that does not have one."""
    from berth.core.spec.manifest import is_manifest

    if not project:
        return
    if is_manifest(document):
        document.setdefault("metadata", {}).setdefault("namespace", project)
    else:
        document.setdefault("project", project)


def _submit(client: "Client", documents: list[dict[str, Any]]) -> list["Workload"]:
    submitted: list[Workload] = []
    for document in documents:
        try:
            submitted.append(client.workloads.submit(document))
        except Exception:
            if len(documents) > 1:
                done = ", ".join(workload.handle for workload in submitted) or "none"
                print(f"berth: submitted before the error: {done}", file=sys.stderr)
            raise
    return submitted


def _report(output: Output, submitted: list["Workload"]) -> None:
    if output.is_data:
        answers = [workload.plain() for workload in submitted]
        show_data(answers[0] if len(answers) == 1 else answers, output)
        return
    for workload in submitted:
        wide = f" {workload.id}" if output is Output.WIDE else ""
        print(f"{workload.handle} submitted{wide}")
        for warning in workload.warnings:
            print(f"berth: warning: {safe(warning)}", file=sys.stderr)


def _follow(client: "Client", workload: "Workload", *, follow: bool) -> None:
    from berth.cli.following import follow_output, follow_phases

    try:
        ended = follow_output(client, workload) if follow else follow_phases(client, workload)
    except KeyboardInterrupt:
        print(
            f"berth: {workload.handle} continues; to end it: berth cancel {workload.handle}", file=sys.stderr
        )
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise typer.Exit(code_of_outcome(ended))


def _show_dry_runs(output: Output, answers: list["DryRun"]) -> None:
    if output.is_data:
        plain = [answer.plain() for answer in answers]
        show_data(plain[0] if len(plain) == 1 else plain, output)
    else:
        for answer in answers:
            _print_dry_run(answer)
    if any(answer.errors for answer in answers):
        raise typer.Exit(ExitCode.USAGE)


def _print_dry_run(answer: "DryRun") -> None:
    for error in answer.errors:
        problem = Problem(error.path, error.message, error.received, error.allowed)
        print(f"berth: {safe(problem)}", file=sys.stderr)
    if answer.errors:
        return
    print(f"{safe((answer.workload or {}).get('name', ''))}: {safe(answer.outcome.replace('_', ' '))}")
    for decision in answer.decisions:
        message = f": {decision['message']}" if decision.get("message") else ""
        print(safe(f"  {decision.get('kind', '')}{_on_nodes(decision)}{message}"))
    for eviction in answer.evictions:
        print(safe(f"  {eviction.get('kind', 'evict')}: {eviction.get('summary', '')}"))
        for line in eviction.get("lines") or ():
            print(f"    {safe(line)}")
    for blocker in answer.blockers:
        print(f"  {safe(blocker.reason)}: {safe(blocker.message)}")
        if blocker.numbers:
            print(f"    {blocker_numbers(blocker.numbers)}")
    for warning in answer.warnings:
        print(f"  warning: {safe(warning)}")
    if line := expected_line(answer.expected_start, answer.expected_start_reason):
        print(f"  {safe(line)}")


def _on_nodes(decision: dict[str, Any]) -> str:
    """Return the number of pods per node, such as " 2 pods on train-1"."""
    nodes = Counter(str(pod.get("node")) for pod in decision.get("pods") or () if isinstance(pod, dict))
    counts = ", ".join(f"{counted(count, 'pod')} on {node}" for node, count in sorted(nodes.items()))
    return f" {counts}" if counts else ""


def _document_format(output: Output) -> Output:
    return Output.JSON if output is Output.JSON else Output.YAML
