"""Here is the one YAML reader of documents: the quick one where it was built."""

from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from yaml import SafeLoader
else:
    SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

__all__ = ["SafeLoader"]
