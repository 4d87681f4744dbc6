"""`berth queue`, `berth share`, `berth cycles` and `berth replay`."""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from berth.cli.arguments import SomePool, connected
from berth.cli.commands.quota import sorted_quotas, standing_gpus
from berth.cli.exits import BadInput, ExitCode
from berth.cli.output import Column, Output, OutputOption, WatchOption, listing, show_list, show_one
from berth.cli.quantities import moment
from berth.cli.text import age, local, now, number, safe, short


def queue(
    *,
    pool: SomePool = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows, in queue order.")] = 100,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the pending workloads of a pool in queue order.

    \b
    berth queue
    berth queue train -o wide     # with the ordering of each workload
    """
    with connected() as client:
        name = pool
        if name is None:
            names = [each.name for each in client.node_pools.list()]
            if len(names) != 1:
                raise BadInput(f"queue: name a pool, one of: {', '.join(names) or 'none exists'}")
            name = names[0]
        if watch:
            listing(
                lambda: client.queues.read(name, limit=limit).items, _queue_columns, output, "", watch=True
            )
            return
        answer = client.queues.read(name, limit=limit)

    if output is Output.CSV:
        show_list(answer.items, _queue_columns(), output, "")
        return

    def describe(_: object) -> None:
        show_list(answer.items, _queue_columns(), output, f"No pending workloads in {name}.")
        if hidden := answer.workloads - len(answer.items):
            print(
                f"berth: {hidden} more pending workloads, beyond --limit or not visible to you",
                file=sys.stderr,
            )

    show_one(answer, output, describe)


def _queue_columns() -> list[Column]:
    moment = now()
    return [
        Column(
            "POSITION", lambda w: "new" if w.queue_position is None else str(w.queue_position), right=True
        ),
        Column("NAME", lambda w: w.name),
        Column("PROJECT", lambda w: w.project),
        Column("GPUS", lambda w: number(w.gpus), right=True),
        Column("PRIORITY", lambda w: str(w.priority), right=True, spare=True),
        Column("AGE", lambda w: age(w.submitted_at, moment), right=True, spare=True),
        Column("STARTS IN", lambda w: _until(w.expected_start, moment), right=True),
        Column("ORDERING", lambda w: "; ".join(w.ordering), wide=True),
        Column("REASON", lambda w: ": ".join(part for part in (w.reason, w.message) if part), grows=True),
    ]


def _until(starts: datetime | None, moment: datetime) -> str:
    return "-" if starts is None else age(moment, starts)


def cycles(
    *,
    since: Annotated[str | None, typer.Option(help="Start time: a timestamp, or an age such as 2h.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of rows, newest first.")] = 20,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """List scheduling cycles, newest first. For platform admins.

    \b
    berth cycles --since 2h
    berth cycles --limit 5 --watch
    """
    filters = {} if since is None else {"since": moment("--since", since, now())}
    with connected() as client:
        listing(
            lambda: list(client.cycles.list(limit=limit, **filters)), _cycle_columns, output, "No cycles.",
            watch=watch,
        )  # fmt: skip


def replay(
    *,
    cycle: Annotated[int, typer.Argument(metavar="CYCLE", help="Cycle number, see berth cycles.")],
    save: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File to which to write the cycle's input, as a scenario for berth simulate."
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Repeat a stored cycle and list the differences. Exit code 1 if there are any.

    \b
    berth replay 1812
    berth replay 1812 --save cycle.json && berth simulate cycle.json
    """
    with connected() as client:
        comparison = client.cycles.replay(cycle)
        scenario = None if save is None else client.cycles.scenario(cycle)
    if save is not None:
        _save(save, scenario)

    def describe(_: object) -> None:
        print(safe(comparison.summary))
        for line in comparison.differences:
            print(f"  {safe(line)}")
        if comparison.differing > len(comparison.differences):
            print(f"  ... and {comparison.differing - len(comparison.differences)} more")

    show_one(comparison, output, describe)
    if not comparison.identical:
        raise typer.Exit(ExitCode.REFUSED)


def _save(file: str, scenario: object) -> None:
    if scenario is None:
        raise BadInput("the input of this cycle is no longer stored")
    try:
        Path(file).write_text(json.dumps(scenario, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--save {file}: {error.strerror or error}") from None
    print(f"berth: {file} written", file=sys.stderr)


def _cycle_columns() -> list[Column]:
    return [
        Column("CYCLE", lambda c: str(c.id), right=True),
        Column("TIME", lambda c: local(c.at), brief=lambda c: short(c.at)),
        Column("TRIGGER", lambda c: c.trigger, spare=True),
        Column("NODES", lambda c: str(c.nodes), right=True, wide=True),
        Column("WORKLOADS", lambda c: str(c.workloads), right=True, spare=True),
        Column("PENDING", lambda c: str(c.pending), right=True),
        Column("APPLIED", lambda c: str(c.applied), right=True),
        Column("STALE", lambda c: str(c.stale), right=True, wide=True),
        Column("EVICTIONS", lambda c: str(c.evictions), right=True),
        Column("DECIDE MS", lambda c: f"{c.decide_ms:.1f}", right=True),
        Column("ENGINE", lambda c: c.engine, wide=True),
    ]


def share(
    *,
    pool: SomePool = None,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show quota, fair share, allocation and decayed usage of each queue, in GPUs.

    \b
    berth share
    berth share train -o wide
    berth quota show vision --why     # how a fair share is computed
    """
    with connected() as client:
        listing(lambda: sorted_quotas(client, pool), _share_columns, output, "No quotas.", watch=watch)


def _share_columns() -> list[Column]:
    return [
        Column(
            "QUEUE", lambda q: q.owner["name"] if q.owner["kind"] == "department" else f"  {q.owner['name']}"
        ),
        Column("POOL", lambda q: q.pool),
        Column("QUOTA", lambda q: number(q.gpu, "unlimited"), right=True),
        Column("FAIR SHARE", lambda q: standing_gpus(q, "share"), right=True),
        Column("ALLOCATED", lambda q: standing_gpus(q, "allocated"), right=True),
        Column("BORROWED", lambda q: number(_borrowed(q)), right=True, spare=True),
        Column("REQUESTED", lambda q: standing_gpus(q, "requested"), right=True, spare=True),
        Column("DECAYED USAGE", _used, right=True, spare=True),
        Column("RANK", lambda q: "-" if q.rank is None else str(q.rank), right=True, wide=True),
    ]


def _borrowed(quota: Any) -> float | None:
    held = ((quota.standing or {}).get("allocated") or {}).get("gpu")
    if held is None or quota.gpu is None:
        return None
    return max(0.0, float(held) - float(quota.gpu))


def _used(quota: Any) -> str:
    usage = ((quota.standing or {}).get("usage") or {}).get("gpu")
    return "-" if usage is None else f"{usage:.3f}"
