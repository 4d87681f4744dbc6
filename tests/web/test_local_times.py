"""Tests for times inside sentences."""

import pytest

from berth.server.web.templatetags.berth import local_times


def test_utc_time_inside_a_sentence_becomes_a_time_element() -> None:
    html = local_times("Can start again at 2026-11-26 20:23:32 UTC, after <1> eviction.")
    assert html == (
        'Can start again at <time datetime="2026-11-26T20:23:32+00:00" data-style="moment">'
        "2026-11-26 20:23:32 UTC</time>, after &lt;1&gt; eviction."
    )


@pytest.mark.parametrize("text", ["", "No time.", "2026-02-31 10:00 UTC", "2026-11-26 20:23 CET"])
def test_text_without_a_utc_time_is_unchanged(text: str) -> None:
    assert local_times(text) == text
