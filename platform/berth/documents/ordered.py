"""Write a parsed document in the usual key order."""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from berth.core.spec import GroupSpec, RoleSpec, WorkloadSpec

PARTS: Mapping[str, type[BaseModel]] = {"roles": RoleSpec, "groups": GroupSpec}


def dump_workload(document: Mapping[str, Any]) -> str:
    ordered = _order_keys(dict(document), WorkloadSpec)
    array = ordered.get("array")
    if isinstance(array, dict) and isinstance(array.get("matrix"), dict):
        matrix = {
            name: _Inline(values) if isinstance(values, list) else values
            for name, values in array["matrix"].items()
        }
        ordered["array"] = {**array, "matrix": matrix}
    return str(yaml.dump(ordered, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))


class _Inline(list[Any]):
    """List that is written in brackets, such as the values of a variable in an array's matrix."""


class _Dumper(yaml.SafeDumper):
    """YAML dumper that writes `_Inline` lists in brackets, and multi-line text as a block."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)
_Dumper.add_representer(
    _Inline,
    lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True),
)


def _order_keys(value: Any, model: type[BaseModel]) -> Any:
    """Sort keys in schema order, which JSONB does not preserve."""
    if not isinstance(value, dict):
        return value
    ordered = [key for key in model.model_fields if key in value]
    return {
        key: [_order_keys(child, PARTS[key]) for child in value[key]]
        if key in PARTS and isinstance(value[key], list)
        else value[key]
        for key in [*ordered, *(key for key in value if key not in ordered)]
    }
