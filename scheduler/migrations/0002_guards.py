"""Triggers that prevent overallocated devices and nodes, and changes to the eviction history.

The triggers lock the node's row, so that two writers cannot both allocate the last free resources. A statement
that inserts many allocations checks each node only once.

The last trigger marks a pod as changed if its devices change, see scheduler/loop/observe/mirror.py.
"""

from django.db import migrations

FORBID = """
CREATE FUNCTION scheduler_eviction_forbid() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the eviction history is append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER scheduler_eviction_append_only BEFORE UPDATE OR DELETE ON scheduler_eviction
    FOR EACH ROW EXECUTE FUNCTION scheduler_eviction_forbid();

CREATE FUNCTION scheduler_claim_fits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    place pools_node%ROWTYPE;
    held bigint;
BEGIN
    SELECT * INTO place FROM pools_node WHERE id = NEW.node_id FOR UPDATE;
    IF NEW.device >= place.gpus THEN
        RAISE EXCEPTION 'node % has no device %', place.name, NEW.device USING ERRCODE = 'check_violation';
    END IF;
    SELECT coalesce(sum(milli), 0) INTO held FROM scheduler_deviceclaim
        WHERE node_id = NEW.node_id AND device = NEW.device;
    IF held > 1000 THEN
        RAISE EXCEPTION 'device % of node % would have % thousandths allocated', NEW.device, place.name, held
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER scheduler_claim_fits AFTER INSERT OR UPDATE ON scheduler_deviceclaim
    FOR EACH ROW EXECUTE FUNCTION scheduler_claim_fits();

CREATE FUNCTION scheduler_require_node_fits(node bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    place pools_node%ROWTYPE;
    load_limit bigint;
    cpu bigint;
    memory bigint;
    pods bigint;
BEGIN
    SELECT * INTO place FROM pools_node WHERE id = node FOR UPDATE;
    SELECT cpu_load_limit INTO load_limit FROM pools_nodepool WHERE id = place.pool_id;
    SELECT coalesce(sum(cpu_milli), 0), coalesce(sum(memory_mib), 0), count(*) INTO cpu, memory, pods
        FROM scheduler_allocation WHERE node_id = node AND released_at IS NULL;
    IF cpu * 1000 > place.cpu_milli::bigint * load_limit THEN
        RAISE EXCEPTION 'node % would allocate % of its % milli-CPU', place.name, cpu, place.cpu_milli
            USING ERRCODE = 'check_violation';
    END IF;
    IF memory > place.memory_mib THEN
        RAISE EXCEPTION 'node % would allocate % of its % MiB', place.name, memory, place.memory_mib
            USING ERRCODE = 'check_violation';
    END IF;
    IF pods > place.max_pods THEN
        RAISE EXCEPTION 'node % would run % pods, but its maximum is %', place.name, pods, place.max_pods
            USING ERRCODE = 'check_violation';
    END IF;
END $$;

CREATE FUNCTION scheduler_allocations_fit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM scheduler_require_node_fits(node_id)
       FROM (SELECT DISTINCT node_id FROM added WHERE released_at IS NULL ORDER BY node_id) AS nodes;
    RETURN NULL;
END $$;
CREATE TRIGGER scheduler_allocations_added AFTER INSERT ON scheduler_allocation REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION scheduler_allocations_fit();

CREATE FUNCTION scheduler_allocation_fits() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM scheduler_require_node_fits(NEW.node_id);
    RETURN NULL;
END $$;
CREATE TRIGGER scheduler_allocation_fits
    AFTER UPDATE OF node_id, cpu_milli, memory_mib, released_at ON scheduler_allocation
    FOR EACH ROW WHEN (NEW.released_at IS NULL) EXECUTE FUNCTION scheduler_allocation_fits();

CREATE FUNCTION scheduler_allocation_note_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE projects_pod SET changed_in = pg_current_xact_id()::text::bigint WHERE id = NEW.pod_id;
    RETURN NULL;
END $$;
CREATE TRIGGER scheduler_allocation_changed AFTER UPDATE OF devices, gpu_milli ON scheduler_allocation
    FOR EACH ROW EXECUTE FUNCTION scheduler_allocation_note_change();
"""
ALLOW = """
DROP TRIGGER scheduler_allocation_changed ON scheduler_allocation;
DROP FUNCTION scheduler_allocation_note_change();
DROP TRIGGER scheduler_allocation_fits ON scheduler_allocation;
DROP FUNCTION scheduler_allocation_fits();
DROP TRIGGER scheduler_allocations_added ON scheduler_allocation;
DROP FUNCTION scheduler_allocations_fit();
DROP FUNCTION scheduler_require_node_fits(bigint);
DROP TRIGGER scheduler_claim_fits ON scheduler_deviceclaim;
DROP FUNCTION scheduler_claim_fits();
DROP TRIGGER scheduler_eviction_append_only ON scheduler_eviction;
DROP FUNCTION scheduler_eviction_forbid();
"""


class Migration(migrations.Migration):
    dependencies = [("scheduler", "0001_initial")]
    operations = [migrations.RunSQL(FORBID, ALLOW)]
