"""Admin filter for a time range in the reader's time zone."""

from datetime import datetime, time
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from unfold.contrib.filters.admin import RangeDateTimeFilter


class TimeRangeFilter(RangeDateTimeFilter):
    """Filter for a time range in the reader's time zone, with optional times of day.

    Unfold's own filter supports neither.
    """

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since, until = self._parse_end("from", time.min), self._parse_end("to", time.max)
        if since is not None:
            queryset = queryset.filter(**{f"{self.parameter_name}__gte": since})
        if until is not None:
            queryset = queryset.filter(**{f"{self.parameter_name}__lte": until})
        return queryset

    def _parse_end(self, end: str, default_time: time) -> datetime | None:
        """Return one end of the range, or None if its date is missing or invalid."""
        inputs = [self.used_parameters.get(f"{self.parameter_name}_{end}_{part}") or "" for part in (0, 1)]
        try:
            day, hour = parse_date(inputs[0]), parse_time(inputs[1])
        except ValueError:
            return None
        return None if day is None else timezone.make_aware(datetime.combine(day, hour or default_time))
