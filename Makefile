# `make run` starts Berth; `make test` runs every check. Both work in a fresh checkout.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Delete an incomplete virtual environment: pip would otherwise install into the system's Python.
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR):$(CURDIR)/platform
export DJANGO_SETTINGS_MODULE := berth.server.settings
# Container images often set PYTHONDONTWRITEBYTECODE. Without bytecode files, every process compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

BASE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PIP := $(PY) -m pip --require-virtualenv --disable-pip-version-check --no-input install -qq --root-user-action=ignore
INSTALL := $(PY) requirements/install.py
# What `make run` installs beyond the client and the server.
RUN_EXTRAS := embedded top aws docs joblib otel ssh
# The command line, the Python client and what they import, which run on Python 3.10 too.
CLIENT := $(addprefix platform/berth/,cli client core documents worker) pools/plugins scheduler/engine scheduler/simulator
COMPILE := $(PY) -m uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links --no-emit-package berth-platform
# The client's and the server's dependencies.
PROJECTS := pyproject.toml deploy/server/pyproject.toml

# Print "ok" if the command succeeds, its whole output if it fails.
quiet = if output=$$($(2) 2>&1); then printf '  %-10s ok\n' '$(1)'; else printf '  %-10s\n%s\n' '$(1)' "$$output"; exit 1; fi

.PHONY: help run test packages pytest test-heavy lint types types-3.11 types-3.10 check bench behaviours demo-reset docs screenshots lock release chromium bubblewrap podman openssh slurm clean

help:
	@echo "make run          start Berth with a demo organization; Ctrl-C stops it"
	@echo "make test         lint, types, import contracts, tests"
	@echo "make test-heavy   slow tests, and types for Python 3.10"
	@echo "make lint         ruff, import contracts, prose"
	@echo "make types        mypy, for Python 3.11 and for the client's 3.10"
	@echo "make check        lint, types for 3.11, Django system checks"
	@echo "make bench        benchmarks"
	@echo "make behaviours   which promised behaviours the tests show"
	@echo "make demo-reset   recreate the demo organization"
	@echo "make docs         build the documentation site that Berth serves under /docs"
	@echo "make screenshots  take the screenshots of the documentation again"
	@echo "make lock         pin the dependencies again"
	@echo "make release      build the files of a release in dist/"

run: $(BASE)
	@$(MAKE) bubblewrap 2> /dev/null || :
	@# The documentation site appears under /docs once it is built, a few seconds after the start.
	@[ -e site/index.html ] || { $(PY) -m mkdocs build --quiet --site-dir $(CURDIR)/$(VENV)/site && mv $(VENV)/site site; } \
		> /dev/null 2>&1 < /dev/null &
	@exec $(PY) -m berth.server.up --demo $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

# The checks run beside the tests, which often wait for other processes.
test:
	@$(MAKE) --jobs=3 check pytest

# Programs that the tests run. Only one apt-get may run at a time.
packages:
	@env -u MAKEFLAGS -u MFLAGS $(MAKE) --no-print-directory chromium bubblewrap podman openssh

# Tests also call make, which must not use the job server of this make.
pytest: $(DEV) packages
	@env -u MAKEFLAGS -u MFLAGS $(PY) -m pytest -q -n auto -m "not heavy" $(ARGS)

test-heavy: $(DEV) packages slurm
	@[ -n '$(ARGS)' ] || $(MAKE) types-3.10
	@$(PY) -m pytest -q -m heavy $(ARGS)
	@[ -n '$(ARGS)' ] || BERTH_RANDOM_CLUSTERS=1000 $(PY) -m pytest -q -n auto --timeout 1800 -m "not heavy" tests/engine

lint: $(DEV)
	@$(call quiet,ruff,$(PY) -m ruff check .)
	@$(call quiet,format,$(PY) -m ruff format --check .)
	@$(call quiet,imports,$(VENV)/bin/lint-imports --no-cache --no-logo)
	@$(call quiet,prose,$(PY) -m tests.architecture.prose)

types: types-3.11 types-3.10

types-3.11: $(DEV)
	@$(call quiet,mypy,$(PY) -m mypy platform/berth scheduler pools projects tests)

# What the client imports, on the oldest Python that runs it.
types-3.10: $(DEV)
	@$(call quiet,mypy 3.10,$(PY) -m mypy --python-version 3.10 $(CLIENT))

check: lint types-3.11
	@$(call quiet,django,$(PY) -m django check --fail-level WARNING)

bench: $(DEV)
	@$(PY) -m benchmarks $(ARGS)

behaviours: $(DEV)
	@$(PY) -m tests.harness.behaviours

demo-reset: $(BASE)
	@$(PY) manage.py demo_reset

docs: $(DEV)
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "Built site/; Berth serves it under /docs"

screenshots: $(DEV) chromium
	@$(PY) -m tests.browser.screenshots $(ARGS)

lock: | $(PY)
	@$(PIP) --require-hashes -r requirements/uv.txt
	@$(COMPILE) $(ARGS) $(PROJECTS) $(RUN_EXTRAS:%=--extra %) -o requirements/base.txt
	@$(COMPILE) $(ARGS) $(PROJECTS) --extra dev -c requirements/base.txt -o requirements/dev.txt
	@$(COMPILE) $(ARGS) requirements/build.in -o requirements/build.txt
	@$(COMPILE) $(ARGS) requirements/uv.in -o requirements/uv.txt

release: $(BASE)
	@$(PY) deploy/release.py $(ARGS)

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Berth needs Python 3.11 or newer; PYTHON=/path/to/python3.11 make run"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "Could not create a virtual environment. On Debian: apt-get install python3-venv"; exit 1; }

$(BASE): requirements/base.txt requirements/build.txt requirements/uv.txt requirements/install.py $(PROJECTS) | $(PY)
	@echo "Installing dependencies into $(VENV) ..."
	@$(call or_explain,$(PIP) --no-compile --require-hashes -r requirements/uv.txt)
	@$(call or_explain,$(INSTALL) --require-hashes -r requirements/base.txt -r requirements/build.txt)
	@$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(DEV): requirements/dev.txt $(BASE)
	@echo "Installing development dependencies into $(VENV) ..."
	@$(call or_explain,$(INSTALL) --require-hashes -r requirements/dev.txt)
	@touch $@

# Install Debian packages. The lists of packages are updated if that was not done in the last ten minutes.
apt_install = { ls /var/lib/apt/lists/*_Packages* && [ -n "$$(find /var/lib/apt/lists -maxdepth 0 -mmin -10)" ] \
		|| apt-get update -qq; } > /dev/null 2>&1; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(1)

or_explain = $(1) || { \
	echo; echo "Could not install the packages. Without a network, point pip at a mirror or a folder of wheels"; \
	echo "(PIP_INDEX_URL, PIP_FIND_LINKS) and run the command again."; exit 1; }

# The headless shell is faster than Chromium, which works as well.
chromium:
	@command -v chromium-headless-shell >/dev/null || { [ "$$(id -u)" = 0 ] && { \
		echo "Installing Chromium for the browser tests ..."; \
		{ $(call apt_install,chromium-headless-shell); } >/dev/null 2>&1; }; } || command -v chromium >/dev/null || { \
		echo "The browser tests need Chromium: sudo apt-get install chromium-headless-shell"; exit 1; }

# Berth isolates pods with bubblewrap. Without it, Berth runs and prints a notice.
bubblewrap:
	@command -v bwrap >/dev/null || { \
		[ "$$(id -u)" = 0 ] || { echo "To isolate pods, install bubblewrap: sudo apt-get install bubblewrap"; exit 1; }; \
		echo "Installing bubblewrap, which isolates pods ..."; \
		{ $(call apt_install,bubblewrap); } \
			>/dev/null || { echo "bubblewrap could not be installed: apt-get install bubblewrap"; exit 1; }; }

# For the tests of container images, which only root can run; without these programs, they are skipped.
podman:
	@[ "$$(id -u)" != 0 ] || { command -v podman && command -v runc && command -v catatonit && \
		command -v docker-registry && command -v busybox; } >/dev/null || { \
		echo "Installing podman and a registry for the tests of container images ..."; \
		{ $(call apt_install,podman runc catatonit docker-registry busybox-static); } \
			>/dev/null 2>&1 || echo "They could not be installed, so these tests are skipped."; }

# For the tests of SSH hosts and Git servers. Those over SSH are skipped without an SSH server.
openssh:
	@[ "$$(id -u)" != 0 ] || { command -v git && { command -v sshd || [ -e /usr/sbin/sshd ]; }; } >/dev/null || { \
		echo "Installing an SSH server and git for the tests of SSH hosts and Git servers ..."; \
		{ $(call apt_install,openssh-server git); } \
			>/dev/null 2>&1 || echo "It could not be installed, so these tests are skipped."; }

# For the tests of Slurm pools, which only root can run; without these programs, they are skipped.
slurm:
	@[ "$$(id -u)" != 0 ] || { command -v slurmctld && command -v slurmd && command -v sbatch && \
		command -v slurmrestd && ls /usr/lib/*/slurm-wlm/auth_jwt.so && command -v munged; } >/dev/null 2>&1 || { \
		echo "Installing Slurm for the tests of Slurm pools ..."; \
		{ $(call apt_install,slurmctld slurmd slurmrestd slurm-wlm-jwt-plugin slurm-client munge); } \
			>/dev/null 2>&1 || echo "It could not be installed, so these tests are skipped."; }

clean:
	@rm -rf build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
