"""Here we play every file under scenarios/ and hold it to what it expects.

A file holds one story, or several with `---` between them and, if it likes, `common` in front: parts of a
scenario that each story starts from. A story: `claim` (a sentence), `shows` (behaviours), `play` (cycles,
until_stable, actions), `scenario` (without its `format`), `expect`:
  decisions  a list for each cycle of "kind workload [for workload]", in any order
  workloads  what each has come to: phase, gpus, reason (the dominant one), reasons (among others), nodes,
             numbers (of a reason, by its token)
  shares     fair shares in GPUs, by queue
  wanted     nodes wanted, by pool
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.engine.scenario import simulate

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
KEYS = {"claim", "shows", "play", "scenario", "expect"}
EXPECTED = {"decisions", "workloads", "shares", "wanted"}


def _cases(path: Path) -> Iterator[Any]:
    stories = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    common = stories.pop(0)["common"] if "common" in stories[0] else {}
    for story in stories:
        marks = [pytest.mark.shows(*story["shows"])] if story.get("shows") else []
        name = path.stem if len(stories) == 1 else f"{path.stem}: {story['claim']}"
        story["scenario"] = {**common, **story["scenario"]}
        yield pytest.param(story, id=name, marks=marks)


@pytest.mark.parametrize("story", [case for path in FILES for case in _cases(path)])
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
        "numbers": {
            blocker["reason"]: {key: blocker["numbers"].get(key) for key in asked}
            for blocker in told["blockers"]
            if (asked := wanted.get("numbers", {}).get(blocker["reason"]))
        },
    }
    return {key: found[key] for key in wanted}
