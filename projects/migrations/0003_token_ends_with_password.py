"""Remember which tokens were created by sign-in: they end when the password changes."""

import re
from typing import Any

from django.db import migrations, models
from django.utils.crypto import salted_hmac

CREATED_BY_SIGN_IN = re.compile(r"login \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [0-9a-f]{8}")
SALT = "django.contrib.auth.models.AbstractBaseUser.get_session_auth_hash"


def mark(apps: Any, schema_editor: Any) -> None:
    tokens = apps.get_model("projects", "ApiToken").objects.select_related("user")
    for token in tokens.filter(name__startswith="login ", revoked_at__isnull=True):
        if CREATED_BY_SIGN_IN.fullmatch(token.name):
            token.session_hash = salted_hmac(SALT, token.user.password, algorithm="sha256").hexdigest()
            token.save(update_fields=["session_hash"])


class Migration(migrations.Migration):
    dependencies = [
        ("projects", "0002_append_only_history"),
    ]

    operations = [
        migrations.AddField(
            model_name="apitoken",
            name="session_hash",
            field=models.CharField(
                blank=True,
                default="",
                editable=False,
                help_text="Of a token created by sign-in: another one once the password was changed.",
                max_length=64,
            ),
        ),
        migrations.RunPython(mark, migrations.RunPython.noop),
    ]
