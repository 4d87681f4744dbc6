"""Base class for models of server responses. Unknown fields from newer servers are kept."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Object returned by the server."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that the server sent, as JSON values."""
        return self.model_dump(mode="json", exclude_unset=True)
