"""Edit YAML documents in place: locate their parts, and change one part at a time."""

from berth.documents.edits import CannotEdit, edited
from berth.documents.places import Places
from berth.documents.strict import MOST_TEXT, read_document
from berth.documents.values import assigned, removed, setting

__all__ = [
    "MOST_TEXT", "CannotEdit", "Places", "assigned", "edited", "read_document", "removed", "setting",
]  # fmt: skip
