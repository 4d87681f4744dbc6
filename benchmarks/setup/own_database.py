"""Create an empty, migrated database for one benchmark."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def own_database(name: str) -> Iterator[None]:
    """Create a database for the block, and delete it afterwards."""
    from berth.db.embedded.cluster import EmbeddedCluster
    from berth.db.embedded.cluster import run_server as database

    with tempfile.TemporaryDirectory(prefix=f"berth-{name}-") as place:
        cluster = EmbeddedCluster(Path(place) / "postgres")
        with database(cluster, log=Path(place) / "postgres.log"):
            os.environ |= {
                "DATABASE_URL": cluster.url(),
                "BERTH_HOME": place,
                "DJANGO_SETTINGS_MODULE": "berth.server.settings",
                "BERTH_FAKE_POOLS": "tests.fakes",
            }
            import django
            from environ import Env

            django.setup()
            from django.core.management import call_command
            from django.db import connection

            # Django reads DATABASE_URL only once, but a benchmark may use several databases in turn.
            address = Env.db_url_config(cluster.url())
            connection.settings_dict["OPTIONS"] |= address.pop("OPTIONS", {})
            connection.settings_dict |= address
            call_command("migrate", verbosity=0)
            yield
            connection.close()
