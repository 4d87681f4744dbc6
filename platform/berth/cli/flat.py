"""Flatten an answer into CSV: one row per item, one column per value."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(data: object) -> str:
    """A list has a row for each item, an object one row; what lies deeper is named `outer.inner`."""
    rows = [dict(_flat(item)) for item in (data if isinstance(data, list) else [data])]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not columns:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(item: Any, before: str = "") -> Iterator[tuple[str, str]]:
    if not isinstance(item, Mapping):
        yield before.rstrip(".") or "value", _cell(item)
        return
    for key, value in item.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _cell(value)


def _cell(value: Any) -> str:
    """A list of plain values is one cell; a spreadsheet must not take a name for a formula."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "; ".join(_listed(entry) for entry in value)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA) else text


def _listed(entry: Any) -> str:
    if isinstance(entry, Mapping):
        return " ".join(f"{key}={_cell(value)}" for key, value in entry.items())
    return _cell(entry)
