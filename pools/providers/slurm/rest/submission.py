"""Build the HTTP request that submits a pilot job to slurmrestd.

The join token is in the job's environment, which Slurm shows only to the job's user and to administrators.
"""

import math
from collections.abc import Mapping
from typing import Any

from pools.providers.base import LaunchRequest
from pools.providers.slurm.jobs import PilotName
from pools.providers.slurm.rest.versions import Api
from pools.providers.slurm.settings import SlurmSettings
from pools.providers.slurm.submission import LOG_DAYS, pilot_script, shell_assignments, shell_path

VARIABLE = "BERTH_PILOT"
# Write the log in the directory itself, because slurmrestd does not expand a tilde.
_LOAD = """logs={directory}/logs
{{ mkdir -p "$logs" && exec >> "$logs/@NAME@.log" 2>&1; }} || :
find "$logs" -type f -mtime +{days} -delete || :
[ -n "${variable}" ] || fail 71 "the job's environment has no {variable}"
eval "${variable}"
unset {variable}
"""


def submission_body(
    api: Api, settings: SlurmSettings, order: LaunchRequest, name: PilotName, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Return the request body that submits a pilot job equivalent to one submitted with `sbatch`."""
    load = _LOAD.format(directory=shell_path(settings.directory), days=LOG_DAYS, variable=VARIABLE)
    job = {
        **_common_keys(settings, order), **dict(settings.rest_options),
        **(_structured_keys(settings, order) if api.is_structured else _plain_keys(settings, order)),
        "name": str(name),
    }  # fmt: skip
    environment = shell_assignments(order, variables)
    job["environment"] = [f"{VARIABLE}={environment}"] if api.is_structured else {VARIABLE: environment}
    script = pilot_script(settings, load).replace("@NAME@", str(name))
    return {"script": f"{script}\n", "job": {key: value for key, value in job.items() if value is not None}}


def _common_keys(settings: SlurmSettings, order: LaunchRequest) -> dict[str, Any]:
    # With `singleton`, Slurm runs jobs of the same name one at a time.
    # A duplicate therefore does not start before Berth cancels it.
    return {
        "dependency": "singleton", "tasks": 1, "cpus_per_task": math.ceil(order.shape.cpu_milli / 1000),
        "current_working_directory": "/", "standard_output": "/dev/null", "standard_error": "/dev/null",
        "partition": settings.partition, "account": settings.account, "qos": settings.qos,
        "constraints": settings.constraint,
    }  # fmt: skip


def _plain_keys(settings: SlurmSettings, order: LaunchRequest) -> dict[str, Any]:
    """Return the job keys for Slurm 22.05, which cannot send a warning signal to the batch script."""
    shape = order.shape
    return {
        "nodes": 1, "no_requeue": True, "memory_per_node": shape.memory_mib,
        "time_limit": settings.limit_minutes, "exclusive": "exclusive" if settings.exclusive else None,
        "gres": f"{settings.gres}:{shape.gpus}" if shape.gpus else None,
    }  # fmt: skip


def _structured_keys(settings: SlurmSettings, order: LaunchRequest) -> dict[str, Any]:
    shape, limit = order.shape, settings.limit_minutes
    return {
        "nodes": "1", "requeue": False, "memory_per_node": _number_object(shape.memory_mib),
        "time_limit": None if limit is None else _number_object(limit),
        "shared": ["none"] if settings.exclusive else None,
        "tres_per_node": f"gres/{settings.gres}:{shape.gpus}" if shape.gpus else None,
        "kill_warning_signal": "USR1", "kill_warning_delay": _number_object(settings.notice_seconds),
        "kill_warning_flags": ["BATCH_JOB"],
    }  # fmt: skip


def _number_object(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}
