"""Shell scripts that submit, cancel and run a launch request's pilot jobs.

The submission script contains a secret, so it is passed on standard input: all users can see command lines.
"""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from pools.providers.base import LaunchRequest
from pools.providers.slurm.jobs import PilotName
from pools.providers.slurm.settings import SlurmSettings

LOG_DAYS = 7
ABANDONED_MINUTES = 60
# The script prints the ID of each submitted job, or fails. The script deletes files that no job will read.
# The pool's own leftover files, such as those of a killed submission, are deleted after an hour.
# Other pools' files may belong to another cluster, so they are deleted only after a week.
# The script touches the files of live jobs to keep them from being deleted.
_SUBMIT = """set -eu
umask 077
{environment}directory={directory}
mkdir -p "$directory/pilots" "$directory/logs"
{touch_living}find "$directory/pilots" -type f -name '{pool}.*' -mmin +{minutes} -delete || :
find "$directory/pilots" "$directory/logs" -type f -mtime +{days} -delete || :
submit() {{
  cat > "$directory/pilots/$1"
  if ! printf '%s\\n' "$script" | sed "s|@NAME@|$1|" |
    sbatch {options} --job-name="$1" --output="$directory/logs/$1.log"; then
    # The file is still needed if the job was submitted but the response was lost.
    if jobs=$(squeue --me --noheader --name="$1" --format=%i 2> /dev/null) && [ -z "$jobs" ]; then
      rm -f "$directory/pilots/$1"
    fi
    exit 1
  fi
}}
script={pilot}
{calls}"""
# Load the job's values from its private file.
_LOAD = """file={directory}/pilots/@NAME@
[ -r "$file" ] || fail 71 "$file does not exist on $(hostname)"
. "$file"
rm -f "$file"
"""
_CALL = """submit {name} <<'BERTH_PILOT_FILE'
{variables}
BERTH_PILOT_FILE
"""
_CANCEL = """{environment}directory={directory}
scancel {jobs}
code=$?
{files}exit $code
"""


def submission_script(
    settings: SlurmSettings, order: LaunchRequest, names: Sequence[PilotName], variables: Mapping[str, str],
    living: Iterable[PilotName] = (),
) -> str:  # fmt: skip
    """Return the submission script, which prints each job's ID and fails if Slurm rejects a job.

    `variables` are the pilot script's shell variables: url, pool, token, certificates and plain_http.
    `living` are jobs that may not have read their files yet.
    """
    assignments = shell_assignments(order, variables)
    return _SUBMIT.format(
        environment=environment_lines(settings), directory=shell_path(settings.directory), days=LOG_DAYS,
        pool=str(names[0]).rsplit(".", 2)[0], minutes=ABANDONED_MINUTES,
        options=shlex.join(["--parsable", *job_options(settings, order)]),
        pilot=shlex.quote(pilot_script(settings)),
        touch_living="".join(
            f'touch -c "$directory/pilots/"{shlex.quote(str(name))} || :\n' for name in living
        ),
        calls="".join(_CALL.format(name=name, variables=assignments) for name in names),
    )  # fmt: skip


def cancel_script(settings: SlurmSettings, job_ids: Sequence[str], names: Sequence[PilotName]) -> str:
    """Return the script that cancels jobs, and deletes the private files of jobs that never started."""
    files = "".join(f'rm -f "$directory/pilots/{name}"\n' for name in names)
    return _CANCEL.format(
        environment=environment_lines(settings), directory=shell_path(settings.directory),
        jobs=shlex.join(job_ids), files=files,
    )  # fmt: skip


def test_script(settings: SlurmSettings, order: LaunchRequest) -> str:
    """Return a script that asks Slurm to validate a pilot job without submitting it."""
    options = shlex.join(["--test-only", "--job-name=berth", *job_options(settings, order)])
    return f"{environment_lines(settings)}printf '#!/bin/sh\\n' | sbatch {options}\n"


def job_options(settings: SlurmSettings, order: LaunchRequest) -> list[str]:
    """Return the sbatch options for a launch request's jobs."""
    shape = order.shape
    # With `singleton`, Slurm runs jobs of the same name one at a time.
    # A duplicate therefore does not start before Berth cancels it.
    return [*settings.options, "--no-requeue", "--export=NIL", "--dependency=singleton",
            *_resource_requests(settings),
            "--nodes=1", "--ntasks=1", f"--cpus-per-task={math.ceil(shape.cpu_milli / 1000)}",
            f"--mem={shape.memory_mib}M", f"--signal=B:USR1@{settings.notice_seconds}", "--chdir=/",
            *([f"--gres={settings.gres}:{shape.gpus}"] if shape.gpus else [])]  # fmt: skip


def _resource_requests(settings: SlurmSettings) -> Iterator[str]:
    named = {
        "partition": settings.partition, "account": settings.account, "qos": settings.qos,
        "constraint": settings.constraint, "time": settings.limit_minutes,
    }  # fmt: skip
    yield from (f"--{name}={value}" for name, value in named.items() if value is not None)
    if settings.exclusive:
        yield "--exclusive"


def shell_assignments(order: LaunchRequest, variables: Mapping[str, str]) -> str:
    """Return the shell lines that assign variables in a launch request's jobs."""
    values = {**variables, "order": order.client_token[:8]}
    return "\n".join(f"{name}={shlex.quote(value)}" for name, value in sorted(values.items()))


def pilot_script(settings: SlurmSettings, load: str = "") -> str:
    """Return the pilot script, which is the same for all jobs. @NAME@ stands for the job's name.

    `load` contains the lines that set the job's variables, by default from its private file.
    """
    load = load or _LOAD.format(directory=shell_path(settings.directory))
    return (
        _pilot_template()
        .replace("@LOAD@", load.rstrip())
        .replace("@WORKSPACES@", shell_path(settings.shared_workspaces))
        .replace("@SETUP@", "\n".join(settings.setup))
        .rstrip()
    )


@cache
def _pilot_template() -> str:
    return Path(__file__).with_name("pilot.sh").read_text(encoding="utf-8")


def shell_path(directory: str) -> str:
    """Quote a path for the shell. A leading tilde still expands to the home directory."""
    home, _, rest = directory.partition("/")
    if home != "~":
        return shlex.quote(directory)
    return '"$HOME"' + (f"/{shlex.quote(rest)}" if rest else "")


def environment_lines(settings: SlurmSettings) -> str:
    """Return the shell lines that set the language of messages and add Slurm's programs to the PATH."""
    path = "" if settings.bin is None else f'export PATH={shlex.quote(settings.bin)}:"$PATH"\n'
    return f"export LC_ALL=C\n{path}"
