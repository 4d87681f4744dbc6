"""Here rows that change every few seconds get room beside them, so that a change stays on their page."""

from django.db import migrations

TABLES = ("scheduler_usepoint", "scheduler_poduse", "scheduler_nodeuse")


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0002_guards")]

    operations = [
        migrations.RunSQL(
            [f"ALTER TABLE {table} SET (fillfactor = 60)" for table in TABLES],
            [f"ALTER TABLE {table} RESET (fillfactor)" for table in TABLES],
        )
    ]
