"""Run every file under scenarios/ and check its expectations.

A file holds one story, or several separated by `---`. An optional first part, `common`, contains parts
of a scenario that all stories share. A story has the keys `claim` (a sentence), `shows` (behaviours),
`play` (cycles, until_stable, actions), `scenario` (without its `format`) and `expect` (see `stories`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.simulator.scenario.parse import Loader

pytest.register_assert_rewrite("tests.engine.stories")
from tests.engine.stories import assert_expectations  # noqa: E402

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
KEYS = {"claim", "shows", "play", "scenario", "expect"}


def _cases(path: Path) -> Iterator[Any]:
    stories = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader))
    common = stories.pop(0)["common"] if "common" in stories[0] else {}
    for story in stories:
        marks = [pytest.mark.shows(*story["shows"])] if story.get("shows") else []
        name = path.stem if len(stories) == 1 else f"{path.stem}: {story['claim']}"
        story["scenario"] = {**common, **story["scenario"]}
        yield pytest.param(story, id=name, marks=marks)


@pytest.mark.parametrize("story", [case for path in FILES for case in _cases(path)])
def test_scenario_has_the_expected_outcome(story: dict[str, Any]) -> None:
    assert story.keys() <= KEYS
    assert_expectations(story["expect"], story["scenario"], story.get("play"))
