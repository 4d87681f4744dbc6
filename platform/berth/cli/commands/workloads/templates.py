"""The `berth template` command, which manages a project's reusable workload documents."""

from typing import Annotated, Any

import typer

from berth.cli.documents.files import resolve_project_and_name
from berth.cli.exits import InvalidInput
from berth.cli.options.arguments import open_client
from berth.cli.printing.output import Column, Output, OutputOption, show_data, show_list
from berth.cli.printing.text import printable

app = typer.Typer(no_args_is_help=True, help="Manage workload templates.")
TemplateArgument = Annotated[
    str, typer.Argument(metavar="TEMPLATE", help="Template, as NAME or PROJECT/NAME.")
]
TemplateProjectOption = Annotated[
    str | None,
    typer.Option(
        "--project", "-p", metavar="NAME", help="Project. Defaults to BERTH_PROJECT or the context's project."
    ),
]
OMITTED = ("name", "project", "submitted")


@app.command("list")
def list_templates(project: TemplateProjectOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the templates of one project, or of all projects that you can see.

    \b
    berth template list -p vision
    """
    with open_client() as client:
        templates = list(client.templates.list(project))
    show_list(
        templates, _template_columns(), output, "No templates. Store one with `berth template set NAME`."
    )


@app.command("show")
def show(
    template: TemplateArgument, project: TemplateProjectOption = None, output: OutputOption = Output.TABLE
) -> None:
    """Print the document of a template. Use -o json or yaml for all fields.

    \b
    berth template show vision/nightly > nightly.yaml
    """
    with open_client() as client:
        stored = client.templates.get(*resolve_project_and_name(client, template, project))
    if output in (Output.JSON, Output.YAML):
        show_data(stored.to_dict(), output)
    else:
        print("\n".join(printable(line) for line in stored.text.removesuffix("\n").split("\n")))


@app.command("set")
def set_template(
    *,
    template: TemplateArgument,
    project: TemplateProjectOption = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Workload document, YAML or JSON (`-` for stdin)."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option(metavar="WORKLOAD", help="Workload to copy the document from.")
    ] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="One-line description.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create or replace a template. Exits with code 5 if the template was changed concurrently.

    \b
    berth template set vision/nightly -f nightly.yaml --description 'Nightly run'
    berth template set nightly -p vision --workload train
    """
    from berth.client import NotFound

    if (file is None) == (workload is None):
        raise InvalidInput("template set: specify either --file or --workload")
    with open_client() as client:
        project_name, name = resolve_project_and_name(client, template, project)
        source = None if workload is None else client.workloads.find(workload)
        document: Any = _read_file(file or "") if source is None else _template_document(source)
        try:
            client.templates.get(project_name, name)
        except NotFound:
            stored = client.templates.create(project_name, name, document, description=description or "")
        else:
            stored = client.templates.edit(project_name, name, document, description=description)
    if output in (Output.JSON, Output.YAML):
        show_data(stored.to_dict(), output)
    else:
        print(f"Template {stored.handle} saved.")


@app.command("delete")
def delete(template: TemplateArgument, project: TemplateProjectOption = None) -> None:
    """Delete a template. Workloads created from the template are not affected.

    A template that is used by schedules cannot be deleted. Edit or delete those schedules first.

    \b
    berth template delete vision/nightly
    """
    with open_client() as client:
        project_name, name = resolve_project_and_name(client, template, project)
        client.templates.delete(project_name, name)
    print(f"{project_name}/{name} deleted")


def _read_file(file: str) -> str:
    from berth.client.documents import read_text

    return read_text(file)


def _template_document(workload: Any) -> dict[str, Any]:
    return {key: value for key, value in (workload.spec or {}).items() if key not in OMITTED}


def _template_columns() -> list[Column]:
    return [
        Column("TEMPLATE", lambda t: t.handle),
        Column("KIND", lambda t: t.kind),
        Column("BY", lambda t: t.changed_by),
        Column("CHANGED", lambda t: f"{t.changed_at:%Y-%m-%d}"),
        Column("DESCRIPTION", lambda t: t.description, flexible=True),
    ]
