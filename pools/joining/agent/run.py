"""Main loop of the agent: join the pool, report to the server, and follow its instructions."""

from __future__ import annotations

import os
import shutil
import sys

from .allocation import INSTANCE_ID, JobEnding, TerminationSignals, allocated_gpus, has_job_ended
from .ec2 import detect_interruption, get_metadata
from .hardware import collect_inventory, detect_hardware, query_gpus
from .scripts import EnvironmentScript, StartScript
from .server import MachineRejected, Server
from .state import STATE, load_secret, store_secret
from .upgrade import Upgrade

REPORT_INTERVAL_SECONDS = 5.0


def run(server: Server, pool: str) -> None:
    """Join the pool, and report until the server rejects this machine.

    Then stop the node and raise MachineRejected. If the job in which the agent runs is terminated or its
    script was killed, raise JobEnding.
    """
    ec2_instance_id = "" if INSTANCE_ID else get_metadata("instance-id")
    signals = TerminationSignals()
    secret = load_secret()
    while not secret:
        if signals.is_job_terminating:
            raise JobEnding(signals.reason)
        _raise_if_job_ended()
        try:
            secret = join_pool(server, pool, ec2_instance_id)
        except OSError as error:
            # Conflicts are also retried, because the machine may boot before Berth has recorded its launch.
            print("not joined yet: %s" % error, file=sys.stderr)
            signals.wait_for_end(REPORT_INTERVAL_SECONDS)
    os.environ.pop("BERTH_JOIN_TOKEN", None)  # otherwise, scripts would inherit the token
    environment, start = EnvironmentScript(server.url), StartScript()
    upgrade = Upgrade(server)
    gpus = query_gpus()  # query this only once, because nvidia-smi may take seconds
    gpus = [gpu for gpu in gpus if gpu["uuid"] in allocated_gpus(gpus)]
    while True:
        try:
            body: dict[str, object] = {
                "interruption": _detect_interruption(signals, ec2_instance_id),
                "booted": environment.report(), "started": start.report(),
                "inventory": {**collect_inventory(gpus), "upgrade_error": upgrade.error},
            }  # fmt: skip
            answer = server.send("machines/call", body, secret)
            environment.follow_instructions(answer)
            start.follow_instructions(answer)
            upgrade.follow_instructions(answer)
        except MachineRejected:
            environment.job.kill()
            start.end()
            _raise_if_job_ended()
            raise
        except OSError as error:
            print("no response: %s" % error, file=sys.stderr)
        if signals.is_job_terminating:
            raise JobEnding(signals.reason)
        if has_job_ended():
            environment.job.kill()
            start.end()
            _raise_if_job_ended()
        signals.wait_for_end(REPORT_INTERVAL_SECONDS)


def _raise_if_job_ended() -> None:
    """If the job's script was killed, delete the state that it left behind and raise JobEnding."""
    if has_job_ended():
        shutil.rmtree(STATE, ignore_errors=True)
        raise JobEnding("the job's script was killed")


def _detect_interruption(signals: TerminationSignals, ec2_instance_id: str) -> dict[str, object] | None:
    if signals.reason:
        return {"reason": signals.reason, "at": None}
    return detect_interruption() if ec2_instance_id else None


def join_pool(server: Server, pool: str, ec2_instance_id: str) -> str:
    """Join the pool and return the machine's secret.

    Raises MachineRejected, or OSError if a retry may succeed.
    """
    body = detect_hardware(server.url, ec2_instance_id)  # fails until the server's name can be resolved
    body["token"] = os.environ.get("BERTH_JOIN_TOKEN", "")
    return store_secret(str(server.send("node-pools/%s/join" % pool, body)["secret"]))
