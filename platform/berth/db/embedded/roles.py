"""The embedded PostgreSQL cluster's login role, which owns the database."""

import os
from collections.abc import Callable
from pathlib import Path

SUPERUSER = "berth"
ROLE = "berth_app"
DATABASE = "berth"
HBA = f"""\
# Written by Berth. The superuser cannot connect: Berth runs its statements
# with "postgres --single" while the server is stopped.
local  all  {ROLE}  scram-sha-256
local  all  all        reject
"""
PRIVATE = 0o600
# Change the owner of every object that the superuser owns, except objects that belong to extensions.
# Indexes and column sequences follow their tables.
# REASSIGN OWNED fails for the role that owns the system catalogs.
TRANSFER_OWNERSHIP = f"""
DO $do$
DECLARE statement text;
BEGIN
  FOR statement IN
    SELECT format('ALTER %s %s OWNER TO {ROLE}', kind, name) FROM (
      SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW'
                            ELSE 'TABLE' END AS kind,
             c.oid::regclass::text AS name, c.relnamespace AS namespace, c.oid AS id, c.relowner AS owner
        FROM pg_class c WHERE c.relkind IN ('r', 'p', 'S', 'v', 'm')
      UNION ALL
      SELECT 'ROUTINE', p.oid::regprocedure::text, p.pronamespace, p.oid, p.proowner FROM pg_proc p
      UNION ALL
      SELECT 'TYPE', t.oid::regtype::text, t.typnamespace, t.oid, t.typowner
        FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
       WHERE t.typtype IN ('e', 'd', 'r') OR (t.typtype = 'c' AND c.relkind = 'c')
    ) owned JOIN pg_namespace n ON n.oid = namespace
    WHERE n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
      AND owner = '{SUPERUSER}'::regrole
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = id AND d.deptype IN ('a', 'e', 'i'))
  LOOP EXECUTE statement; END LOOP;
END $do$"""  # noqa: S608 - only the constants above
CREATE_ROLE = f"""
DO $do$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{ROLE}') THEN CREATE ROLE {ROLE}; END IF;
END $do$"""
FIND_DATABASE = f"SELECT 'exists' AS answer FROM pg_database WHERE datname = '{DATABASE}'"  # noqa: S608

RunSingleUser = Callable[[str, list[str]], str]


def restrict_logins(run_single_user: RunSingleUser, password: str, *, can_create_databases: bool) -> None:
    """Create the role and its database, or make the role the owner of an existing database.

    This can be repeated safely.
    """
    options = f"LOGIN NOSUPERUSER NOCREATEROLE {'CREATEDB' if can_create_databases else 'NOCREATEDB'}"
    set_password = f"ALTER ROLE {ROLE} {options} PASSWORD '{password}'"
    output = run_single_user("postgres", [CREATE_ROLE, set_password, FIND_DATABASE])
    if 'answer = "exists"' in output:
        run_single_user(DATABASE, [f"ALTER DATABASE {DATABASE} OWNER TO {ROLE}", TRANSFER_OWNERSHIP])
    else:
        run_single_user("postgres", [f"CREATE DATABASE {DATABASE} OWNER {ROLE}"])


def generate_password() -> str:
    """Return a random password that needs no quoting in SQL or URLs."""
    import secrets

    return secrets.token_urlsafe(32)


def write_private_file(path: Path, text: str, account: tuple[int, int] | None = None) -> None:
    """Replace `path` atomically with a file that only `account` can read.

    `account` is a (uid, gid) pair, by default that of this process.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        if account:
            os.fchown(file.fileno(), *account)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
