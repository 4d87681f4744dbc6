"""Let a command take its options as one dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")


def takes(kind: type[T]) -> Callable[[Callable[[T], None]], Callable[..., None]]:
    """The decorated command's help and name stay; its options are the fields of `kind`, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field.default, field.default_factory),
            annotation=hints[field.name],
        )
        for field in fields(kind)  # type: ignore[arg-type]
    ]

    def wrap(command: Callable[[T], None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            command(kind(**values))

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = hints
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return wrap


def _default(value: Any, factory: Any) -> Any:
    if value is not MISSING:
        return value
    return factory() if factory is not MISSING else inspect.Parameter.empty
