"""Here we work on documents as people wrote them: where each part stands, and how one part is changed."""

from berth.documents.edits import CannotEdit, edited
from berth.documents.places import Places
from berth.documents.strict import MOST_TEXT, read_document
from berth.documents.values import assigned, removed, setting

__all__ = [
    "MOST_TEXT", "CannotEdit", "Places", "assigned", "edited", "read_document", "removed", "setting",
]  # fmt: skip
