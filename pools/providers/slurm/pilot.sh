#!/bin/bash -l
# Pilot job of Berth. It runs the agent of one node until the node or the allocation ends. It has no secret:
# the token is in a private file, which is deleted first, or in the job's environment.
umask 077
fail() {
  echo "berth: $2" >&2
  exit "$1"
}
@LOAD@

setup() {
  :
@SETUP@
}
setup || fail 75 "the setup exited with $?"

# Print a process as ID and start time, because IDs are reused. Print nothing if there is no such process.
process() {
  start=$(sed 's/.*) //' "/proc/$1/stat" 2> /dev/null | cut -d ' ' -f 20)
  [ -z "$start" ] || echo "$1 $start"
}

# Kill the recorded processes of the job with this directory: its agent and the agent's scripts, which have
# sessions of their own.
end_agent() {
  for name in agent prepare start; do
    recorded=$(cut -d ' ' -f 1,2 "$1/$name.pid" 2> /dev/null)
    if [ -n "$recorded" ] && [ "$(process "${recorded% *}")" = "$recorded" ]; then
      [ "$name" = agent ] || kill -KILL -- "-${recorded% *}" 2> /dev/null
      kill -KILL "${recorded% *}" 2> /dev/null
    fi
  done
}

# Return whether the directory has no job, is older than ten minutes, and has only files of nodes. A process that
# was still ending has created it again after it was deleted.
is_remainder() {
  [ ! -e "$1/job" ] && [ -n "$(find "$1" -maxdepth 0 -type d -mmin +10)" ] &&
    ! ls -A "$1" | grep -qvx -e ray -e stop.sh
}

# End and delete what jobs have left that were killed before they could do so. A process of such a job that is
# still ending cannot write to a renamed directory. If that keeps it from being deleted, the next job deletes it.
ended="${TMPDIR:-/tmp}/.berth-ended"
for former in "${TMPDIR:-/tmp}"/berth-[0-9]* "${TMPDIR:-/tmp}"/.berth-[0-9]*; do
  [ -O "$former" ] || continue
  if [ -s "$former/job" ] && job=$(cat "$former/job") && [ "$(process "${job% *}")" != "$job" ]; then
    end_agent "$former"
    mv -T "$former" "$ended-${former##*-}"
  elif is_remainder "$former"; then
    mv -T "$former" "$ended-${former##*-}"
  fi
done
for former in "$ended"-*; do
  [ ! -O "$former" ] || rm -rf "$former" 2> /dev/null
done
state="${TMPDIR:-/tmp}/berth-$SLURM_JOB_ID"
deleted="${TMPDIR:-/tmp}/.berth-$SLURM_JOB_ID"
mkdir -m 700 "$state" || fail 72 "$state could not be created on $(hostname)"
process $$ > "$state/job"
agent=
# The node's processes end with this one. Until then, they may still write files, but not in a renamed directory.
clean() {
  trap '' TERM USR1
  [ -z "$agent" ] || kill -KILL "$agent" 2> /dev/null
  [ ! -s "$state/ray/pid" ] || kill -KILL "$(cat "$state/ray/pid")" 2> /dev/null
  end_agent "$state"
  mv -T "$state" "$deleted" 2> /dev/null
  for _ in 1 2 3 4 5 6; do
    rm -rf "$deleted" "$state" 2> /dev/null && break
    sleep 0.5
  done
}
trap clean EXIT

if [ -n "$certificates" ]; then
  echo "$certificates" > "$state/ca.pem"
  export BERTH_CA="$state/ca.pem"
fi
export BERTH_URL="$url" BERTH_POOL="$pool" BERTH_MACHINE_STATE="$state"
export BERTH_INSTANCE_ID="$SLURM_JOB_ID-$order" BERTH_NODE_WORKSPACES=@WORKSPACES@
[ -z "$plain_http" ] || export BERTH_PLAIN_HTTP=1
# The node's processes end with this one, even if it is killed.
BERTH_ANCHOR=$(process $$ | tr ' ' ':')
export BERTH_ANCHOR
mkdir -p "$BERTH_NODE_WORKSPACES"

attempts=24
until curl -fsS --max-time 30 ${BERTH_CA:+--cacert "$BERTH_CA"} -o "$state/berth-agent" \
  "$BERTH_URL/api/v1/machines/agent"; do
  attempts=$((attempts - 1))
  [ "$attempts" -gt 0 ] || fail 73 "the agent could not be downloaded from $BERTH_URL on $(hostname)"
  sleep 5
done
python=
for candidate in python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
  if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail 74 "there is no Python 3.9 or newer on $(hostname)"

# Slurm sends USR1 ahead of the end of the allocation, and TERM shortly before it kills all processes.
end() {
  trap '' TERM USR1
  if [ -n "$agent" ]; then
    kill -TERM "$agent" 2> /dev/null
    for _ in 1 2 3 4; do
      kill -0 "$agent" 2> /dev/null || break
      sleep 0.5
    done
  fi
  exit 0
}
trap 'kill -USR1 "$agent" 2> /dev/null' USR1
trap end TERM
run_agent() {
  process "$BASHPID" > "$state/agent.pid"
  BERTH_JOIN_TOKEN="$token" exec "$python" "$state/berth-agent" run
}
while :; do
  run_agent &
  agent=$!
  wait "$agent"
  code=$?
  while kill -0 "$agent" 2> /dev/null; do
    wait "$agent"
    code=$?
  done
  agent=
  # The server has ended the node, or another attempt would fail as well.
  [ "$code" = 3 ] && [ -s "$state/secret" ] && exit 0
  [ "$code" = 2 ] || [ "$code" = 3 ] && exit "$code"
  sleep 5
done
