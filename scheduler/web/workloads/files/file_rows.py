"""File rows and previews on the workload page."""

from dataclasses import dataclass

from scheduler.reports.log_text import remove_control_sequences

FILES_MAX = 200
PREVIEW_BYTES = 64 * 1024
TEXT_SUFFIXES = (
    ".txt", ".log", ".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".md", ".py", ".sh",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileRow:
    """File with the query parameters that select it. Text files have a preview."""

    path: str
    size: int
    query: str
    has_preview: bool


@dataclass(frozen=True, slots=True)
class Preview:
    path: str
    text: str
    is_cut: bool
    problem: str


def preview_text(content: bytes) -> str:
    """Return the beginning of a text file, with control sequences removed."""
    return "\n".join(map(remove_control_sequences, content[:PREVIEW_BYTES].split(b"\n")))
