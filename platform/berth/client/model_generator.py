"""Generate the client's models from the server's OpenAPI document.

A class goes to the module from which `aio` or `sessions` imports it. Most fields have defaults, because older
servers do not send newer fields.
"""

import ast
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from berth.client.models import mixins

FOLDER = Path(__file__).parent
HAND_WRITTEN = ("__init__.py", "base.py", "mixins.py")
PACKAGE = "berth.client.models."
TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
FORMATS = {"date-time": "datetime", "decimal": "Decimal"}
DEFAULTS = {"str": '""', "int": "0", "float": "0", "bool": "False", "Any": "None", "list": "[]", "dict": "{}"}
REQUIRED = ("id", "name")
DOCSTRING_WIDTH = 103
Schema = dict[str, Any]


def generate_sources() -> dict[str, str]:
    """Return the unformatted source of each generated module, keyed by file name."""
    imported = imported_models()
    models = Models(read_components(), imported)
    for name, topic in imported.items():
        models.add(name, topic)
    return {f"{topic}.py": models.module(topic) for topic in sorted(set(models.topics.values()))}


def read_components() -> dict[str, Schema]:
    """Return the schemas of the OpenAPI document."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path), "DJANGO_SETTINGS_MODULE": "berth.server.settings"}
    command = [sys.executable, "-m", "django", "spectacular", "--format", "openapi-json"]
    document = subprocess.run(command, env={**os.environ, **paths}, stdout=subprocess.PIPE, check=True).stdout
    components: dict[str, Schema] = json.loads(document)["components"]["schemas"]
    return components


def imported_models() -> dict[str, str]:
    """Return the topic of each generated class that the client imports, sorted by topic and class name."""
    nodes = [
        node
        for file in (*FOLDER.glob("aio/**/*.py"), *FOLDER.glob("sessions/*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
    ]
    names = {(str(node.module).removeprefix(PACKAGE), alias.name) for node in nodes for alias in node.names}
    return {name: topic for topic, name in sorted(names) if f"{topic}.py" not in HAND_WRITTEN}


class Models:
    """Generated classes. Each class is listed after the classes that it refers to."""

    def __init__(self, components: dict[str, Schema], imported: dict[str, str]) -> None:
        self.topics: dict[str, str] = {}
        self._components, self._imported = components, imported

    def add(self, name: str, topic: str) -> None:
        """Add a class, after the classes that it refers to.

        A class to which several topics refer belongs to the first of them.
        """
        if name not in self.topics:
            for reference in self._references(self._schema(name)):
                self.add(reference, self._imported.get(reference, topic))
            self.topics[name] = topic

    def module(self, topic: str) -> str:
        names = [name for name in self.topics if self.topics[name] == topic]
        references = {each for name in names for each in self._references(self._schema(name))}
        imports = [
            f"from {PACKAGE}{self.topics[each]} import {each}" for each in references.difference(names)
        ]
        imports += [f"from {PACKAGE}mixins import {name}Mixin" for name in names if _has_mixin(name)]
        return "\n".join(
            [
                f'"""Response models for {topic.replace("_", " ").replace("ssh", "SSH")}."""',
                "from datetime import datetime",
                "from decimal import Decimal",
                "from typing import Any",
                "from pydantic import Field",
                f"from {PACKAGE}base import Model",
                *sorted(imports),
                *(line for name in names for line in self._class(name)),
            ]
        )

    def _schema(self, name: str) -> Schema:
        """Return the schema of a class. In the OpenAPI document, its name may end in `Response`."""
        return self._components.get(f"{name}Response") or self._components[name]

    def _references(self, schema: Any) -> list[str]:
        """Return the names of the classes that a schema refers to, in order of first reference."""
        if isinstance(schema, list):
            return [each for item in schema for each in self._references(item)]
        if not isinstance(schema, dict):
            return []
        parent = [_class_name(schema["x-extends"])] if "x-extends" in schema else []
        if "$ref" in schema:
            is_object = "properties" in self._referenced_schema(schema)
            return [_class_name(schema["$ref"])] if is_object else []
        return parent + self._references(list(schema.values()))

    def _referenced_schema(self, schema: Schema) -> Schema:
        return self._components[schema["$ref"].rpartition("/")[2]]

    def _class(self, name: str) -> Iterator[str]:
        schema = self._schema(name)
        parent = _class_name(schema["x-extends"]) if "x-extends" in schema else "Model"
        yield f"class {name}({f'{name}Mixin, ' if _has_mixin(name) else ''}{parent}):"
        yield from _docstring(schema)
        for field, type_, declared in self._fields(name):
            default = self._field_default(field, type_)
            yield f"    {field}: {type_}{f' = {default}' if default else ''}"
            yield from _docstring(declared)

    def _fields(self, name: str) -> list[tuple[str, str, Schema]]:
        """Return the name, type and schema of each field that is not inherited."""
        schema = self._schema(name)
        inherited = self._components[schema["x-extends"]]["properties"] if "x-extends" in schema else {}
        return [
            (field, self._type(declared), declared)
            for field, declared in schema["properties"].items()
            if field not in inherited
        ]

    def _type(self, schema: Schema) -> str:
        """Return the Python type as source code.

        Enumerations become `str`, because newer servers may add members.
        """
        if "$ref" in schema:
            target = self._referenced_schema(schema)
            return _class_name(schema["$ref"]) if "properties" in target else self._type(target)
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(map(self._type, schema["anyOf"])))
        if schema.get("type") == "array":
            return f"list[{self._type(schema['items'])}]"
        if schema.get("type") == "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {self._type(values) if isinstance(values, dict) else 'Any'}]"
        if schema.get("format") in FORMATS:
            return FORMATS[schema["format"]]
        return TYPES.get(schema.get("type", ""), "Any")

    def _field_default(self, field: str, type_: str) -> str:
        """Return the default as source code, or "" for a required field."""
        if type_.endswith("| None"):
            return "None"
        first = re.split(r"[\[ ]", type_)[0]
        if first in self.topics:
            fields = self._schema(first)["properties"].items()
            has_defaults = all(self._field_default(name, self._type(declared)) for name, declared in fields)
            return f"Field(default_factory={first})" if has_defaults else ""
        return "" if field in REQUIRED else DEFAULTS.get(first, "")


def _class_name(reference: str) -> str:
    return reference.rpartition("/")[2].removesuffix("Response")


def _has_mixin(name: str) -> bool:
    return hasattr(mixins, f"{name}Mixin")


def _docstring(schema: Schema) -> list[str]:
    text = re.sub(r"\b[Nn]ull\b", "None", schema.get("description", ""))
    lines = textwrap.wrap(f'"""{text}', DOCSTRING_WIDTH) if text else []
    return [f"    {line}" for line in (*lines[:-1], f'{lines[-1]}"""')] if lines else []
