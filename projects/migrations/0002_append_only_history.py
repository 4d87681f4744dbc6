"""Make the history tables append-only, even for direct SQL."""

from django.db import migrations

FORBID = """
CREATE FUNCTION projects_history_forbid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER projects_event_append_only BEFORE UPDATE OR DELETE ON projects_event
    FOR EACH ROW EXECUTE FUNCTION projects_history_forbid();
CREATE TRIGGER projects_audit_append_only BEFORE UPDATE OR DELETE ON projects_audit
    FOR EACH ROW EXECUTE FUNCTION projects_history_forbid();
CREATE TRIGGER projects_quotachange_append_only BEFORE UPDATE OR DELETE ON projects_quotachange
    FOR EACH ROW EXECUTE FUNCTION projects_history_forbid();
"""
ALLOW = """
DROP TRIGGER projects_event_append_only ON projects_event;
DROP TRIGGER projects_audit_append_only ON projects_audit;
DROP TRIGGER projects_quotachange_append_only ON projects_quotachange;
DROP FUNCTION projects_history_forbid();
"""


class Migration(migrations.Migration):
    dependencies = [("projects", "0001_initial")]
    operations = [migrations.RunSQL(FORBID, ALLOW)]
