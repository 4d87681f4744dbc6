"""SQL expression that ends the current pending reason."""

from datetime import datetime

from django.db.models import JSONField
from django.db.models.expressions import RawSQL

CLOSE_LAST_REASON = """
    CASE WHEN wait_reasons #>> '{-1,until}' IS NULL
         THEN jsonb_set(wait_reasons, '{-1,until}', to_jsonb(%s::timestamptz))
         ELSE wait_reasons END
"""


def close_last_reason(now: datetime) -> RawSQL:
    """Return an expression that closes the last pending reason in `wait_reasons`, if it is open."""
    return RawSQL(CLOSE_LAST_REASON, (now,), output_field=JSONField())  # noqa: S611 (the SQL is constant)
