"""Form fields for a pool's plugins and environment."""

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from django import forms
from django.core.exceptions import ValidationError

from pools.models import NodePool
from pools.plugins.registry import available_plugins
from pools.web.document_fields import parse_yaml

SECRET = "secret"  # noqa: S105 - prefix of a field name
EXAMPLE = "- torch\n- mps: {thread_percentage: 50}"


class LinesField(forms.CharField):
    """Text area for a list. The value of the field contains the nonempty lines."""

    def __init__(self, **kwargs: Any) -> None:
        rows = kwargs.pop("rows", 3)
        example = kwargs.pop("example", "")
        attrs = {"rows": rows, "spellcheck": "false", "class": "mono", "placeholder": example}
        super().__init__(required=False, widget=forms.Textarea(attrs=attrs), **kwargs)

    def clean(self, value: Any) -> list[str]:
        return [line.strip() for line in super().clean(value).splitlines() if line.strip()]


class PluginsField(LinesField):
    """YAML list of plugins. Each entry is a name, or a name with parameters."""

    def clean(self, value: Any) -> Any:
        entries = parse_yaml(forms.CharField.clean(self, value)) or []
        if not isinstance(entries, list):
            raise ValidationError("This is not a list. Write one plugin per line, starting with a dash.")
        return [_parse_plugin(entry) for entry in entries]


class IndexesField(LinesField):
    """Package indexes, one per line. Each line has a URL, then `=` and the packages from that index."""

    def clean(self, value: Any) -> Any:
        return [_parse_index(line) for line in super().clean(value)]


class VariablesField(LinesField):
    def clean(self, value: Any) -> Any:
        variables = {}
        for line in super().clean(value):
            name, separator, text = line.partition("=")
            if not separator:
                raise ValidationError(f"{line} has no equals sign. Write NAME=value.")
            variables[name.strip()] = text
        return variables


def environment_fields() -> dict[str, forms.Field]:
    """Return the form fields in order, with a field for each plugin secret."""
    fields: dict[str, forms.Field] = {
        "plugins": PluginsField(
            label="Plugins", example=EXAMPLE,
            help_text=f"One per line, in order. Available: {', '.join(sorted(available_plugins()))}.",
        ),
    }  # fmt: skip
    for name, plugin in sorted(available_plugins().items()):
        for parameter, variable in plugin.secrets.items():
            fields[f"{SECRET}_{name}_{parameter}"] = forms.CharField(
                label=f"{parameter.capitalize()} for {name}", required=False, strip=True,
                widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
                help_text=f"Stored encrypted and passed to processes as {variable}.",
            )  # fmt: skip
    fields |= {
        "python": forms.CharField(
            label="Python",
            max_length=10,
            required=False,
            help_text="For example 3.12. Defaults to the machine's Python.",
        ),
        "pip": LinesField(
            label="Python packages", example="numpy>=2", help_text="Requirements, one per line."
        ),
        "indexes": IndexesField(
            label="Package indexes",
            rows=2,
            example="https://example.org/simple = torch, torchvision",
            help_text="One per line: URL = packages. An index without packages serves all other packages.",
        ),
        "apt": LinesField(label="Debian packages", rows=2, help_text="One per line."),
        "env": VariablesField(
            label="Environment variables",
            rows=2,
            example="NAME=value",
            help_text="Environment variables of every process in the pool. Do not put secrets here.",
        ),
    }
    return fields


def environment_values(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """Return the form's values in the services' format.

    An empty secret field leaves the secret unchanged.
    """
    plugins = [dict(entry) if isinstance(entry, dict) else entry for entry in cleaned["plugins"]]
    for entry in plugins:
        if not isinstance(entry, dict) or entry.get("name") not in available_plugins():
            continue
        for parameter in available_plugins()[entry["name"]].secrets:
            if secret := cleaned[f"{SECRET}_{entry['name']}_{parameter}"]:
                entry["parameters"] = {**entry["parameters"], parameter: secret}
    names = ("python", "pip", "indexes", "apt", "env")
    return {"plugins": plugins, "environment": {name: cleaned[name] for name in names}}


def initial_values(pool: NodePool) -> dict[str, Any]:
    declared = [
        {entry["name"]: entry["parameters"]} if entry["parameters"] else entry["name"]
        for entry in pool.plugins
    ]
    environment = pool.environment
    return {
        "plugins": "\n".join(f"- {_format_plugin(entry)}" for entry in declared),
        "python": environment.get("python", ""),
        "pip": "\n".join(environment.get("pip", ())),
        "indexes": "\n".join(_format_index(index) for index in environment.get("indexes", ())),
        "apt": "\n".join(environment.get("apt", ())),
        "env": "\n".join(f"{name}={value}" for name, value in environment.get("env", {}).items()),
    }


def secret_help_texts(pool: NodePool) -> Iterable[tuple[str, str]]:
    """Yield each stored secret's field name, and a help text that says when the secret was set."""
    for entry in pool.plugins:
        for parameter, at in entry.get("secrets_set", {}).items():
            yield (
                f"{SECRET}_{entry['name']}_{parameter}",
                f"Set on {at[:10]}. Leave empty to keep the secret.",
            )


def _format_plugin(entry: str | Mapping[str, Any]) -> str:
    if isinstance(entry, str):
        return entry
    ((name, parameters),) = entry.items()
    return f"{name}: {yaml.safe_dump(parameters, default_flow_style=True, width=10_000).strip()}"


def _parse_plugin(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"name": entry, "parameters": {}}
    if isinstance(entry, dict) and len(entry) == 1 and "name" not in entry:
        ((name, parameters),) = entry.items()
        return {"name": str(name), "parameters": {} if parameters is None else parameters}
    return entry


def _parse_index(line: str) -> dict[str, Any]:
    url, separator, names = line.rpartition(" =")
    return {
        "url": (url if separator else line).strip(),
        "packages": [name.strip() for name in names.split(",") if name.strip()] if separator else [],
    }


def _format_index(index: Mapping[str, Any]) -> str:
    return index["url"] + (f" = {', '.join(index['packages'])}" if index.get("packages") else "")
