"""Run every law and story against a broken copy of the engine.

    python -m tests.engine.mutant CLUSTERS

Run in the copy, by `test_mutations`. CLUSTERS is a file with a list of scenarios; what noticed is printed as
JSON, a list each of laws and of stories.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scheduler.engine.decide import decide
from scheduler.simulator import load
from tests.engine import test_cases, test_scenarios
from tests.engine.reference.laws import broken_laws
from tests.engine.stories import hold_to
from tests.engine.test_laws import test_shares_agree_with_the_plain_calculation as agree

SHARES = "the shares of the plain calculation"
FALLS_OVER = "it falls over"


def main() -> None:
    documents = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps({"laws": _laws(documents), "stories": sorted(_stories())}))


def _laws(documents: list[dict[str, Any]]) -> list[str]:
    """All that any of the clusters shows to be broken."""
    found: set[str] = set()
    for document in documents:
        try:
            snapshot = load(document).snapshot
            found |= {told.partition(":")[0] for told in broken_laws(snapshot, decide(snapshot))}
            agree.hypothesis.inner_test(document=document)  # type: ignore[attr-defined]
        except AssertionError:
            found.add(SHARES)
        except Exception as error:
            found.add(f"{FALLS_OVER}: {type(error).__name__}")
    return sorted(found)


def _stories() -> Iterator[str]:
    for case in test_cases._cases():
        (told,) = case.values
        yield from _unheld(told["claim"], told, test_cases.scenario(told))
    for path in test_scenarios.FILES:
        for case in test_scenarios._cases(path):
            (told,) = case.values
            yield from _unheld(told["claim"], told, told["scenario"])


def _unheld(claim: str, told: dict[str, Any], scenario: dict[str, Any]) -> Iterator[str]:
    try:
        hold_to(told["expect"], scenario, told.get("play"))
    except Exception:
        yield claim


if __name__ == "__main__":
    main()
