"""Text types of a document: names, labels and commands, all without control characters."""

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import PydanticCustomError

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
LABEL_KEY_MAX, TEXT_MAX, FREE_NAME_MAX = 253, 1024, 253
COMMAND_MAX = ENV_MAX = 64 * 1024
NAME_ALLOWED = "1 to 63 lower-case letters, digits and dashes, beginning and ending with a letter or digit"
PRINTABLE = "printable characters"


def hidden_character(text: str, keep: str = "") -> str:
    """Return the code of the first control character outside `keep`, such as U+0007, or an empty string."""
    for char in text:
        if char not in keep and unicodedata.category(char) in ("Cc", "Cs"):
            return f"U+{ord(char):04X}"
    return ""


def plain(text: str) -> str:
    """Validate one line of printable text."""
    if char := hidden_character(text):
        raise PydanticCustomError(
            "hidden_character", "contains the control character {char}", {"char": char, "allowed": PRINTABLE}
        )
    return text


def script(text: str) -> str:
    """Validate printable text, which may have several lines."""
    if char := hidden_character(text, keep="\n\t\r"):
        allowed = f"{PRINTABLE}, tabs and line ends"
        raise PydanticCustomError(
            "hidden_character", "contains the control character {char}", {"char": char, "allowed": allowed}
        )
    return text


def directory(text: str) -> str:
    """Validate that a path does not leave its base directory."""
    if ".." in text.split("/"):
        allowed = "a path without '..'"
        raise PydanticCustomError("directory", "leads out of its directory", {"allowed": allowed})
    return text


def name(text: str, info: ValidationInfo) -> str:
    """Validate a name; scenario files may use other characters (`free_names` in the context)."""
    if isinstance(info.context, dict) and info.context.get("free_names"):
        if not text.strip() or len(text) > FREE_NAME_MAX:
            raise PydanticCustomError(
                "name", "is not a name", {"allowed": f"1 to {FREE_NAME_MAX} printable characters"}
            )
        return plain(text)
    if not NAME.fullmatch(text):
        raise PydanticCustomError("name", "is not a name", {"allowed": NAME_ALLOWED})
    return text


def variable(text: str) -> str:
    if not VARIABLE.fullmatch(text):
        raise PydanticCustomError(
            "variable", "is not a variable name", {"allowed": "letters, digits and _, no digit first"}
        )
    return text


Name = Annotated[str, Field(min_length=1, max_length=FREE_NAME_MAX), AfterValidator(name)]
Text = Annotated[str, Field(max_length=TEXT_MAX), AfterValidator(plain)]
Directory = Annotated[Text, Field(min_length=1), AfterValidator(directory)]
LabelKey = Annotated[str, Field(min_length=1, max_length=LABEL_KEY_MAX), AfterValidator(plain)]
LabelValue = Annotated[str, Field(max_length=255), AfterValidator(plain)]
Variable = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(variable)]
Script = Annotated[str, Field(max_length=COMMAND_MAX), AfterValidator(script)]
