"""Validate a pool's provider settings with a pydantic model."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from berth.core.errors import Invalid
from berth.core.problems import Problem
from berth.core.spec.parsing.findings import convert_errors

Model = TypeVar("Model", bound=BaseModel)


def parse_settings(model: type[Model], value: Any) -> Model:
    """Return the validated settings. Raises Invalid with the path of each problem.

    The rejected value is omitted if the problem concerns the settings as a whole.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = convert_errors(error, model)
    raise Invalid(
        Problem(
            f"provider_settings.{problem.path}" if problem.path else "provider_settings", problem.message,
            problem.received if problem.path else "", problem.allowed,
        )
        for problem in problems
    )  # fmt: skip
