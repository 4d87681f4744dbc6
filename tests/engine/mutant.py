"""Run every invariant and story against a modified copy of the engine.

python -m tests.engine.mutant CLUSTERS

`test_mutations` runs this program inside the copy. CLUSTERS is a file with a list of scenarios. The output
lists the violated invariants and the failed stories as JSON.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduler.engine.decide import decide
from scheduler.simulator import load
from tests.engine import test_cases, test_scenarios
from tests.engine.reference.invariants.families import broken_invariants
from tests.engine.stories import assert_expectations
from tests.engine.test_invariants import test_fair_shares_equal_the_reference_calculation as agree

SHARES = "fair shares of the reference calculation"
CRASH = "the engine raises an error"


def main() -> None:
    documents = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps({"invariants": _broken_invariants(documents), "stories": sorted(_stories())}))


def _broken_invariants(documents: list[dict[str, Any]]) -> list[str]:
    """Return the invariants that the plan for at least one cluster violates."""
    broken: set[str] = set()
    for document in documents:
        try:
            snapshot = load(document).snapshot
            broken |= {line.partition(":")[0] for line in broken_invariants(snapshot, decide(snapshot))}
            agree.hypothesis.inner_test(document=document)
        except AssertionError:
            broken.add(SHARES)
        except Exception as error:
            broken.add(f"{CRASH}: {type(error).__name__}")
    return sorted(broken)


def _stories() -> Iterator[str]:
    for case in test_cases._cases():
        (story,) = case.values
        yield from _failed(story["claim"], story, test_cases.scenario(story))
    for path in test_scenarios.FILES:
        for case in test_scenarios._cases(path):
            (story,) = case.values
            yield from _failed(story["claim"], story, story["scenario"])


def _failed(claim: str, story: dict[str, Any], scenario: dict[str, Any]) -> Iterator[str]:
    try:
        assert_expectations(story["expect"], scenario, story.get("play"))
    except Exception:
        yield claim


if __name__ == "__main__":
    main()
