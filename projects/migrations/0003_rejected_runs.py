"""Rename the outcome `refused` of scheduled runs to `rejected`."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("projects", "0002_append_only_history")]

    operations = [
        migrations.RunSQL(
            "UPDATE projects_schedulerun SET outcome = 'rejected' WHERE outcome = 'refused'",
            "UPDATE projects_schedulerun SET outcome = 'refused' WHERE outcome = 'rejected'",
        ),
    ]
