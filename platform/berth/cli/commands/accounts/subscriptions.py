"""The `berth subscription` command, which manages notification subscriptions and lists deliveries."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from berth.cli.options.arguments import open_client
from berth.cli.printing.following import print_listing
from berth.cli.printing.output import Column, Output, OutputOption, WatchOption, show_list, show_one
from berth.cli.printing.text import format_number, format_short_time, format_time, printable

if TYPE_CHECKING:
    from berth.client import Client
    from berth.client.models.notifications import Delivery

ATTEMPT_SECONDS = 20.0  # maximum wait for a delivery attempt; a webhook must respond within 10 seconds

app = typer.Typer(no_args_is_help=True, help="Manage notification subscriptions and show their deliveries.")


@app.command("list")
def list_subscriptions(output: OutputOption = Output.TABLE) -> None:
    """List your subscriptions and those of projects that you administer.

    \b
    berth subscription list
    """
    with open_client() as client:
        subscriptions = list(client.subscriptions.list())
    show_list(
        subscriptions,
        _subscription_columns(),
        output,
        "No subscriptions. Create one with `berth subscription create`.",
    )


@app.command("create")
def create(
    *,
    to: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Email address, https://... or slack:https://...")
    ],
    on: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Comma-separated events: started, completed, failed, preempted, cancelled, "
            "unschedulable, pending, idle, budget, schedule, pool.",
        ),
    ] = "preempted,failed,pending",
    project: Annotated[
        str | None, typer.Option("--project", "-p", help="Project whose events trigger notifications.")
    ] = None,
    department: Annotated[
        str | None, typer.Option(help="Department whose events trigger notifications.")
    ] = None,
    platform: Annotated[
        bool, typer.Option("--platform", help="Subscribe to events of the entire platform.")
    ] = False,
    minutes: Annotated[
        int,
        typer.Option(min=1, help="Pending time in minutes after which a notification is sent."),
    ] = 60,
    output: OutputOption = Output.TABLE,
) -> None:
    """Subscribe to the events of your workloads, a project, a department or the entire platform.

    \b
    berth subscription create me@example.org --on preempted,failed,pending --minutes 30
    berth subscription create slack:https://chat.example.org/hook --project vision --on failed,budget
    """
    events = [event.strip() for event in on.split(",") if event.strip()]
    with open_client() as client:
        created = client.subscriptions.create(
            to,
            events,
            project=project,
            department=department,
            platform_wide=platform,
            pending_minutes=minutes,
        )
    show_one(created, output, lambda _: show_list([created], _subscription_columns(), output, ""))


@app.command("edit")
def edit(
    *,
    subscription: Annotated[
        int, typer.Argument(metavar="ID", help="Subscription ID; see `berth subscription list`.")
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="ADDRESS", help="Email address, https://... or slack:https://..."),
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="LIST", help="Comma-separated events that replace the current ones.")
    ] = None,
    minutes: Annotated[
        int | None,
        typer.Option(min=1, help="Pending time in minutes after which a notification is sent."),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the address, events or pending threshold of a subscription.

    \b
    berth subscription edit 3 --on failed,pending --minutes 30
    """
    events = None if on is None else [event.strip() for event in on.split(",") if event.strip()]
    with open_client() as client:
        changed = client.subscriptions.edit(subscription, to=to, events=events, pending_minutes=minutes)
    show_one(changed, output, lambda _: show_list([changed], _subscription_columns(), output, ""))


@app.command("delete")
def delete(
    subscription: Annotated[
        int, typer.Argument(metavar="ID", help="Subscription ID; see `berth subscription list`.")
    ],
) -> None:
    """Delete a subscription.

    \b
    berth subscription delete 3
    """
    with open_client() as client:
        client.subscriptions.delete(subscription)
    print("Subscription deleted.")


@app.command("test")
def send_test(
    *,
    subscription: Annotated[
        int, typer.Argument(metavar="ID", help="Subscription ID; see `berth subscription list`.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Send a test notification to a subscription, and show whether it was delivered.

    The command waits for the first attempt. A failed delivery is retried like any other.

    \b
    berth subscription test 3
    """
    with open_client() as client:
        delivery = client.subscriptions.send_test(subscription)
        delivery = _wait_for_attempt(client, subscription, delivery)
    _show_attempt(delivery, output)


@app.command("resend")
def resend(
    *,
    subscription: Annotated[
        int, typer.Argument(metavar="ID", help="Subscription ID; see `berth subscription list`.")
    ],
    delivery: Annotated[
        int, typer.Argument(metavar="DELIVERY", help="Delivery ID; see `berth subscription deliveries`.")
    ],
    output: OutputOption = Output.TABLE,
) -> None:
    """Resend a failed delivery, and show whether it was delivered.

    The content and the delivery ID stay the same. The command waits for the first attempt. If that attempt
    fails, the delivery is retried like a new delivery.

    \b
    berth subscription resend 3 57
    """
    with open_client() as client:
        sent = _wait_for_attempt(client, subscription, client.subscriptions.resend(subscription, delivery))
    _show_attempt(sent, output)


@app.command("deliveries")
def deliveries(
    *,
    subscription: Annotated[
        int, typer.Argument(metavar="ID", help="Subscription ID; see `berth subscription list`.")
    ],
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows to show, newest first.")] = 20,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List a subscription's deliveries, newest first.

    \b
    berth subscription deliveries 3
    berth subscription deliveries 3 --limit 100 -o json
    """
    with open_client() as client:
        print_listing(
            lambda: list(client.subscriptions.deliveries(subscription, limit=limit)), _delivery_columns,
            output, "No deliveries yet.", watch=watch,
        )  # fmt: skip


def _wait_for_attempt(client: "Client", subscription: int, delivery: "Delivery") -> "Delivery":
    deadline = time.monotonic() + ATTEMPT_SECONDS
    while delivery.state == "pending" and not delivery.last_error and time.monotonic() < deadline:
        time.sleep(0.5)
        delivery = client.subscriptions.delivery(subscription, delivery.id)
    return delivery


def _show_attempt(delivery: "Delivery", output: Output) -> None:
    show_one(delivery, output, lambda _: show_list([delivery], _delivery_columns(), output, ""))
    if delivery.state == "failed":
        raise typer.Exit(1)


def _delivery_columns() -> list[Column]:
    return [
        Column("ID", lambda d: str(d.id), right=True),
        Column("TIME", lambda d: format_time(d.at), brief=lambda d: format_short_time(d.at)),
        Column("EVENT", lambda d: d.kind),
        Column("STATE", lambda d: d.state),
        Column("ATTEMPTS", lambda d: format_number(d.attempts), right=True),
        Column(
            "NEXT ATTEMPT",
            lambda d: format_time(d.next_attempt_at) if d.state == "pending" else "-",
            wide=True,
        ),
        Column("TO", lambda d: d.to, wide=True),
        Column("LAST ERROR", lambda d: printable(d.last_error) or "-", flexible=True),
    ]


def _subscription_columns() -> list[Column]:
    return [
        Column("ID", lambda s: str(s.id), right=True),
        Column("SCOPE", lambda s: s.scope),
        Column("EVENTS", lambda s: ",".join(s.events)),
        Column("PENDING MIN", lambda s: str(s.pending_minutes), right=True, wide=True),
        Column("TO", lambda s: s.to, flexible=True),
        Column("BY", lambda s: s.created_by, wide=True),
    ]
