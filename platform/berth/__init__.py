"""Berth schedules GPU workloads with quotas. Programs in pods call `berth.report` to record metrics.

This module runs on Python 3.9 and imports no other module when loaded, because every part of Berth imports
it.
"""

from __future__ import annotations


def report(step: int, **numbers: float) -> None:
    """Record the metrics of one step, for example `berth.report(100, loss=0.31)`.

    The numbers may be of any type that `float` accepts, such as a tensor with one element. The function
    prints one line, which Berth reads from the pod's log. Outside of Berth, the function only prints the
    line.
    """
    import json

    values = {name: float(number) for name, number in numbers.items()}
    print("berth-report", json.dumps({"step": int(step), **values}), flush=True)  # noqa: T201
