"""Compare the result of a simulation with the expectations of a story.

A story's `expect` may contain:
  decisions  for each cycle, a list of "kind workload [for workload]", in any order
  workloads  the outcome of each workload: phase, gpus, position, nodes, devices, pods (their number),
             reason (the dominant one), reasons (some of them) and numbers (of a reason, by its token).
             A plain word is a phase
  shares     fair shares in GPUs, by queue. `shares_of` is for other resources, by resource and queue
  wanted     nodes wanted, by pool
"""

from typing import Any

from scheduler.simulator import simulate

EXPECTED = {"decisions", "workloads", "shares", "shares_of", "wanted"}

Story = dict[str, Any]


def assert_expectations(expect: Story, scenario: Story, play: Story | None = None) -> None:
    assert expect
    assert expect.keys() <= EXPECTED
    answer = simulate({"format": "berth.scenario/1", **scenario}, **(play or {}))
    for number, expected in enumerate(expect.get("decisions", ())):
        assert decision_lines(answer["cycles"][number]) == sorted(expected), f"cycle {number + 1}"
    wanted = _expected_workloads(expect)
    assert {name: _outcome(answer["workloads"][name], wanted[name]) for name in wanted} == wanted
    queues = {name: queue for pool in answer["queues"].values() for name, queue in pool.items()}
    for resource, shares in {"gpu": expect.get("shares", {}), **expect.get("shares_of", {})}.items():
        assert {name: queues[name]["fair_share"][resource] for name in shares} == shares, resource
    nodes = expect.get("wanted", {})
    assert {pool: answer["demand"][pool]["nodes_wanted"] for pool in nodes} == nodes


def decision_lines(cycle: Story) -> list[str]:
    return sorted(
        f"{decision['kind']} {decision['workload']}" + (f" for {decision['for']}" if decision["for"] else "")
        for decision in cycle["decisions"]
    )


def _expected_workloads(expect: Story) -> dict[str, Story]:
    workloads = expect.get("workloads", {})
    return {name: {"phase": wish} if isinstance(wish, str) else wish for name, wish in workloads.items()}


def _outcome(answer: Story, wanted: Story) -> Story:
    reasons = [blocker["reason"] for blocker in answer["blockers"]]
    pods = [pod for pod in answer["pods"] if pod["node"] is not None and pod["state"] != "stopping"]
    outcome: Story = {
        "phase": answer["phase"],
        "position": answer["position"],
        "gpus": answer["gpus"],
        "reason": reasons[0] if reasons else None,
        "reasons": [reason for reason in wanted.get("reasons", ()) if reason in reasons],
        "nodes": sorted(pod["node"] for pod in pods),
        "devices": sorted([pod["node"], *pod["devices"]] for pod in pods),
        "pods": len(pods),
        "blockers": len(answer["blockers"]),
        "numbers": {
            blocker["reason"]: {key: blocker["numbers"].get(key) for key in keys}
            for blocker in answer["blockers"]
            if (keys := wanted.get("numbers", {}).get(blocker["reason"]))
        },
    }
    return {key: outcome[key] for key in wanted}
