"""Create a database server and a migrated database for one benchmark."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from berth.db.embedded.cluster import EmbeddedCluster

# Environment variable that names a directory with a migrated cluster to copy. Tests set it, because creating
# and migrating a cluster takes more than two seconds of CPU time.
TEMPLATE = "BERTH_BENCH_TEMPLATE"


def copy_template(home: Path) -> None:
    """Copy the template, if there is one, to the home directory of a benchmark's Berth."""
    if template := os.environ.get(TEMPLATE):
        home.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", f"{template}/.", str(home)], check=True)


@contextmanager
def own_cluster(place: Path) -> Iterator["EmbeddedCluster"]:
    """Run a new database server in `place` for the block.

    Its database is empty and not migrated, unless the server's files are a copy of the template.
    """
    from berth.db.embedded.cluster import EmbeddedCluster, run_server

    copy_template(place)
    with run_server(EmbeddedCluster(place / "postgres"), log=place / "postgres.log") as cluster:
        yield cluster


@contextmanager
def own_database(name: str) -> Iterator[None]:
    """Create a database for the block, and delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix=f"berth-{name}-") as place, own_cluster(Path(place)) as cluster:
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
