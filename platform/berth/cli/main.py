"""Here we put the `berth` command together. Nothing heavy is imported before a command runs."""

import typer

from berth.cli.commands import (
    admin,
    budget,
    cycles,
    here,
    history,
    line,
    logs,
    machines,
    nodes,
    notify,
    opening,
    places,
    pools,
    quota,
    service,
    shares,
    signing,
    simulate,
    steering,
    submit,
    token,
    top,
    trace,
    usage,
    why,
    workloads,
)
from berth.cli.exits import MEANINGS
from berth.cli.guard import Guarded

app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=MEANINGS,
    help="Berth shares GPUs between departments and projects by quota and fair share.",
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.command()(submit.submit)
app.command("list")(workloads.list_workloads)
app.command()(workloads.describe)
app.command()(why.why)
app.command()(line.queue)
app.command()(shares.share)
app.command()(logs.logs)
app.command("open")(opening.open_port)
app.command()(top.top)
app.command()(steering.cancel)
app.command()(steering.suspend)
app.command()(steering.resume)
app.command()(steering.delete)
app.command()(history.events)
app.command()(history.evictions)
app.command()(cycles.cycles)
app.command()(cycles.replay)
app.add_typer(quota.app, name="quota")
app.add_typer(usage.app, name="usage")
app.add_typer(budget.app, name="budget")
app.add_typer(places.project, name="project")
app.add_typer(places.department, name="department")
app.add_typer(service.app, name="service")
app.add_typer(pools.app, name="pool")
app.add_typer(nodes.app, name="node")
app.add_typer(machines.app, name="machine")
app.add_typer(notify.app, name="notify")
app.command()(signing.login)
app.command()(signing.logout)
app.command()(signing.whoami)
app.add_typer(token.app, name="token")
app.command()(simulate.simulate)
app.command()(trace.trace)
app.add_typer(admin.app, name="admin")
app.command()(here.up)
app.command()(here.version)

if __name__ == "__main__":
    app()
