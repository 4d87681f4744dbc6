"""Read the plugins that a pool declares, with secrets separated."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth.core.problems import Problem, shown, suggestion
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError
from pools.plugins.image import Image, Index
from pools.plugins.parameters import problems_of
from pools.plugins.registry import SECRET_PLACEHOLDER, available, unavailable

MOST = 32
KEYS = ("name", "parameters", "secrets_set")  # the last is what we say of them; given back, it is passed over


@dataclass(frozen=True)
class Declared:
    """One plugin of a pool. `secrets` are those given now; None is one to forget."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str | None] = field(default_factory=dict)

    def variable_of(self, parameter: str) -> str:
        return available()[self.name].secrets[parameter]

    def plugin(self, secrets_set: Sequence[str]) -> Plugin:
        """It is only told which secrets there are."""
        return available()[self.name].build(
            {**self.parameters, **dict.fromkeys(secrets_set, SECRET_PLACEHOLDER)}
        )


def read_declared(given: object) -> tuple[tuple[Declared, ...], tuple[Problem, ...]]:
    """What people wrote; a plugin without parameters may be just its name."""
    if not isinstance(given, list | tuple):
        return (), (Problem("", "is not a list", shown(given), "names, or name and parameters"),)
    if len(given) > MOST:
        return (), (Problem("", "has too many entries", str(len(given)), f"at most {MOST}"),)
    found: list[Declared] = []
    problems: list[Problem] = []
    for index, entry in enumerate(given):
        entry = {"name": entry} if isinstance(entry, str) else entry  # noqa: PLW2901
        wrong = list(_problems(entry, f"[{index}]", [each.name for each in found]))
        problems += wrong
        if not wrong:
            found.append(_declared(entry))
    return tuple(found), tuple(problems)


def image_of(environment: Mapping[str, Any]) -> Image:
    """What a pool declares by itself; it has been checked."""
    indexes = tuple(
        Index(each["url"], tuple(each.get("packages", ()))) for each in environment.get("indexes", ())
    )
    return Image(**{**environment, "indexes": indexes})


def _problems(entry: Any, path: str, before: Sequence[str]) -> Iterator[Problem]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        yield Problem(path, "has no name", allowed="a plugin's name, or name and parameters")
        return
    for key in sorted(set(map(str, entry)) - set(KEYS)):
        yield Problem(f"{path}.{key}", "is not known", allowed="name, parameters")
    name = entry["name"]
    if name not in available():
        why = unavailable().get(name)
        told = f"is not available: {why}" if why else "is not an installed plugin"
        yield Problem(f"{path}.name", told, shown(name), suggestion(name, sorted(available())))
    elif name in before:
        yield Problem(f"{path}.name", "is listed twice", shown(name), "each plugin once")
    else:
        yield from _parameter_problems(name, entry.get("parameters", {}), f"{path}.parameters")


def _parameter_problems(name: str, given: Any, path: str) -> Iterator[Problem]:
    plugin = available()[name]
    if isinstance(given, Mapping):  # a secret may be null: forget it
        given = {key: value for key, value in given.items() if key not in plugin.secrets or value is not None}
    found = list(problems_of(plugin.schema, given, path))
    yield from found
    if not found:
        try:
            plugin.build(
                {key: SECRET_PLACEHOLDER if key in plugin.secrets else value for key, value in given.items()}
            )
        except PluginError as error:
            yield Problem(path, str(error))


def _declared(entry: Mapping[str, Any]) -> Declared:
    given = entry.get("parameters", {})
    secret = available()[entry["name"]].secrets
    return Declared(
        entry["name"],
        {key: value for key, value in given.items() if key not in secret},
        {key: value or None for key, value in given.items() if key in secret},
    )
