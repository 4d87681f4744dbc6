"""Here workloads get room for what they waited for."""
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("projects", "0002_append_only_history")]

    operations = [
        migrations.AddField(
            "workload",
            "wait_reasons",
            models.JSONField(
                blank=True, default=list, editable=False,
                help_text="The leading reasons for which it waited, one after another: reason, since, until.",
            ),
        )
    ]
