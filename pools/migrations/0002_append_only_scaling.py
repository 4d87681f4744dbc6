"""Make the scaling history append-only, even for direct SQL."""

from django.db import migrations

FORBID = """
CREATE FUNCTION pools_scalingevent_forbid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the scaling history is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER pools_scalingevent_append_only BEFORE UPDATE OR DELETE ON pools_scalingevent
    FOR EACH ROW EXECUTE FUNCTION pools_scalingevent_forbid();
"""
ALLOW = """
DROP TRIGGER pools_scalingevent_append_only ON pools_scalingevent;
DROP FUNCTION pools_scalingevent_forbid();
"""


class Migration(migrations.Migration):
    dependencies = [("pools", "0001_initial")]
    operations = [migrations.RunSQL(FORBID, ALLOW)]
