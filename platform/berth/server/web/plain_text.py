"""Strip terminal control sequences from program output."""

import re

SEQUENCES = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    rb"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and device strings
    rb"|\x1b[ -/]*[0-~]?"
)
# Includes bidirectional controls, which could disguise a line.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain_text(raw_output: bytes) -> str:
    text = SEQUENCES.sub(b"", raw_output).decode("utf-8", "replace").rstrip("\r")
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
