"""Leave free space in the pages of tables that change every few seconds, so that updated rows stay there."""

from django.db import migrations

TABLES = ("scheduler_utilizationpoint", "scheduler_podutilization", "scheduler_nodeutilization")


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0002_guards")]

    operations = [
        migrations.RunSQL(
            [f"ALTER TABLE {table} SET (fillfactor = 60)" for table in TABLES],
            [f"ALTER TABLE {table} RESET (fillfactor)" for table in TABLES],
        )
    ]
