"""`berth why`: explain with numbers why a workload is pending or was evicted."""

from typing import TYPE_CHECKING

from berth.cli.link import connected
from berth.cli.names import WorkloadArgument
from berth.cli.output import Output, OutputOption, print_section, show_one
from berth.cli.standing import blocker_numbers, expected_line, queue_lines
from berth.cli.text import local, now, plain, safe, span

if TYPE_CHECKING:
    from berth.client.answers import Eviction, Explanation, Workload


def why(workload: WorkloadArgument, output: OutputOption = Output.TABLE) -> None:
    """Why does it wait? Why was it evicted, and for whom?

    \b
    berth why vision/train
    berth why train -o json
    """
    with connected() as client:
        found = client.workloads.find(workload)
        explanation = client.workloads.explain(found.id)
    show_one(explanation, output, lambda _: _tell(found, explanation))


def _tell(workload: "Workload", why: "Explanation") -> None:
    reason = f": {why.reason}" if why.reason else ""
    print(safe(f"{workload.handle} is {why.phase}{reason}"))
    if why.message and why.message not in {blocker.message for blocker in why.blockers}:
        print(f"  {safe(why.message)}")
    for blocker in why.blockers:
        print(f"\n{safe(blocker.reason)}: {safe(blocker.message)}")
        if blocker.numbers:
            print(f"  {blocker_numbers(blocker.numbers)}")
    if why.position is not None:
        print_section(f"Position {why.position}{_where(workload)}")
        for line in why.key:
            print(f"  {safe(line)}")
    if line := expected_line(why.expected_start, why.expected_because):
        print(f"\n{safe(line)}")
    if lines := list(queue_lines(why.queue)):
        print_section("Queues")
        for line in lines:
            print(f"  {safe(line)}")
    _tell_past(why)
    if why.explained_at is not None:
        cycle = f" by cycle {plain(why.cycle)}" if isinstance(why.cycle, int | str) else ""
        print(f"\nAs seen at {local(why.explained_at)}{cycle}")


def _tell_past(why: "Explanation") -> None:
    """For what it waited so far, where that changed; and who gave way."""
    if len(why.waited) > 1:
        print_section("Waited")
        for each in why.waited:
            told = span(((each.until or now()) - each.since).total_seconds())
            print(f"  {local(each.since)}  {safe(each.reason)} {told}{'' if each.until else ' so far'}")
    if why.evictions:
        print_section("Evictions")
        for eviction in why.evictions:
            _tell_eviction(eviction)


def _where(workload: "Workload") -> str:
    return f" in {workload.pools[0]}" if workload.pools else ""


def _tell_eviction(eviction: "Eviction") -> None:
    print(f"  {local(eviction.at)}  {eviction.kind}: {safe(eviction.summary)}")
    for line in eviction.lines:
        print(f"    {safe(line)}")
