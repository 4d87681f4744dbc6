"""Responses to requests with an idempotency key, stored by the statement that makes the change."""

from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

TABLE = "berth_api_storedresponse"
UNIQUE_KEY = "stored_response_per_user_and_key"  # violated if a concurrent request has stored the same key


@dataclass(frozen=True, slots=True)
class ResponseRow:
    """Stored response as a row of `TABLE`."""

    user_id: int
    key: str
    fingerprint: str
    status: int
    headers: dict[str, str]
    body: bytes
    created_at: datetime

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON values for `json_populate_recordset`."""
        return {**asdict(self), "body": f"\\x{self.body.hex()}"}


COLUMNS = tuple(field.name for field in fields(ResponseRow))
