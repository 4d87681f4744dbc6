"""An installation that serves a model through a real sglang-router under changing load.

Berth, the router and each engine run in separate processes. The engines speak SGLang's protocol and only
simulate computation; queueing, utilization and latency are real.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth.client import Client
from berth.client.config import Settings
from tests.journeys.installation import ROOT, Installation
from tests.serving.load import Load
from tests.serving.routers import sglang_router

SERVICE, TOKENS = "chat", 25
AUTOSCALER = {
    "enabled": True,
    "min_engines": 1,
    "max_engines": 4,
    "scale_out_cooldown_secs": 5,
    "scale_in_cooldown_secs": 5,
    "metrics_interval_secs": 1,
    "evaluation_interval_secs": 1,
    "condition_window_secs": 5,
    "scale_out_policy": {"queue_depth_per_engine": 1, "condition_duration_secs": 3, "max_delta": 2},
    "scale_in_policy": {"condition_duration_secs": 8, "throughput_variance_threshold": 2.0},
}


def document(router: str) -> dict[str, Any]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    command = f"exec {sys.executable} -m tests.serving.engine.server --port $BERTH_PORT --slots 2"
    return {
        "name": SERVICE,
        "project": "vision",
        "kind": "service",
        "command": f"{command} --seconds-per-token 0.02 --max-tokens 100",
        "env": {"PYTHONPATH": paths},
        "roles": [{"name": "engine", "replicas": 1, "gpu": 1}],
        "service": {"router": {"kind": "sglang", "url": router}, "autoscaler": AUTOSCALER},
    }


@dataclass(frozen=True, slots=True)
class Moment:
    """State of the service, `at` seconds after the load began."""

    at: float
    clients: int
    active: int
    engines: int
    waiting: int | None
    usage: float | None


@dataclass
class Story:
    """A service of an installation, observed over REST."""

    client: Client
    load: Load
    moments: list[Moment] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def get(self, path: str) -> Any:
        return self.client._transport.get(f"services/{SERVICE}/{path}")

    def sample(self) -> Moment:
        engines = [engine for model in self.get("engines")["models"].values() for engine in model["engines"]]
        metrics = self.get("autoscaler/status")["recent_metrics"]
        present = [engine for engine in engines if engine["status"] not in {"REMOVED", "FAILED"}]
        return Moment(
            round(self.load.now, 2),
            max(self.load.clients, 0),
            sum(engine["status"] == "ACTIVE" for engine in engines),
            len(present),
            metrics.get("total_queue_reqs"),
            metrics.get("avg_token_usage"),
        )

    def until(self, enough: Callable[[Moment], bool], seconds: float) -> Moment:
        """Record samples until one satisfies `enough`, and return that sample."""
        deadline = time.monotonic() + seconds
        while True:
            moment = self.sample()
            self.moments.append(moment)
            if enough(moment):
                return moment
            assert time.monotonic() < deadline, (moment, self.get("autoscaler/status"))
            time.sleep(0.4)

    def watch_for(self, seconds: float) -> None:
        end = self.load.now + seconds
        self.until(lambda moment: moment.at >= end, seconds + 30)

    def history(self) -> list[dict[str, Any]]:
        return list(self.get("autoscaler/scale_history")["history"])


@contextmanager
def running_service(home: Path) -> Iterator[Story]:
    """Run a new installation with an idle service that has one active engine."""
    berth = Installation(
        home, settings={"BERTH_SERVICE_NETWORKS": "127.0.0.0/8", "BERTH_POD_PATHS": str(ROOT)}
    )
    with sglang_router(home.parent / "router.log") as router:
        load = Load(router, TOKENS)
        try:
            address = berth.start("--demo")
            password = (home / "admin-password").read_text().strip()
            with Client(Settings(address, "", "")) as anonymous:
                token = anonymous.sign_in("admin", password)
            with Client(Settings(address, token, "vision")) as client:
                client.workloads.submit(document(router))
                story = Story(client, load)
                story.until(lambda moment: moment.active == 1, 120)
                story.moments.clear()
                load.began = time.monotonic()
                yield story
        finally:
            load.end()
            berth.end()
            berth.clear()


def run_load(story: Story, *, quiet: float, busy: float) -> None:
    """Run one client, then twelve, then one, until the service has scaled in to one engine."""
    story.load.set(1)
    story.watch_for(quiet)
    story.load.set(12)
    story.until(lambda moment: moment.active == AUTOSCALER["max_engines"], 120)
    story.watch_for(busy)
    story.load.set(1)
    story.until(lambda moment: moment.engines == 1, 180)
    story.watch_for(quiet)
    story.load.end()


def run_light_load(story: Story) -> None:
    """Run one client, whose requests the first engine can serve alone."""
    story.load.set(1)
    story.watch_for(2)
    story.load.end()
