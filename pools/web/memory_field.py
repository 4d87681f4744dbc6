"""Form field for an amount of memory with a unit."""

import re
from typing import Any

from django import forms
from pydantic_core import PydanticCustomError

from berth.core.spec.values.quantities import parse_memory
from berth.core.wording.words import format_mib

WITH_SEPARATORS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?\D*")


class MemoryField(forms.CharField):
    """Amount of memory in MiB. It can be entered with a unit, such as 64 GiB or 64Gi."""

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        plain = text.replace(" ", "")
        if WITH_SEPARATORS.fullmatch(plain):
            plain = plain.replace(",", "")
        if plain.endswith("iB"):
            plain = plain.removesuffix("B")
        try:
            amount = parse_memory(int(plain) if plain.isdecimal() else plain)
        except PydanticCustomError:
            raise forms.ValidationError("Enter an amount of memory, for example 64 GiB.") from None
        if not amount:
            raise forms.ValidationError("Enter at least 1 MiB.")
        return amount

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return format_mib(value)
