"""Here we play every file under scenarios/ and hold it to what it expects.

A file: `claim` (a sentence), `shows` (behaviours), `play` (cycles, until_stable, actions), `scenario`
(without its `format`), `expect`:
  decisions  a list for each cycle of "kind workload [for workload]", in any order
  workloads  what each has come to: phase, gpus, reason (the dominant one), reasons (among others), nodes
  shares     fair shares in GPUs, by queue
  wanted     nodes wanted, by pool
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.engine.scenario import simulate

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
KEYS = {"claim", "shows", "play", "scenario", "expect"}
EXPECTED = {"decisions", "workloads", "shares", "wanted"}


def _case(path: Path) -> Any:
    story = yaml.safe_load(path.read_text(encoding="utf-8"))
    marks = [pytest.mark.shows(*story["shows"])] if story.get("shows") else []
    return pytest.param(story, id=path.stem, marks=marks)


@pytest.mark.parametrize("story", [_case(path) for path in FILES])
def test_scenario(story: dict[str, Any]) -> None:
    expect = story["expect"]
    assert story.keys() <= KEYS
    assert expect
    assert expect.keys() <= EXPECTED
    answer = simulate({"format": "berth.scenario/1", **story["scenario"]}, **story.get("play", {}))
    for number, expected in enumerate(expect.get("decisions", ())):
        assert _told(answer["cycles"][number]) == sorted(expected), f"cycle {number + 1}"
    assert {name: _become(answer["workloads"][name], wanted) for name, wanted in _all(expect)} == dict(
        _all(expect)
    )
    queues = {name: told for pool in answer["queues"].values() for name, told in pool.items()}
    shares = expect.get("shares", {})
    assert {name: queues[name]["fair_share"]["gpu"] for name in shares} == shares
    wanted = expect.get("wanted", {})
    assert {pool: answer["demand"][pool]["nodes_wanted"] for pool in wanted} == wanted


def _all(expect: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A word alone is a phase."""
    workloads = expect.get("workloads", {})
    return [(name, {"phase": told} if isinstance(told, str) else told) for name, told in workloads.items()]


def _told(cycle: dict[str, Any]) -> list[str]:
    return sorted(
        f"{decision['kind']} {decision['workload']}" + (f" for {decision['for']}" if decision["for"] else "")
        for decision in cycle["decisions"]
    )


def _become(told: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """As much of what it has come to as the story asks about."""
    reasons = [blocker["reason"] for blocker in told["blockers"]]
    pods = [pod for pod in told["pods"] if pod["node"] is not None and pod["state"] != "stopping"]
    found: dict[str, Any] = {
        "phase": told["phase"],
        "gpus": told["gpus"],
        "reason": reasons[0] if reasons else None,
        "reasons": [reason for reason in wanted.get("reasons", ()) if reason in reasons],
        "nodes": sorted(pod["node"] for pod in pods),
        "devices": sorted([pod["node"], *pod["devices"]] for pod in pods),
        "pods": len(pods),
    }
    return {key: found[key] for key in wanted}
