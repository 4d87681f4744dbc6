"""Rank search results by how well they match the search words, and mark the matches in titles."""

import re
from collections.abc import Iterable, Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from berth.server.web.search.palette import SearchHit

MIN_KEYWORD_LETTERS = 2  # minimum length of words that match hidden keywords; one letter matches most
EXACT, STARTS_TITLE, STARTS_WORD, IN_TITLE, ELSEWHERE = range(5)
PARTS = re.compile(r"[\s\-_./]+")


def rank(hit: SearchHit, words: Sequence[str]) -> int:
    """Return the hit's rank for the words, where lower ranks are better.

    From best to worst: the title equals the words, the title starts with them, each word starts a word of the
    title, each word occurs in the title, or a word occurs only in the project, pool or keywords.
    """
    title, text = hit.title.lower(), " ".join(words).lower()
    if title == text:
        return EXACT
    if title.startswith(text):
        return STARTS_TITLE
    return max(_word_rank(title, word.lower()) for word in words)


def _word_rank(title: str, word: str) -> int:
    if any(part.startswith(word) for part in PARTS.split(title)):
        return STARTS_WORD
    return IN_TITLE if word in title else ELSEWHERE


def is_keyword_prefix(word: str, keywords: Iterable[str]) -> bool:
    """Return whether one of the hidden keywords starts with the word."""
    return len(word) >= MIN_KEYWORD_LETTERS and any(each.startswith(word.lower()) for each in keywords)


def mark_words(title: str, words: Sequence[str]) -> SafeString:
    """Render the title with the words marked. Longer words are marked first."""
    if not words:
        return format_html("{}", title)
    choices = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    parts = re.split(f"({choices})", title, flags=re.IGNORECASE)
    rendered = [format_html("<mark>{}</mark>" if at % 2 else "{}", part) for at, part in enumerate(parts)]
    return format_html_join("", "{}", ((part,) for part in rendered))
