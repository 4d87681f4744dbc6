"""Accounting for a Slurm test cluster: slurmdbd with a MariaDB server."""

import shutil
import subprocess

from tests.contracts.slurm.cluster import SlurmCluster
from tests.contracts.slurm.rest import allow_tokens
from tests.journeys.installation import until
from tests.support.ports import free_port

PROGRAMS = ("slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "mariadb")
CONFIGURATION = """
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={root}/jwt.key
DbdHost=localhost
DbdPort={port}
SlurmUser=root
LogFile={root}/log/slurmdbd
PidFile={root}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm
"""
# Ended jobs leave the controller's list after some seconds, and are then only in the database.
CLUSTER = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort={port}
AccountingStoragePass={root}/munge/socket
AccountingStorageEnforce=associations,limits,qos
MinJobAge=2
"""
SCHEMA = """
CREATE DATABASE slurm;
CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm.* TO slurm@'127.0.0.1';
"""


def missing_accounting() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin") is None]


def start_accounting(cluster: SlurmCluster) -> None:
    """Start MariaDB and slurmdbd. Create account `research` and QOS `small` with a limit of one job."""
    allow_tokens(cluster)
    port, database_port = free_port(), free_port()
    _start_database(cluster, database_port)
    file = cluster.root / "slurmdbd.conf"
    file.write_text(CONFIGURATION.format(root=cluster.root, port=port, database_port=database_port))
    file.chmod(0o600)
    with (cluster.root / "slurm.conf").open("a") as configuration:
        configuration.write(CLUSTER.format(root=cluster.root, port=port))
    start_slurmdbd(cluster)
    for words in (
        ("cluster", "berth"), ("account", "research"), ("user", "root", "account=research"),
        ("qos", "small", "MaxSubmitJobsPerUser=1"),
    ):  # fmt: skip
        cluster.run("sacctmgr", "-i", "add", *words)
    cluster.run("sacctmgr", "-i", "modify", "user", "root", "set", "qos+=small")


def start_slurmdbd(cluster: SlurmCluster) -> None:
    cluster.start_daemon("slurmdbd", "-D")
    until(lambda: not cluster.commands.run(["sacctmgr", "-n", "list", "qos"], seconds=60).exit_code, 120)


def _start_database(cluster: SlurmCluster, port: int) -> None:
    directory, socket = cluster.root / "database", cluster.root / "database.socket"
    subprocess.run(
        [
            "mariadb-install-db", "--no-defaults", f"--datadir={directory}", "--user=root",
            "--auth-root-authentication-method=normal", "--skip-test-db",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    cluster.start_daemon(
        "mariadbd", "--no-defaults", f"--datadir={directory}", f"--socket={socket}", f"--port={port}",
        "--bind-address=127.0.0.1", "--user=root", f"--pid-file={cluster.root}/database.pid",
        "--innodb-flush-log-at-trx-commit=0", enter=(),
    )  # fmt: skip
    client = ["mariadb", "--no-defaults", f"--socket={socket}"]

    def created() -> bool:
        done = subprocess.run(client, input=SCHEMA, text=True, capture_output=True, check=False)
        return not done.returncode

    until(created, 60)
