"""Write a parsed document in the usual key order."""

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from berth.core.spec import GroupSpec, RoleSpec, WorkloadSpec

PARTS: Mapping[str, type[BaseModel]] = {"roles": RoleSpec, "groups": GroupSpec}


def dump_workload(document: Mapping[str, Any]) -> str:
    ordered = _in_order(dict(document), WorkloadSpec)
    return yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=100)


def _in_order(value: Any, model: type[BaseModel]) -> Any:
    """Return the value with its keys in schema order, because JSONB does not preserve key order."""
    if not isinstance(value, dict):
        return value
    ordered = [key for key in model.model_fields if key in value]
    return {
        key: [_in_order(child, PARTS[key]) for child in value[key]]
        if key in PARTS and isinstance(value[key], list)
        else value[key]
        for key in [*ordered, *(key for key in value if key not in ordered)]
    }
