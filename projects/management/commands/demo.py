"""Seed an empty installation with the demo organization."""

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from berth.home import home
from pools.providers.hardware import detect_local_machine
from projects.services import demo


class Command(BaseCommand):
    help = "Seed the demo organization unless departments or node pools already exist."

    def handle(self, *args: Any, **options: Any) -> None:
        if not demo.is_database_empty():
            self.stdout.write("Departments or node pools already exist: nothing was seeded.")
            return
        file = write_passwords(demo.seed_demo(detect_local_machine(settings.BERTH_DECLARED_GPUS)))
        self.stdout.write(f"The demo organization was created. The passwords of its users are in {file}.")


def write_passwords(passwords: demo.Passwords) -> Path:
    """Write the passwords to a file that only its owner can read, and return its path."""
    path = home() / "demo-passwords"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{name} {password}\n" for name, password in passwords.items())
    return path
