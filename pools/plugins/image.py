"""Immutable description of a pool's environment: packages, variables and settings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

T = TypeVar("T")


class Variables(Mapping[str, str]):
    """Immutable, hashable mapping of environment variables."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(sorted(values.items()))

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


@dataclass(frozen=True, slots=True)
class Index:
    """Package index for the packages in `packages`.

    If `packages` is empty, the index is used for all packages that no other index lists.
    """

    url: str
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """Packages, variables and settings of an environment.

    `python` is a version such as "3.12", or empty for the machine's default. `pip` holds requirements.
    `secrets` names variables whose values processes receive at run time. Sequences are stored as tuples.
    """

    python: str = ""
    pip: tuple[str, ...] = ()
    indexes: tuple[Index, ...] = ()
    apt: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("pip", "indexes", "apt", "secrets"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "env", Variables(self.env))

    # Methods for transforms. Each returns a new image without duplicate entries.

    def with_pip(self, *requirements: str) -> "Image":
        return replace(self, pip=_merge_unique(self.pip, requirements))

    def with_index(self, url: str, *packages: str) -> "Image":
        return replace(self, indexes=_merge_unique(self.indexes, (Index(url, packages),)))

    def with_apt(self, *packages: str) -> "Image":
        return replace(self, apt=_merge_unique(self.apt, packages))

    def with_env(self, **variables: str) -> "Image":
        return replace(self, env={**self.env, **variables})

    def with_default_env(self, **variables: str) -> "Image":
        """Return the image with the variables added, except variables that are already set."""
        return replace(self, env={**variables, **self.env})

    def with_secrets(self, *names: str) -> "Image":
        return replace(self, secrets=_merge_unique(self.secrets, names))

    def to_dict(self) -> dict[str, Any]:
        return {
            "python": self.python,
            "pip": list(self.pip),
            "indexes": [{"url": index.url, "packages": list(index.packages)} for index in self.indexes],
            "apt": list(self.apt),
            "env": dict(self.env),
            "secrets": list(self.secrets),
        }


def _merge_unique(present: tuple[T, ...], more: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*present, *more)))
