# `make run` starts everything; `make test` checks everything. Both start from nothing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Half a virtual environment is none: what it would install went into the machine's own Python.
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
export PYTHONPATH := $(CURDIR):$(CURDIR)/platform
export DJANGO_SETTINGS_MODULE := berth.server.settings

BASE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
PIP := $(PY) -m pip --require-virtualenv --disable-pip-version-check --no-input install -qq --root-user-action=ignore
# What `make run` installs beyond the client.
RUN_EXTRAS := server embedded top aws otel
COMPILE := $(PY) -m uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
	--no-emit-index-url --no-emit-find-links

# A command is silent when it is content, and says everything when it is not.
quiet = printf '  %-10s' '$(1)'; if told=$$($(2) 2>&1); then echo ok; else echo; echo "$$told"; exit 1; fi

.PHONY: help run test test-heavy lint types check bench behaviours demo-reset lock chromium clean

help:
	@echo "make run         start Berth with a demo organisation; Ctrl-C ends it"
	@echo "make test        lint, types, contracts, tests"
	@echo "make test-heavy  the tests that take their time"
	@echo "make lint        ruff and the import contracts"
	@echo "make check       lint, types, Django's own checks"
	@echo "make bench       the measured scenarios"
	@echo "make behaviours  which promised behaviours the tests show"
	@echo "make demo-reset  make the demo organisation anew"
	@echo "make lock        pin the dependencies of pyproject.toml again"

run: $(BASE)
	@exec $(PY) -m berth.server.up --demo $(if $(HOST),--host $(HOST)) $(if $(PORT),--port $(PORT))

test: $(DEV) chromium
	@$(MAKE) check
	@$(PY) -m pytest -q -n auto --dist loadfile -m "not heavy" $(ARGS)

test-heavy: $(DEV) chromium
	@$(PY) -m pytest -q -m heavy $(ARGS)

lint: $(DEV)
	@$(call quiet,ruff,$(PY) -m ruff check .)
	@$(call quiet,format,$(PY) -m ruff format --check .)
	@$(call quiet,imports,$(VENV)/bin/lint-imports --no-cache --no-logo)

types: $(DEV)
	@$(call quiet,mypy,$(PY) -m mypy platform/berth scheduler pools projects)

check: lint types
	@$(call quiet,django,$(PY) -m django check --fail-level WARNING)

bench: $(DEV)
	@$(PY) -m benchmarks $(ARGS)

behaviours: $(DEV)
	@$(PY) -m tests.behaviours

demo-reset: $(BASE)
	@$(PY) manage.py demo_reset

lock: | $(PY)
	@$(PY) -c "import uv" 2>/dev/null || $(PIP) uv
	@$(COMPILE) $(ARGS) pyproject.toml $(RUN_EXTRAS:%=--extra %) -o requirements/base.txt
	@$(COMPILE) $(ARGS) pyproject.toml --extra dev -c requirements/base.txt -o requirements/dev.txt
	@$(COMPILE) $(ARGS) requirements/build.in -o requirements/build.txt

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Berth needs Python 3.11 or newer; PYTHON=/path/to/python3.11 make run"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { echo "No virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }

$(BASE): requirements/base.txt requirements/build.txt pyproject.toml | $(PY)
	@echo "Installing what Berth needs into $(VENV) ..."
	@$(call install,-r requirements/base.txt -r requirements/build.txt)
	@$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(DEV): requirements/dev.txt $(BASE)
	@echo "Installing what its tests need into $(VENV) ..."
	@$(call install,-r requirements/dev.txt)
	@touch $@

install = $(PIP) --require-hashes $(1) || { \
	echo; echo "The packages could not be installed. Without a network, point pip at a mirror or a folder of"; \
	echo "wheels (PIP_INDEX_URL, PIP_FIND_LINKS) and run this again; what was installed already is kept."; exit 1; }

chromium:
	@command -v chromium >/dev/null || { \
		[ "$$(id -u)" = 0 ] || { echo "The browser tests need Chromium: sudo apt-get install chromium"; exit 1; }; \
		echo "Installing Chromium for the browser tests ..."; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } \
			>/dev/null || { echo "Chromium could not be installed: apt-get install chromium"; exit 1; }; }

clean:
	@rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
