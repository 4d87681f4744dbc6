"""`berth template`: workload documents stored in projects."""

from typing import Annotated, Any

import typer

from berth.cli.arguments import connected
from berth.cli.documents import place_of
from berth.cli.exits import BadInput
from berth.cli.output import Column, Output, OutputOption, show_data, show_list
from berth.cli.text import safe

app = typer.Typer(no_args_is_help=True, help="Workload templates of projects.")
Reference = Annotated[str, typer.Argument(metavar="TEMPLATE", help="NAME or PROJECT/NAME.")]
OfProject = Annotated[
    str | None,
    typer.Option(
        "--project", "-p", metavar="NAME", help="Project; default: BERTH_PROJECT or the project of the login."
    ),
]
OMITTED = ("name", "project", "submitted")


@app.command("list")
def list_templates(project: OfProject = None, output: OutputOption = Output.TABLE) -> None:
    """List templates of one project, or of all visible projects.

    \b
    berth template list -p vision
    """
    with connected() as client:
        templates = list(client.templates.list(project))
    show_list(templates, _columns(), output, "No templates.")


@app.command("show")
def show(template: Reference, project: OfProject = None, output: OutputOption = Output.TABLE) -> None:
    """Print the document of a template. Use -o json or yaml for all fields.

    \b
    berth template show vision/nightly > nightly.yaml
    """
    with connected() as client:
        stored = client.templates.get(*place_of(client, template, project))
    if output in (Output.JSON, Output.YAML):
        show_data(stored.plain(), output)
    else:
        print("\n".join(safe(line) for line in stored.text.removesuffix("\n").split("\n")))


@app.command("set")
def set_template(
    *,
    template: Reference,
    project: OfProject = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Workload document, YAML or JSON; - reads stdin."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(metavar="WORKLOAD", help="Workload whose document to store.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="One-line description.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create or replace a template. Exit code 5 if it changes at the same time.

    \b
    berth template set vision/nightly -f nightly.yaml --description 'The run of every night'
    berth template set nightly -p vision --workload train
    """
    from berth.client import NotFound

    if (file is None) == (workload is None):
        raise BadInput("template set: name either --file or --workload")
    with connected() as client:
        where, name = place_of(client, template, project)
        source = None if workload is None else client.workloads.find(workload)
        document: Any = _read(file or "") if source is None else _template_document(source)
        try:
            client.templates.get(where, name)
        except NotFound:
            stored = client.templates.create(where, name, document, description=description or "")
        else:
            stored = client.templates.edit(where, name, document, description=description)
    if output in (Output.JSON, Output.YAML):
        show_data(stored.plain(), output)
    else:
        print(f"Template {stored.handle} saved.")


@app.command("delete")
def delete(template: Reference, project: OfProject = None) -> None:
    """Delete a template. Workloads created from it are not affected.

    \b
    berth template delete vision/nightly
    """
    with connected() as client:
        where, name = place_of(client, template, project)
        client.templates.delete(where, name)
    print(f"{where}/{name} removed")


def _read(file: str) -> str:
    from berth.client.documents import read_text

    return read_text(file)


def _template_document(workload: Any) -> dict[str, Any]:
    return {key: value for key, value in (workload.spec or {}).items() if key not in OMITTED}


def _columns() -> list[Column]:
    return [
        Column("TEMPLATE", lambda t: t.handle),
        Column("KIND", lambda t: t.kind),
        Column("BY", lambda t: t.changed_by),
        Column("CHANGED", lambda t: f"{t.changed_at:%Y-%m-%d}" if t.changed_at else "-"),
        Column("DESCRIPTION", lambda t: t.description, grows=True),
    ]
