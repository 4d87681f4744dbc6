"""Here each cycle keeps what it saw and decided, whole, and says which engine decided."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0002_guards")]

    operations = [
        migrations.RemoveField("cycle", "scenario"),
        migrations.AddField(
            "cycle",
            "snapshot",
            models.BinaryField(
                help_text="What it saw and what it decided, all of it; zlib; kept for a while.", null=True
            ),
        ),
        migrations.AddField(
            "cycle",
            "engine",
            models.CharField(blank=True, default="", help_text="Which engine decided.", max_length=64),
            preserve_default=False,
        ),
    ]
