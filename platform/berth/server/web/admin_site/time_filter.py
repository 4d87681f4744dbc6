"""Admin filter for a time range in the reader's time zone."""

from datetime import datetime, time
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_time
from unfold.contrib.filters.admin import RangeDateTimeFilter


class TimesBetween(RangeDateTimeFilter):
    """Time range in the reader's zone, with optional hours. Unfold's filter supports neither."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        since, until = self._moment("from", time.min), self._moment("to", time.max)
        if since is not None:
            queryset = queryset.filter(**{f"{self.parameter_name}__gte": since})
        if until is not None:
            queryset = queryset.filter(**{f"{self.parameter_name}__lte": until})
        return queryset

    def _moment(self, end: str, usual: time) -> datetime | None:
        """Return one end of the range, or None if the day is invalid. The field still shows the input."""
        typed = [self.used_parameters.get(f"{self.parameter_name}_{end}_{part}") or "" for part in (0, 1)]
        try:
            day, hour = parse_date(typed[0]), parse_time(typed[1])
        except ValueError:
            return None
        return None if day is None else timezone.make_aware(datetime.combine(day, hour or usual))
