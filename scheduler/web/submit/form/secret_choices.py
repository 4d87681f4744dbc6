"""Secrets that a form field offers, and their notation in the field's text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from scheduler.web.submit.form.field_kinds import PERSONAL_PREFIX


@dataclass(frozen=True, slots=True)
class SecretChoice:
    """Secret that the user may select. `owner` is shown as its group, such as "Project vision"."""

    name: str
    owner: str
    is_personal: bool = False

    @property
    def reference(self) -> str:
        return f"{PERSONAL_PREFIX}{self.name}" if self.is_personal else self.name

    @property
    def line(self) -> str:
        """Text that gives the secret to the pods in an environment variable, such as `hf-token=HF_TOKEN`."""
        return f"{self.reference}={self.name.replace('-', '_').upper()}"


@dataclass(frozen=True, slots=True)
class SecretButton:
    """Button that adds `text` to a field or, if `is_selected`, removes it."""

    label: str
    text: str
    is_selected: bool


def secret_buttons(
    choices: Sequence[SecretChoice], value: str, *, in_lines: bool
) -> Iterator[tuple[str, list[SecretButton]]]:
    """Yield each owner with the buttons for the owner's secrets.

    With `in_lines`, each line of the field is one use of a secret. Otherwise, the field's value is the name
    of a single secret.
    """
    selected = {line.partition("=")[0].strip() if in_lines else line.strip() for line in value.split("\n")}
    for owner, group in groupby(choices, lambda choice: choice.owner):
        yield (
            owner,
            [
                SecretButton(each.name, each.line if in_lines else each.reference, each.reference in selected)
                for each in group
            ],
        )
