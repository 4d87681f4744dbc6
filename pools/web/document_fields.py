"""Form fields for structured values in JSON and YAML."""

import json
import re
from typing import Any

import yaml
from django import forms
from django.core.exceptions import ValidationError

# Explanations of the messages of Python's JSON parser.
JSON_FAULTS = {
    "Expecting value": "a value is missing, or text is not in double quotes",
    "Expecting property name enclosed in double quotes": "a key must be in double quotes",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Extra data": "there is more text after the end of the list",
    "Unterminated string starting at": "the text that begins here has no closing quote",
    "Illegal trailing comma before end of array": "there is a comma after the last entry",
    "Illegal trailing comma before end of object": "there is a comma after the last value",
}


class JsonField(forms.JSONField):
    """JSON field that shows an empty value as an empty string instead of null."""

    widget = forms.Textarea(attrs={"rows": 4, "spellcheck": "false", "class": "mono"})

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except ValidationError:
            raise ValidationError(describe_json_error(str(value))) from None

    def prepare_value(self, value: Any) -> Any:
        return super().prepare_value(value) if value else ""


class YamlField(forms.CharField):
    """Text area for a structured value in YAML."""

    def __init__(self, *, example: str = "", **kwargs: Any) -> None:
        attrs = {"rows": 3, "spellcheck": "false", "class": "mono", "placeholder": example}
        super().__init__(widget=forms.Textarea(attrs=attrs), **kwargs)

    def clean(self, value: Any) -> Any:
        return parse_yaml(super().clean(value))


def parse_yaml(text: str) -> Any:
    """Parse a YAML document. Raises ValidationError with the line of the error."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        problem = re.sub(r"'<(.*?)>'", r"the \1", str(getattr(error, "problem", "") or error))
        raise ValidationError(f"This is not valid YAML{line}: {problem}.") from None


def describe_json_error(text: str) -> str:
    """Return a sentence that describes the first JSON syntax error in the text and where it is."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        fault = JSON_FAULTS.get(error.msg, f"{error.msg[:1].lower()}{error.msg[1:]}")
        lines = text.splitlines() or [""]
        place = f"column {error.colno}" if len(lines) == 1 else f"line {error.lineno}, column {error.colno}"
        start = lines[min(error.lineno, len(lines)) - 1][error.colno - 1 :].strip()[:20]
        return f"This is not valid JSON at {place}{f' ({start})' if start else ''}: {fault}."
    return "Enter a JSON document."
