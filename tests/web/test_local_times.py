"""Tests for times inside sentences."""

import re
from pathlib import Path

import pytest

from berth.server.web.templatetags.berth import local_times

TEMPLATES = Path(__file__).parents[2] / "templates"
RELATIVE_TIME = re.compile(r"\bsince:?\s*{% when [^ ]+ (?:\"(?:ago|lasting|forecast)\" )?%}", re.IGNORECASE)


def test_utc_time_inside_a_sentence_becomes_a_time_element() -> None:
    html = local_times("Restart delay until 2026-11-26 20:23:32 UTC, after <1> eviction.")
    assert html == (
        'Restart delay until <time datetime="2026-11-26T20:23:32+00:00" data-style="moment">'
        "2026-11-26 20:23:32 UTC</time>, after &lt;1&gt; eviction."
    )


@pytest.mark.parametrize("text", ["", "No time.", "2026-02-31 10:00 UTC", "2026-11-26 20:23 CET"])
def test_text_without_a_utc_time_is_unchanged(text: str) -> None:
    assert local_times(text) == text


def test_word_since_is_followed_by_a_date_rather_than_an_age() -> None:
    texts = {path: path.read_text() for path in TEMPLATES.rglob("*.html")}
    assert RELATIVE_TIME.search("Idle since: {% when idle %}"), "scripts would show: since 3 h ago"
    assert [path for path, text in texts.items() if RELATIVE_TIME.search(text)] == []
