"""The `berth service` command, which shows, scales and autoscales inference services."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from berth.cli.commands.services import tables
from berth.cli.exits import ExitCode, InvalidInput
from berth.cli.options.arguments import ProjectOption, open_client, service_names
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import (
    Output,
    OutputOption,
    WatchOption,
    print_items,
    print_section,
    show_list,
    show_one,
)
from berth.cli.printing.text import printable
from berth.core.wording.reasons import plain_reason

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.services import ScaleAccepted
    from berth.client.sync.services import Direction

app = typer.Typer(
    no_args_is_help=True, help="Manage inference services, their engines and their autoscalers."
)
Name = Annotated[
    str,
    typer.Argument(
        metavar="SERVICE", help="Name, PROJECT/NAME or ID of the service.", autocompletion=service_names
    ),
]
EngineCount = Annotated[
    int,
    typer.Argument(metavar="[ENGINES]", min=0, help="Total number of engines, including the initial ones."),
]
EngineUrls = Annotated[
    list[str] | None, typer.Option("--url", metavar="URL", help="Address of an external engine; repeatable.")
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Timeout in seconds. Defaults to the service's setting."),
]
Wait = Annotated[
    bool, typer.Option("--wait", "-w", help="Wait until the request completes, and print each status.")
]
FAILED_STATUSES = ("FAILED", "CANCELLED")


@app.command("list")
def list_services(
    project: ProjectOption = None,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Include services that have ended.")] = False,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List inference services with their active engines.

    \b
    berth service list --project vision
    """
    ended = None if show_all else False
    with open_client() as client:
        print_listing(
            lambda: list(client.services.list(project=project, ended=ended)), tables.service_columns, output,
            "No services.", watch=watch,
        )  # fmt: skip


@app.command()
def describe(name: Name, output: OutputOption = Output.TABLE) -> None:
    """Show one service: model, engines and the active scale request.

    \b
    berth service describe chat
    """
    with open_client() as client:
        service = client.services.get(name)
        engines = client.services.engines(name) if not output.is_data else []
        status = client.services.status(name) if engines or output is Output.TABLE else None
    show_one(service, output, lambda service: tables.print_service(service, engines, status, output))


@app.command()
def engines(name: Name, watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List the engines of a service.

    \b
    berth service engines vision/chat --watch
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.services.engines(name)),
            tables.engine_columns,
            output,
            "No engines.",
            watch=watch,
        )


@app.command("scale-out")
def scale_out(
    *,
    name: Name,
    count: EngineCount = 0,
    url: EngineUrls = None,
    timeout: Timeout = None,
    wait: Wait = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Scale out to a total number of engines, or add external engines by URL.

    \b
    berth service scale-out chat 8 --wait
    berth service scale-out chat --url http://198.51.100.10:30000
    """
    with open_client() as client:
        accepted = client.services.scale_out(name, count, engine_urls=url or (), timeout_secs=timeout)
        _report_progress(client, name, "scale_out", accepted, wait, output)


@app.command("scale-in")
def scale_in(
    *,
    name: Name,
    count: EngineCount = 0,
    url: EngineUrls = None,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for running requests.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the engines that would be removed, without removing them.")
    ] = False,
    timeout: Timeout = None,
    wait: Wait = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Scale in to a total number of engines, or remove engines by URL.

    The newest engines are removed first.

    \b
    berth service scale-in chat 2 --dry-run
    berth service scale-in chat --url http://198.51.100.10:30000
    """
    with open_client() as client:
        accepted = client.services.scale_in(
            name, count, engine_urls=url or (), force=force, dry_run=dry_run, timeout_secs=timeout
        )
        _report_progress(client, name, "scale_in", accepted, wait, output)


@app.command()
def cancel(
    *,
    name: Name,
    request: Annotated[
        str | None, typer.Argument(metavar="[REQUEST]", help="ID of a single scale-out request to cancel.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Cancel only scale-out requests with this status.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the requests without cancelling them.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Cancel one scale-out request or all active requests, and release their engines.

    \b
    berth service cancel chat
    berth service cancel chat so-1f6e2c
    """
    if request is not None and (status is not None or dry_run):
        raise InvalidInput(
            "service cancel: REQUEST cannot be combined with --status or --dry-run. Omit these options to "
            "cancel a single request."
        )
    with open_client() as client:
        if request is not None:
            cancelled_request = client.services.cancel(name, request)
            show_one(
                cancelled_request,
                output,
                lambda _: print(printable(f"{cancelled_request.request_id} is {cancelled_request.status}")),
            )
            return
        cancelled = client.services.cancel_scale_outs(name, status=status, dry_run=dry_run)
    show_one(cancelled, output, lambda _: _print_cancelled_requests(cancelled))


@app.command()
def history(
    *,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show.")] = 50,
    autoscaler: Annotated[bool, typer.Option("--autoscaler", help="List only autoscaler actions.")] = False,
    failed_engines: Annotated[
        bool, typer.Option("--failed-engines", help="List only failed engines, with the reasons.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List scale requests and failed engines of a service, newest first.

    \b
    berth service history chat
    berth service history chat --autoscaler
    berth service history chat --failed-engines -o json
    """
    with open_client() as client:
        if failed_engines:
            failures = list(client.services.failed_engines(name, limit=limit))
            show_list(failures, tables.failed_engine_columns(), output, "No failed engines.")
            return
        if autoscaler:
            actions = client.services.history(name, limit=limit)
            show_list(actions, tables.autoscaling_columns(), output, "No autoscaler actions yet.")
            return
        requests = [
            *client.services.requests(name, "scale_out"), *client.services.requests(name, "scale_in")
        ]  # fmt: skip
        failures = [] if output.is_data else list(client.services.failed_engines(name, limit=limit))
    newest = sorted(requests, key=lambda request: (request.created_at, request.request_id), reverse=True)[
        :limit
    ]
    show_list(newest, tables.request_columns(), output, "No scale requests yet.")
    if failures:
        print_section("Failed inference engines")
        print_items(failures, tables.failed_engine_columns(), output)


@app.command()
def autoscale(
    *,
    name: Name,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="YAML file with all settings (`-` for stdin).")
    ] = None,
    on: Annotated[
        bool | None,
        typer.Option("--on/--off", help="Turn the autoscaler on or off without changing its settings."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show or configure a service's autoscaler, or turn it on or off.

    \b
    berth service autoscale chat -f autoscaler.yaml
    """
    with open_client() as client:
        if file is not None:
            client.services.configure(name, _read_settings(file))
        if on is not None:
            client.services.enable(name, on)
        status, conditions = client.services.status(name), client.services.conditions(name)
    show_one(status, output, lambda autoscaler: tables.print_autoscaler(autoscaler, conditions, output))


def _read_settings(file: Path) -> dict[str, Any]:
    import yaml

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        settings = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"{file} cannot be read: {plain_reason(error).splitlines()[0]}") from None
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InvalidInput(f"{file} must contain keys and values, for example `max_engines: 8`.")
    return settings


def _report_progress(
    client: "Client", name: str, direction: "Direction", accepted: "ScaleAccepted", wait: bool, output: Output
) -> None:
    show_one(accepted, output, tables.print_accepted_request)
    if not wait or accepted.request_id is None:
        return
    last = None
    for last in client.services.changes(name, direction, accepted.request_id):
        error = f": {last.error_message}" if last.error_message else ""
        print(
            printable(f"{last.request_id} is {last.status}{error}"),
            file=sys.stderr,
            flush=True,
        )
    if last is not None and last.status in FAILED_STATUSES:
        raise typer.Exit(ExitCode.WORKLOAD_FAILED)


def _print_cancelled_requests(cancellation: Any) -> None:
    print(printable(cancellation.message))
    for request in cancellation.cancelled:
        print(printable(f"{request.request_id} is {request.status}"))
