"""Form field for a pool's or project's idle GPU rule."""

from typing import Any

from django import forms

from berth.core.errors import Invalid
from berth.core.idle_rule import normalize_rule, parse_text, read_rule


class IdleRuleField(forms.CharField):
    """Field for an idle GPU rule, in the same notation as on the command line: "below=5%,after=1h"."""

    def __init__(self, **options: Any) -> None:
        super().__init__(label="Idle rule", required=False, max_length=200, **options)

    def prepare_value(self, value: Any) -> Any:
        """Format a stored rule as text. Text that the user has entered is left as it is."""
        if not isinstance(value, dict):
            return value
        rule = read_rule(value)
        return rule.text if rule else ""

    def clean(self, value: Any) -> dict[str, Any]:
        try:
            return normalize_rule(parse_text(super().clean(value)))
        except Invalid as error:
            raise forms.ValidationError([str(problem) for problem in error.problems]) from None
