"""Here we leave out of a reason what its reader must not learn: what other projects call their work."""

from scheduler.engine.plan import Blocker
from scheduler.engine.reasons import blocker

ANOTHERS = "a workload of another project"


def discreet(found: Blocker, handle: str) -> Blocker:
    """The reason as the people of this workload's project may read it; handles are `project/name`."""
    behind = found.numbers.get("behind")
    if behind is None or str(behind).partition("/")[0] == handle.partition("/")[0]:
        return found
    return blocker(found.reason, {**found.numbers, "behind": ANOTHERS})
