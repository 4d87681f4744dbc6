"""Here we make room to remember what deleted workloads left on machines."""


import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('pools', '0004_node_times'),
        ('projects', '0002_append_only_history'),
    ]

    operations = [
        migrations.CreateModel(
            name='Leftover',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('pod', 'Pod'), ('workspace', 'Workspace')], max_length=10)),
                ('name', models.CharField(help_text='What the runtime of the pool knows it by.', max_length=64)),
                ('left_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('pool', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='pools.nodepool')),
            ],
            options={
                'ordering': ['id'],
                'constraints': [models.UniqueConstraint(fields=('pool', 'kind', 'name'), name='leftover_once')],
            },
        ),
    ]
