"""Here a pool learns to count what came of its orders."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pools', '0006_machines'),
    ]

    operations = [
        migrations.AddField(
            model_name='nodepool',
            name='provision_outcomes',
            field=models.JSONField(blank=True, default=dict, editable=False),
        ),
    ]
