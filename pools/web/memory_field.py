"""Form field for an amount of memory with a unit."""

from typing import Any

from django import forms
from pydantic_core import PydanticCustomError

from berth.core.spec.values.quantities import parse_memory

MIB_PER_GIB = 1024


class MemoryField(forms.CharField):
    """Amount of memory, such as 64Gi. A number without a unit is in MiB. The value of the field is in MiB."""

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        if not text:
            return None
        try:
            amount = parse_memory(int(text) if text.isdecimal() else text)
        except PydanticCustomError as error:
            raise forms.ValidationError(f"Memory {error.message()}.") from None
        if not amount:
            raise forms.ValidationError("Enter at least 1 MiB.")
        return amount

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return f"{value // MIB_PER_GIB}Gi" if value and value % MIB_PER_GIB == 0 else f"{value}Mi"
