"""List the specified behaviours that the tests cover.

The behaviours are listed by ID in docs/behaviours, one file per chapter. A test claims a behaviour with
`@pytest.mark.shows("RAI-29")`. Run `make behaviours` for the table.
"""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

LISTS = Path(__file__).resolve().parents[2] / "docs" / "behaviours"


def chapters() -> dict[str, list[str]]:
    return {file.stem: file.read_text().split() for file in sorted(LISTS.glob("*.txt"))}


def shown_by(item: pytest.Item) -> list[str]:
    return [claim for mark in item.iter_markers("shows") for claim in mark.args]


def reject_unknown_behaviours(items: Iterable[pytest.Item]) -> None:
    promised = {promise for promises in chapters().values() for promise in promises}
    for item in items:
        for claim in shown_by(item):
            if claim not in promised:
                raise pytest.UsageError(
                    f"{item.nodeid} shows {claim!r}, which docs/behaviours does not list."
                )


class Collector:
    """Collects the behaviours that tests claim. The cases of a parametrized test count once."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for claim in shown_by(item):
                self.tests[claim].add(item.nodeid.split("[")[0])


def table(tests: dict[str, set[str]]) -> str:
    lines: list[str] = []
    for chapter, promises in chapters().items():
        missing = [promise for promise in promises if promise not in tests]
        lines.append(f"{chapter}: {len(promises) - len(missing)} of {len(promises)} shown")
        lines += [f"  {promise}  {name}" for promise in promises for name in sorted(tests.get(promise, ()))]
        if missing:
            lines.append(f"  not yet: {' '.join(missing)}")
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    collector = Collector()
    silence = os.dup(1)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        options = ["--collect-only", "-q", "-o", "addopts=--import-mode=importlib"]
        code = pytest.main(options, plugins=[collector])
        sys.stdout.flush()
    os.dup2(silence, 1)
    print(table(collector.tests))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
