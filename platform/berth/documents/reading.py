"""YAML loader for documents: the C loader, if it is available."""

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from yaml import SafeLoader
else:
    SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

__all__ = ["SafeLoader"]
