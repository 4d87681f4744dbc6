"""Base class of the objects that the server returns; unknown fields of newer servers are kept."""

from typing import Any

from pydantic import BaseModel, ConfigDict

Numbers = dict[str, Any]


class Model(BaseModel):
    """Something the server said."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    def plain(self) -> dict[str, Any]:
        """As the server said it, nothing added: for JSON and YAML."""
        return self.model_dump(mode="json", exclude_unset=True)


class Amounts(Model):
    """Devices, cores, MiB; None is unlimited."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None
