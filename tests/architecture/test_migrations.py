"""Test that models and migrations agree."""

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_migrations_match_the_models() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=1)
