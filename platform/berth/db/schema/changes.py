"""Detect model changes that require a migration."""

from typing import Any

from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ProjectState
from django.db.models import Field

# Field options that only Python uses. They do not affect tables.
_NOT_IN_THE_DATABASE = {"choices", "editable", "error_messages", "help_text", "validators", "verbose_name"}
_NAMES_OF_MODELS = {"verbose_name", "verbose_name_plural"}


class SchemaChangeDetector(MigrationAutodetector):
    """Autodetector that reports only changes to tables. A new choice or help text needs no migration."""

    def __init__(self, from_state: ProjectState, to_state: ProjectState, *args: Any, **kwargs: Any) -> None:
        super().__init__(from_state, to_state, *args, **kwargs)
        for state in (from_state, to_state):
            for model in state.models.values():
                model.fields = {name: _column_definition(field) for name, field in model.fields.items()}
                model.options = {key: model.options[key] for key in model.options.keys() - _NAMES_OF_MODELS}


def _column_definition(field: "Field[Any, Any]") -> "Field[Any, Any]":
    _, _, args, options = field.deconstruct()
    return type(field)(*args, **{key: options[key] for key in options.keys() - _NOT_IN_THE_DATABASE})
