"""Migrate the database and create the first admin.

A separate process does this, so that the supervisor never loads Django.
"""

import argparse
import secrets
import sys
from pathlib import Path

import django

from berth.server.up.errors import UNUSABLE_DATABASE

ADMIN = "admin"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m berth.server.up.prepare")
    parser.add_argument("--demo", action="store_true")
    options = parser.parse_args()
    django.setup()

    from django.conf import settings
    from django.core.management import call_command

    from berth.db.management.commands.migrate import UnusableDatabaseError

    try:
        call_command("migrate", verbosity=0, interactive=False)
    except UnusableDatabaseError as error:
        print(error, file=sys.stderr)
        sys.exit(UNUSABLE_DATABASE)
    ensure_admin(password_file(settings.BERTH_HOME))
    if options.demo:
        call_command("demo", verbosity=0)


def password_file(home: Path) -> Path:
    return home / "admin-password"


def ensure_admin(file: Path) -> None:
    """Create the first admin, and store the password in a file that only its owner can read.

    Once the password has been changed, the file is deleted.
    """
    from django.contrib.auth.models import User

    admin = User.objects.filter(is_superuser=True, username=ADMIN).first()
    if admin is not None:
        if file.exists() and not admin.check_password(file.read_text().strip()):
            file.unlink()
    elif not User.objects.filter(is_superuser=True).exists():
        password = secrets.token_urlsafe(12)
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        file.write_text(password + "\n")
        User.objects.create_superuser(ADMIN, password=password)


if __name__ == "__main__":
    main()
