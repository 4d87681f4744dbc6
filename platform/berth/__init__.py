"""Root package of Berth.

Every part of Berth imports this module. It must run on Python 3.9 and import nothing at load time.
"""

from __future__ import annotations


def report(step: int, **numbers: float) -> None:
    """Report the metrics of one step, for example `berth.report(100, loss=0.31)`.

    Values can be anything that `float` accepts, such as a one-element tensor.
    """
    import json

    values = {name: float(number) for name, number in numbers.items()}
    print("berth-report", json.dumps({"step": int(step), **values}), flush=True)  # noqa: T201
