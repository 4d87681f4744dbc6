"""Run the compact cases under cases/.

A case has the keys `claim`, `shows`, `play` and `expect`, as in scenarios/, and these:

  nodes   {n: 8}: a node and its GPUs, or a node as in a scenario
  queues  {d: 8, d/a: 4}: departments and projects with their quota in GPUs, oldest first. Instead of a
          number: a quota mapping, which may also set `rank`, `usage`, and minimum and expected runtimes
  work    {w: a 4x1 on n*4}: project, replicas x GPUs per replica and, for a running workload, its nodes.
          Options: `firm` (non-preemptible), `p=90` (priority), `max=6` (maximum replicas), `cpu=2`,
          `for=60` (runtime so far in seconds, default 3600), `waits=60` (submitted 60 seconds ago).
          Each workload is submitted one second after the previous one. Instead of a line:
          {is: a line, plus scenario keys}
  pool    the keys of a scenario's pool; `cycle_seconds` likewise
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.simulator.scenario.parse import Loader
from tests.engine.stories import assert_expectations

FILES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
KEYS = {"claim", "shows", "play", "expect", "nodes", "queues", "work", "pool", "cycle_seconds"}
QUEUE_KEYS = ("rank", "reclaim_min_runtime", "preempt_min_runtime", "expected_runtime")
NOON = 1_800_000_000


def _cases() -> Any:
    for path in FILES:
        for case in yaml.load(path.read_text(encoding="utf-8"), Loader):
            marks = [pytest.mark.shows(*case["shows"])] if case.get("shows") else []
            yield pytest.param(case, id=f"{path.stem}: {case['claim']}", marks=marks)


@pytest.mark.parametrize("case", list(_cases()))
def test_engine_case_has_the_expected_outcome(case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS
    assert_expectations(case["expect"], scenario(case), case.get("play"))


def scenario(case: dict[str, Any]) -> dict[str, Any]:
    queues = [_queue(*item) for item in enumerate(case["queues"].items())]
    return {
        "now": NOON,
        "cycle_seconds": case.get("cycle_seconds", 1),
        "pools": [{"name": "default", **case.get("pool", {})}],
        "nodes": [
            {"name": name, **({"gpus": node, "cpu": 1000} if isinstance(node, int) else node)}
            for name, node in case["nodes"].items()
        ],
        "departments": [queue for queue in queues if "department" not in queue],
        "projects": [queue for queue in queues if "department" in queue],
        "workloads": [_workload(*item) for item in enumerate(case["work"].items())],
    }


def _queue(number: int, named: tuple[str, Any]) -> dict[str, Any]:
    path, value = named
    quota = dict(value) if isinstance(value, dict) else {"gpu": value}
    queue = {key: quota.pop(key) for key in QUEUE_KEYS if key in quota}
    if "usage" in quota:
        queue["usage"] = {"default": {"gpu": quota.pop("usage")}}
    department, _, project = path.partition("/")
    if project:
        queue["department"] = department
    created = NOON - 1_000_000 + number
    return {"name": project or department, "created": created, "quotas": {"default": quota}, **queue}


def _workload(number: int, named: tuple[str, Any]) -> dict[str, Any]:
    name, value = named
    more = dict(value) if isinstance(value, dict) else {"is": value}
    project, size, *rest = more.pop("is").split()
    count, _, gpus = size.rpartition("x")
    options = dict(word.split("=") for word in rest if "=" in word)
    role: dict[str, Any] = {"name": "worker", "min": int(count or 1), "gpu": float(gpus)}
    role["max"] = int(options.get("max", role["min"]))
    if "cpu" in options:
        role["cpu"] = float(options["cpu"])
    started = NOON - int(options.get("for", 3600))
    pods = [{"node": node, "started": started} for node in _nodes(rest)]
    workload: dict[str, Any] = {
        "name": name,
        "project": project,
        "submitted": NOON - int(options["waits"]) if "waits" in options else NOON - 10_000 + number,
        "priority": int(options.get("p", 50)),
        "roles": [role],
        "pods": pods,
        **more,
    }
    if "groups" in workload:
        del workload["roles"]
    if "firm" in rest:
        workload["preemptible"] = False
    return workload


def _nodes(words: list[str]) -> Iterator[str]:
    """Parse the words after `on`: "n0 n1*3" places one replica on n0 and three on n1."""
    for word in words[words.index("on") + 1 :] if "on" in words else ():
        node, _, times = word.partition("*")
        if node != "firm" and "=" not in node:
            yield from [node] * int(times or 1)
