#!/usr/bin/env python
"""Django's command-line entry point."""

import os
import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parent / "platform"))


def main() -> None:
    from django.core.management import execute_from_command_line

    import berth.server  # noqa: F401 (exits if this Python is too old)
    from berth.db.embedded.cluster import running_database

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "berth.server.settings")
    with running_database(needed="DATABASE_URL" not in os.environ and len(sys.argv) > 1):
        execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
