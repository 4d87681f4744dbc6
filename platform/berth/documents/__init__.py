"""Edit YAML documents in place: locate values, and change one value at a time."""

from berth.documents.edits import CannotEdit, edit_text, rename_key
from berth.documents.source_lines import SourceLines
from berth.documents.strict import TEXT_MAX, read_document
from berth.documents.values import parse_setting, remove_value, set_value

__all__ = [
    "TEXT_MAX",
    "CannotEdit",
    "SourceLines",
    "edit_text",
    "parse_setting",
    "read_document",
    "remove_value",
    "rename_key",
    "set_value",
]  # fmt: skip
