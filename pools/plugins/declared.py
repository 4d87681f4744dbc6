"""Parse the plugins in a pool's settings, and extract their secrets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from berth.core.problems import Problem, format_value, suggest
from pools.plugins.base import Plugin
from pools.plugins.errors import PluginError
from pools.plugins.image import Image, Index
from pools.plugins.parameters import parameter_problems
from pools.plugins.registry import SECRET_PLACEHOLDER, available_plugins, unavailable_plugins

PLUGINS_MAX = 32
KEYS = ("name", "parameters", "secrets_set")  # `secrets_set` appears in responses and is ignored in requests


@dataclass(frozen=True)
class DeclaredPlugin:
    """Plugin in a pool's settings, with the secrets to store. A secret that is None is deleted."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str | None] = field(default_factory=dict)

    def secret_variable(self, parameter: str) -> str:
        return available_plugins()[self.name].secrets[parameter]

    def build_plugin(self, secrets_set: Sequence[str]) -> Plugin:
        """Build the plugin with placeholders instead of its secrets."""
        return available_plugins()[self.name].build_plugin(
            {**self.parameters, **dict.fromkeys(secrets_set, SECRET_PLACEHOLDER)}
        )


def parse_plugins(value: object) -> tuple[tuple[DeclaredPlugin, ...], tuple[Problem, ...]]:
    """Parse a list of plugins. Return the plugins and any problems. An entry may be just a name."""
    if not isinstance(value, list | tuple):
        return (), (
            Problem(
                "", "is not a list", format_value(value), "plugin names, or entries with name and parameters"
            ),
        )
    if len(value) > PLUGINS_MAX:
        return (), (Problem("", "has too many entries", str(len(value)), f"at most {PLUGINS_MAX}"),)
    plugins: list[DeclaredPlugin] = []
    problems: list[Problem] = []
    for index, entry in enumerate(value):
        entry = {"name": entry} if isinstance(entry, str) else entry  # noqa: PLW2901
        entry_problems = list(_entry_problems(entry, f"[{index}]", [earlier.name for earlier in plugins]))
        problems += entry_problems
        if not entry_problems:
            plugins.append(_parse_entry(entry))
    return tuple(plugins), tuple(problems)


def build_image(environment: Mapping[str, Any]) -> Image:
    """Return the `Image` for a pool's validated environment."""
    indexes = tuple(
        Index(entry["url"], tuple(entry.get("packages", ()))) for entry in environment.get("indexes", ())
    )
    return Image(**{**environment, "indexes": indexes})


def _entry_problems(entry: Any, path: str, earlier_names: Sequence[str]) -> Iterator[Problem]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        yield Problem(path, "has no name", allowed="a plugin's name, or name and parameters")
        return
    for key in sorted(set(map(str, entry)) - set(KEYS)):
        yield Problem(f"{path}.{key}", "unknown key", allowed="name, parameters")
    name = entry["name"]
    if name not in available_plugins():
        reason = unavailable_plugins().get(name)
        message = f"is not available: {reason}" if reason else "is not an installed plugin"
        yield Problem(f"{path}.name", message, format_value(name), suggest(name, sorted(available_plugins())))
    elif name in earlier_names:
        yield Problem(f"{path}.name", "is listed twice", format_value(name), "each plugin once")
    else:
        yield from _parameter_problems(name, entry.get("parameters", {}), f"{path}.parameters")


def _parameter_problems(name: str, values: Any, path: str) -> Iterator[Problem]:
    plugin = available_plugins()[name]
    if isinstance(values, Mapping):  # a secret may be null, which deletes the stored secret
        values = {
            key: value for key, value in values.items() if key not in plugin.secrets or value is not None
        }
    problems = list(parameter_problems(plugin.schema, values, path))
    yield from problems
    if not problems:
        try:
            plugin.build_plugin(
                {key: SECRET_PLACEHOLDER if key in plugin.secrets else value for key, value in values.items()}
            )
        except PluginError as error:
            yield Problem(path, str(error))


def _parse_entry(entry: Mapping[str, Any]) -> DeclaredPlugin:
    parameters = entry.get("parameters", {})
    secret = available_plugins()[entry["name"]].secrets
    return DeclaredPlugin(
        entry["name"],
        {key: value for key, value in parameters.items() if key not in secret},
        {key: value or None for key, value in parameters.items() if key in secret},
    )
