"""Text types for documents: names, labels and commands, all without control characters."""

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
LABEL_KEY_MAX, TEXT_MAX, FREE_NAME_MAX = 253, 1024, 253
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
COMMAND_MAX = ENV_MAX = 64 * 1024
NAME_ALLOWED = "1 to 63 lowercase letters, digits and hyphens, beginning and ending with a letter or digit"
PRINTABLE = "printable characters"
# Environment variables that every pod has, in addition to those that begin with BERTH_.
SET_BY_BERTH = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
     "CUDA_VISIBLE_DEVICES"}
)  # fmt: skip


def is_set_by_berth(variable: str) -> bool:
    """Return whether Berth sets the environment variable. Documents must not set such a variable."""
    return variable.startswith("BERTH_") or variable in SET_BY_BERTH


def find_control_character(text: str, keep: str = "") -> str:
    """Return the first control character that is not in `keep`, as text such as "U+0007".

    Return "" if there is none.
    """
    for char in text:
        if char not in keep and unicodedata.category(char) in ("Cc", "Cs"):
            return f"U+{ord(char):04X}"
    return ""


def validate_line(text: str) -> str:
    """Validate a single line of printable text."""
    if char := find_control_character(text):
        raise PydanticCustomError(
            "hidden_character", "contains the control character {char}", {"char": char, "allowed": PRINTABLE}
        )
    return text


def validate_script(text: str) -> str:
    """Validate printable text of one or more lines."""
    if char := find_control_character(text, keep="\n\t\r"):
        allowed = f"{PRINTABLE}, tabs and line breaks"
        raise PydanticCustomError(
            "hidden_character", "contains the control character {char}", {"char": char, "allowed": allowed}
        )
    return text


def validate_directory(text: str) -> str:
    """Validate that a path does not escape its base directory."""
    if ".." in text.split("/"):
        allowed = "a path without '..'"
        raise PydanticCustomError("directory", "points outside its base directory", {"allowed": allowed})
    return text


def validate_name(text: str, info: ValidationInfo) -> str:
    """Validate a name. For scenario files, `free_names` in the context allows other characters."""
    if isinstance(info.context, dict) and info.context.get("free_names"):
        if not text.strip() or len(text) > FREE_NAME_MAX:
            raise PydanticCustomError(
                "name", "is not a valid name", {"allowed": f"1 to {FREE_NAME_MAX} printable characters"}
            )
        return validate_line(text)
    if not NAME.fullmatch(text):
        raise PydanticCustomError("name", "is not a valid name", {"allowed": NAME_ALLOWED})
    return text


def validate_variable_name(text: str) -> str:
    if not VARIABLE.fullmatch(text):
        raise PydanticCustomError(
            "variable",
            "is not a valid variable name",
            {"allowed": "letters, digits and _, but no leading digit"},
        )
    return text


def validate_file_name(text: str) -> str:
    if not FILE_NAME.fullmatch(text):
        allowed = "1 to 128 letters, digits, dots, hyphens and _, beginning with a letter or digit"
        raise PydanticCustomError("file_name", "is not a valid file name", {"allowed": allowed})
    return text


Name = Annotated[str, Field(min_length=1, max_length=FREE_NAME_MAX), AfterValidator(validate_name)]
Text = Annotated[str, Field(max_length=TEXT_MAX), AfterValidator(validate_line)]
Directory = Annotated[Text, Field(min_length=1), AfterValidator(validate_directory)]
LabelKey = Annotated[str, Field(min_length=1, max_length=LABEL_KEY_MAX), AfterValidator(validate_line)]
LabelValue = Annotated[str, Field(max_length=255), AfterValidator(validate_line)]
FileName = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(validate_file_name)]
Variable = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(validate_variable_name)]
Script = Annotated[str, Field(max_length=COMMAND_MAX), AfterValidator(validate_script)]
