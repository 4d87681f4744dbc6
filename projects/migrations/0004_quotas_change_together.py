"""Here quotas that were changed together are kept together."""

import django.db.models.functions.datetime
from django.db import migrations, models


FORBID = """
CREATE TRIGGER projects_quotachange_append_only BEFORE UPDATE OR DELETE ON projects_quotachange
    FOR EACH ROW EXECUTE FUNCTION projects_history_forbid();
"""
ALLOW = "DROP TRIGGER projects_quotachange_append_only ON projects_quotachange;"


class Migration(migrations.Migration):

    dependencies = [
        ('projects', '0003_leftovers'),
    ]

    operations = [
        migrations.CreateModel(
            name='QuotaChange',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), editable=False)),
                ('actor', models.CharField(max_length=150)),
                ('note', models.CharField(blank=True, help_text='What the person said it was for.', max_length=500)),
                ('undoes', models.BigIntegerField(help_text='The change that this one took back.', null=True)),
                ('written', models.JSONField(help_text="Each quota whole, before and after; amounts in documents' units.")),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='audit',
            name='change_id',
            field=models.BigIntegerField(help_text='Of quotas: what was changed together.', null=True),
        ),
        migrations.AddIndex(
            model_name='audit',
            index=models.Index(condition=models.Q(('change_id__isnull', False)), fields=['change_id'], name='audit_of_change'),
        ),
        migrations.AddIndex(
            model_name='quotachange',
            index=models.Index(condition=models.Q(('undoes__isnull', False)), fields=['undoes'], name='change_undone_by'),
        ),
        migrations.RunSQL(FORBID, ALLOW),
    ]
