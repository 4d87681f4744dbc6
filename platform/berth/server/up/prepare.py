"""Migrate the database and create the first admin.

A process of its own, so that the supervisor never loads Django.
"""

import argparse
import secrets
from pathlib import Path

import django

ADMIN = "admin"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m berth.server.up.prepare")
    parser.add_argument("--demo", action="store_true")
    asked = parser.parse_args()
    django.setup()

    from django.conf import settings
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)
    have_an_admin(password_file(settings.BERTH_HOME))
    if asked.demo:
        call_command("demo", verbosity=0)


def password_file(home: Path) -> Path:
    return home / "admin-password"


def have_an_admin(kept: Path) -> None:
    """The first start makes one, with a password that only this machine's owner can read.

    Once it was changed, the file is of no use any more and goes.
    """
    from django.contrib.auth.models import User

    admin = User.objects.filter(is_superuser=True, username=ADMIN).first()
    if admin is not None:
        if kept.exists() and not admin.check_password(kept.read_text().strip()):
            kept.unlink()
    elif not User.objects.filter(is_superuser=True).exists():
        password = secrets.token_urlsafe(12)
        kept.unlink(missing_ok=True)
        kept.touch(mode=0o600)
        kept.write_text(password + "\n")
        User.objects.create_superuser(ADMIN, password=password)


if __name__ == "__main__":
    main()
