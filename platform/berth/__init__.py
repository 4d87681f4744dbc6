"""Berth's root package. Programs report metrics with `berth.report`.

This module must run on Python 3.9 and must not import other modules at load time, because every part of Berth
imports it.
"""

from __future__ import annotations


def report(step: int, **numbers: float) -> None:
    """Report the metrics of one step, for example `berth.report(100, loss=0.31)`.

    Values can be of any type that `float` accepts, such as a one-element tensor. The metrics are printed as
    one line, which Berth reads from the pod's log.
    """
    import json

    values = {name: float(number) for name, number in numbers.items()}
    print("berth-report", json.dumps({"step": int(step), **values}), flush=True)  # noqa: T201
