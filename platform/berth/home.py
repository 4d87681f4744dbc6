"""Locate the state directory of this installation."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parents[1]


def home() -> Path:
    """Return BERTH_HOME if set, `.berth` in a checkout, or `berth` in the user's data directory."""
    if value := os.environ.get("BERTH_HOME"):
        return Path(value).expanduser().absolute()
    if is_checkout():
        return CHECKOUT / ".berth"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "berth"


def is_checkout() -> bool:
    return (CHECKOUT / "manage.py").is_file() and (CHECKOUT / "pyproject.toml").is_file()
