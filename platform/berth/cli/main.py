"""The `berth` command, assembled without heavy imports."""

import os
from typing import Annotated

import typer

from berth.cli.commands import (
    admin,
    auditing,
    budget,
    contexts,
    cycles,
    departments,
    drafts,
    helping,
    here,
    history,
    line,
    logs,
    machines,
    members,
    nodes,
    notify,
    opening,
    password,
    pools,
    projects,
    quota,
    service,
    shares,
    signing,
    simulate,
    steering,
    submit,
    templates,
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
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def berth(
    ctx: typer.Context,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="NAME", help="Which stored server.", autocompletion=contexts.context_names
        ),
    ] = None,
) -> None:
    """Berth shares GPUs between departments and projects by quota and fair share.

    \b
    berth login https://berth.example.org
    berth submit -n train -p vision --gpu 1 -- python train.py
    berth list --watch
    berth why vision/train

    What holds for all commands: berth help exit-codes, berth help environment, berth help output.
    """
    if context is None:
        return
    before = os.environ.get("BERTH_CONTEXT")
    os.environ["BERTH_CONTEXT"] = context
    ctx.call_on_close(lambda: _put_back(before))


def _put_back(before: str | None) -> None:
    if before is None:
        os.environ.pop("BERTH_CONTEXT", None)
    else:
        os.environ["BERTH_CONTEXT"] = before


workload = typer.Typer(no_args_is_help=True, help="Workloads: the same commands as without this word.")
for of_workloads in (app, workload):
    of_workloads.command()(submit.submit)
    of_workloads.command("list")(workloads.list_workloads)
    of_workloads.command()(workloads.describe)
    of_workloads.command()(why.why)
    of_workloads.command()(logs.logs)
    of_workloads.command("open")(opening.open_port)
    of_workloads.command()(steering.cancel)
    of_workloads.command()(steering.suspend)
    of_workloads.command()(steering.resume)
    of_workloads.command()(steering.delete)
    of_workloads.command()(history.events)

quota.app.command("plan")(drafts.plan)
quota.app.command("apply")(drafts.apply)
quota.app.command("history")(drafts.history)
quota.app.command("undo")(drafts.undo)

app.command()(top.top)
app.command()(line.queue)
app.command()(shares.share)
app.command()(history.evictions)
app.command()(cycles.cycles)
app.command()(cycles.replay)
app.command()(auditing.audit)
app.command()(auditing.health)
for name, group in (
    ("workload", workload),
    ("template", templates.app),
    ("quota", quota.app),
    ("usage", usage.app),
    ("budget", budget.app),
    ("department", departments.app),
    ("project", projects.app),
    ("member", members.app),
    ("user", members.users),
    ("service", service.app),
    ("pool", pools.app),
    ("node", nodes.app),
    ("machine", machines.app),
    ("notify", notify.app),
    ("token", token.app),
    ("context", contexts.app),
    ("admin", admin.app),
):
    app.add_typer(group, name=name)
app.command()(signing.login)
app.command()(signing.logout)
app.command()(signing.whoami)
app.command()(password.password)
app.command()(simulate.simulate)
app.command()(trace.trace)
app.command()(here.up)
app.command("help")(helping.help_)
app.command()(helping.completion)
app.command()(here.version)

if __name__ == "__main__":
    app()
