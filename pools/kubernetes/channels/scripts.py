"""Shell scripts that run in a pod next to a channel's command.

Kubernetes does not kill a command when its connection closes, so a guard kills all processes that have the
channel's ID in their environment.
"""

from collections.abc import Sequence

READY, DONE = b"ready", b"done"

# Environments are searched with `read` and `case`, which every shell has, because the image may lack `grep`.
# `read` drops the NULs between variables.
_SIGNAL = """
signal() {
  sent=1
  for entry in /proc/[0-9]*; do
    [ "$entry" = "/proc/$$" ] && continue
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *"BERTH_CHANNEL=$mark"*) kill -"$1" "${entry#/proc/}" && sent=0; break ;; esac
    done 2> /dev/null < "$entry/environ"
  done
  return $sent
}
end_others() {
  signal HUP || return
  count=0
  while [ $count -lt 10 ] && signal 0; do sleep 0.1; count=$((count + 1)); done
  count=0
  while [ $count -lt 100 ] && signal KILL; do count=$((count + 1)); done
}
"""
_GUARD = f"""
{_SIGNAL}
trap '' HUP INT TERM PIPE
mark=$1
pipe=$BERTH_POD_DIR/.channel-$mark
umask 077
mkfifo "$pipe" || exit 1
echo ready
read -r line
end_others
rm -f "$pipe"
echo done
"""
# Starts a shell with the channel's ID in its initial environment.
_MARKED = 'export BERTH_CHANNEL="$1"; shift; exec sh -c "$@"'
# Kubernetes reports that a command has ended only once every process has closed its output.
_RUN = f"""
{_SIGNAL}
mark=$BERTH_CHANNEL
command -v -- "$1" > /dev/null || {{ echo "$1: No such file or directory" >&2; exit 127; }}
trap : INT QUIT
"$@"
code=$?
end_others
exit $code
"""
_TERMINAL = f"""
export TERM="$1"
stty rows "$2" cols "$3" 2> /dev/null
shift 3
{_RUN}
"""
_PIPES = f"""
exec < "$BERTH_POD_DIR/.channel-$BERTH_CHANNEL"
{_RUN}
"""
# The first channel of an SSH connection prints its ID, and runs until its input ends.
HOLD = ["sh", "-c", 'printf %s "$BERTH_CHANNEL"; while read -r _; do :; done']
_INPUT = 'exec tee "$BERTH_POD_DIR/.channel-$BERTH_CHANNEL"'


def guard_command(mark: str) -> list[str]:
    """Return the command of the guard script.

    It prints READY when it starts, and DONE after it has killed the channel's processes.
    """
    return ["sh", "-c", _GUARD, "sh", mark]


def terminal_command(mark: str, command: Sequence[str], type_: str, rows: int, columns: int) -> list[str]:
    return _marked_command(mark, _TERMINAL, type_, str(rows), str(columns), *command)


def pipe_command(mark: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` with the channel's named pipe as stdin."""
    return _marked_command(mark, _PIPES, *command)


def input_command(mark: str) -> list[str]:
    """Return the command that copies stdin to the channel's named pipe, and also to stdout as an
    acknowledgement.

    Input that is still unread when the connection ends is lost.
    """
    return _marked_command(mark, _INPUT)


def _marked_command(mark: str, script: str, *arguments: str) -> list[str]:
    return ["sh", "-c", _MARKED, "sh", mark, script, "sh", *arguments]
