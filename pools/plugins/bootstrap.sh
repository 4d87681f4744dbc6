#!/bin/sh
# Creates the environment @DIGEST@
# on this machine. Idempotent: completed phases are skipped.
#
# Variables:
#   BERTH_ENVIRONMENTS  directory of all environments
#   BERTH_CODE          Berth's code for workers: a URL or a file
#   BERTH_PHASES        file to which the script appends a JSON line whenever a phase begins or ends
#   BERTH_PYTHON        preferred Python, if it has the right version
#   BERTH_BESIDE        set for sessions: also make the packages of BERTH_PYTHON visible, with Berth's code
#   BERTH_APT           "no": require Debian packages but never install them
# Each of the pool's secrets is in its own variable.
set -u
umask 022

digest=@DIGEST@
secrets="@SECRETS@"
root=${BERTH_ENVIRONMENTS:-/var/lib/berth-machine/environments}
phases=${BERTH_PHASES:-$root/$digest.phases}
venv=$root/$digest
log=$root/$digest.log.$$
mkdir -p "$root" || exit 1
trap 'rm -f "$log"' EXIT

report() { # PHASE STATE SECONDS MESSAGE
  printf '{"phase": "%s", "state": "%s", "seconds": %s, "message": "%s"}\n' "$1" "$2" "$3" "$4" >> "$phases"
}

hidden() { # mask secrets in messages
  awk -v names="$secrets" '
    BEGIN { count = split(names, name, " ") }
    { for (i = 1; i <= count; i++) { value = ENVIRON[name[i]]
        if (length(value) > 3) while (at = index($0, value))
          $0 = substr($0, 1, at - 1) "***" substr($0, at + length(value)) }
      print }'
}

quoted() { # escape for a JSON string
  LC_ALL=C tr -d '\000-\010\013-\037\177' | LC_ALL=C sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' |
    LC_ALL=C awk '{ printf "%s%s", (NR > 1 ? "\\n" : ""), $0 }'
}

phase() { # NAME FUNCTION
  began=$(date +%s)
  report "$1" running 0 ""
  ( set -eu; "$2" ) > "$log" 2>&1 < /dev/null &
  if wait $!; then
    report "$1" done $(($(date +%s) - began)) ""
  else
    report "$1" failed $(($(date +%s) - began)) "$(hidden < "$log" | tail -c 3000 | quoted)"
    [ -f "$venv/.ready" ] || rm -rf "$venv"
    exit 1
  fi
}

install_apt() {
  missing=
  for package in @APT@; do
    dpkg-query -W -f '${Status}\n' "${package%%=*}" 2> /dev/null | grep -q ' installed$' || missing="$missing $package"
  done
  [ "${BERTH_APT:-}" = no ] || [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null ||
    "$(find_python || echo python3)" -c 'import ensurepip, venv' 2> /dev/null || missing="$missing python3-venv"
  [ -n "$missing" ] || return 0
  if [ "${BERTH_APT:-}" = no ] || [ "$(id -u)" != 0 ]; then
    echo "These Debian packages are not on this machine:$missing"
    echo "Berth cannot install them here. An administrator can run: apt-get install$missing"
    return 1
  fi
  command -v apt-get > /dev/null || { echo "There is no apt-get on this machine to install$missing"; return 1; }
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=300 update
  # shellcheck disable=SC2086 # each word is a package
  apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $missing
}

find_python() { # 3.10.12 has the filters of tarfile, which install_code needs
  wanted=@PYTHON@
  for candidate in "${BERTH_PYTHON:-}" ${wanted:+"python$wanted"} python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && command -v "$candidate" > /dev/null && "$candidate" -c "import sys
version = sys.version_info
sys.exit('$wanted' not in ('', '%d.%d' % version[:2]) or version < ((3, 10, 12) if '$wanted' else (3, 11)))"; then
      echo "$candidate"
      return 0
    fi
  done
  return 1
}

make_python() {
  if ! python=$(find_python); then
    wanted=@PYTHON@
    echo "Python ${wanted:-3.11 or later} is not on this machine. Available: $(command -v python3 > /dev/null && python3 --version || echo none)"
    return 1
  fi
  rm -rf "$venv"
  if "$python" -m pip --version > /dev/null 2>&1; then # its pip can install into the environment
    "$python" -m venv --without-pip "$venv"
    echo "$python" > "$venv/pip-of"
  else
    "$python" -m venv "$venv"
    echo "$venv/bin/python" > "$venv/pip-of"
  fi
  [ -z "${BERTH_BESIDE:-}" ] || beside "$python"
}

beside() { # PYTHON: also make its packages visible; the environment's packages take precedence
  "$venv/bin/python" - "$("$1" -c 'import json, site; print(json.dumps(site.getsitepackages()))')" <<'BERTH_BESIDE'
import json, os, sys, sysconfig
lines = ["import site; site.addsitedir(%r)\n" % path for path in json.loads(sys.argv[1])]
with open(os.path.join(sysconfig.get_path("purelib"), "zz-pool.pth"), "w") as file:
    file.writelines(lines)
BERTH_BESIDE
}

pip() {
  "$(cat "$venv/pip-of")" -m pip --disable-pip-version-check --python "$venv/bin/python" "$@"
}

# pip's configuration may set connection options and indexes. Only the connection options are kept.
connection="cert client-cert proxy trusted-host timeout retries cache-dir no-cache-dir keyring-provider"

isolated_pip() { # pip without its configured indexes, link pages and constraints
  (
    [ -f "$venv/configured" ] || pip config list > "$venv/configured"
    for key in $connection; do
      value=$(sed -n "s/^\(global\|install\|:env:\)\.$key='\(.*\)'\$/\2/p" "$venv/configured" | tail -n 1)
      name=PIP_$(echo "$key" | tr 'a-z-' 'A-Z_')
      [ -z "$value" ] || printf "export %s='%s'\n" "$name" "$(echo "$value" | sed 's/\\n/ /g')"
    done > "$venv/connection"
    for name in $(env | sed -n 's/^\(PIP_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$name"; done
    . "$venv/connection"
    export PIP_CONFIG_FILE=/dev/null
    pip "$@" < /dev/null
  )
}

from_index() { # URL REQUIREMENT...: from this index, without dependencies
  index=$1
  shift
  isolated_pip install --no-input --retries 2 --no-deps --index-url "$index" "$@" && return
  echo "The index $index cannot serve $*, and packages that are scoped to an index are never taken from another index."
  return 1
}

hold_scoped() { # pin packages that were installed from their own index
  pip freeze --all > "$venv/frozen"
  while read -r name _; do
    grep -iE "^$(echo "$name" | sed 's/-/[-_.]/g')==" "$venv/frozen" || true
  done < "$venv/scoped" > "$venv/held"
}

scoped_dependencies() { # print NAME VERSION INDEX of each scoped package that pip would take from another index
  "$venv/bin/python" - "$venv/report" "$venv/scoped" <<'BERTH_SCOPED'
import json, re, sys
report, scoped = sys.argv[1:]
index_of = dict(line.split(None, 1) for line in open(scoped).read().splitlines())
for item in json.load(open(report))["install"]:
    name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
    if name in index_of:
        print(name, item["metadata"]["version"], index_of[name])
BERTH_SCOPED
}

install_rest() { # COMMAND...: install all requirements, with scoped dependencies from their own index
  while :; do
    hold_scoped
    # Resolving may build source distributions. Never build one for a scoped package from another index.
    "$@" --quiet --dry-run --report "$venv/report" --constraint "$venv/held" \
      --only-binary "$(cut -d ' ' -f 1 "$venv/scoped" | paste -s -d , -)"
    scoped_dependencies > "$venv/dependencies"
    [ -s "$venv/dependencies" ] || break
    while read -r name version index; do
      from_index "$index" "$name==$version" || from_index "$index" "$name" || return 1
    done < "$venv/dependencies"
  done
  grep -q '"install": \[\]' "$venv/report" || "$@" --constraint "$venv/held"
}

install_pip() {
  cat > "$venv/requirements.txt" <<'BERTH_REQUIREMENTS'
@REQUIREMENTS@
BERTH_REQUIREMENTS
@PIP@
}

install_code() {
  [ -n "${BERTH_CODE:-}" ] || { echo "BERTH_CODE is not set"; return 1; }
  "$venv/bin/python" - "$BERTH_CODE" "$root" <<'BERTH_PYTHON_CODE'
import hashlib, io, os, ssl, sys, sysconfig, tarfile, urllib.request
source, root = sys.argv[1:]
address = source if "://" in source else "file://" + os.path.abspath(source)
trust = ssl.create_default_context(cafile=os.environ.get("BERTH_CA")) if address[:6] == "https:" else None
packed = urllib.request.urlopen(address, timeout=60, context=trust).read()
place = os.path.join(root, "code-" + hashlib.sha256(packed).hexdigest()[:16])
if not os.path.isdir(place):
    draft = "%s.%d" % (place, os.getpid())
    tarfile.open(fileobj=io.BytesIO(packed)).extractall(draft, filter="data")
    try:
        os.rename(draft, place)
    except OSError:
        if not os.path.isdir(place):
            raise
path = os.path.join(sysconfig.get_path("purelib"), "berth.pth")
with open(path + ".new", "w") as file:
    file.write(place + "\n")
os.rename(path + ".new", path)
BERTH_PYTHON_CODE
}

@OPERATIONS@
@VARIABLES@
exec 9> "$venv.lock"
flock 9 # another node on this machine may be installing the environment
if [ ! -f "$venv/.ready" ]; then
  phase apt install_apt
  phase python make_python
  phase pip install_pip
  sync
  touch "$venv/.ready"
fi
[ -n "${BERTH_BESIDE:-}" ] || phase code install_code
flock -u 9
export VIRTUAL_ENV="$venv" PATH="$venv/bin:$PATH"
@PHASES@
report ready done 0 ""
