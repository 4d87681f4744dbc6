"""Here a cycle's snapshot is kept as a scenario file, for replay and bug reports, for a while."""

import json
import zlib
from datetime import datetime, timedelta
from typing import Any

from scheduler.engine.model import Snapshot
from scheduler.engine.scenario.dump import snapshot_to_scenario
from scheduler.models import Cycle

SCENARIOS_KEPT = timedelta(days=2)
CYCLES_KEPT = timedelta(days=30)
MOST_WORKLOADS = 20_000  # a larger cluster's snapshot is not kept with every cycle


def as_scenario(snapshot: Snapshot) -> bytes | None:
    if len(snapshot.workloads) > MOST_WORKLOADS:
        return None
    return zlib.compress(json.dumps(snapshot_to_scenario(snapshot), separators=(",", ":")).encode(), 1)


def scenario_of(cycle: Cycle) -> dict[str, Any] | None:
    """What the cycle saw; None when it was not kept, or not for so long."""
    if cycle.scenario is None:
        return None
    document: dict[str, Any] = json.loads(zlib.decompress(bytes(cycle.scenario)))
    return document


def drop_old(now: datetime) -> int:
    old = Cycle.objects.filter(at__lt=now - SCENARIOS_KEPT, scenario__isnull=False)
    dropped = old.update(scenario=None)
    Cycle.objects.filter(at__lt=now - CYCLES_KEPT).delete()
    return dropped
