"""Convert raw log lines to the text that a terminal would show."""

import re

SEQUENCES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # escape sequences for colours and cursor movements
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # escape sequences for titles, links and device strings
    rb"|\x1b[ -/]*[0-~]?"
)
# The pattern includes bidirectional control characters, which could disguise a line.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def remove_control_sequences(raw_output: bytes) -> str:
    """Return program output without terminal control sequences."""
    text = SEQUENCES.sub(b"", raw_output).decode("utf-8", "replace").rstrip("\r")
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def render_as_terminal_line(raw_line: bytes, pattern: re.Pattern[str] | None = None) -> str:
    """Return a line as a terminal shows it, in which text after a carriage return overwrites the text before
    it. If the pattern matches only overwritten text, return the last text that matches.
    """
    versions = remove_control_sequences(raw_line).split("\r")
    matching = [text for text in versions if pattern and pattern.search(text)]
    return (matching or versions)[-1]
