# What a newcomer needs: `make run` serves on http://127.0.0.1:8000, `make test` runs the tests.
# Each sets up what it needs in $(VENV), and does so again only when the requirements change.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
UV := $(BIN)/uv
# What `make test` passes on to pytest: ARGS="-k replay", or ARGS=--full for the slow tests as well.
ARGS ?=

# Stamps: made when their step is complete, so an interrupted one is done again.
CREATED := $(VENV)/.created
INSTALLER := $(VENV)/.installer-installed
BASE := $(VENV)/.base-installed
DEV := $(VENV)/.dev-installed
NODE_PACKAGES := tests/socket_io_client tests/mcp_conformance
NODE := $(NODE_PACKAGES:%=%/node_modules/.installed)

.PHONY: help run test check bench cluster standby faults wires pictures requirements clean

help:
	@echo "make run           set up if needed, migrate and serve"
	@echo "make test          the tests, on every database that can be reached (ARGS=--full: the slow ones, too)"
	@echo "make check         lint, format, types, layers, migrations, API document, deployment"
	@echo "make bench         measure against the limits of this machine"
	@echo "make cluster       kill parts of a running cluster, and check that nothing is lost"
	@echo "make standby       kill a PostgreSQL primary under load, and promote its synchronous standby"
	@echo "make faults        break servers in many ways while clients use them, and check every answer"
	@echo "make wires         compare the routes of the newest OpenHands packages with docs/compatibility.md"
	@echo "make pictures      take pictures of every page: docs/pictures/ anew, all others in build/pictures/"
	@echo "make requirements  pin requirements/*.in again (UPGRADE=--upgrade for the newest of everything)"
	@echo "make clean         remove what can be made again; data in var/ stays"

run: $(BASE)
	@$(BIN)/python -m convserver serve

# Without npm or Chromium, tests skip what they need it for, and say so at the end.
test: $(DEV) $(if $(shell command -v npm 2>/dev/null),$(NODE))
	@$(BIN)/python -m tests.engines $(ARGS)

bench: $(DEV)
	@$(BIN)/python -m benchmarks $(ARGS)

cluster: $(DEV)
	@$(BIN)/python -m faults.cluster $(ARGS)

standby: $(DEV)
	@$(BIN)/python -m faults.standby $(ARGS)

faults: $(DEV)
	@$(BIN)/python -m faults.suite $(ARGS)

wires: $(DEV)
	@$(BIN)/python -m wires

pictures: $(DEV)
	@$(BIN)/python -m tests.browser.pictures


# Checks that load the settings see a bare environment and a data directory of their own.
SETTINGS_ENV := env -i PATH="$$PATH" HOME="$$HOME" CONVSERVER_DATA_DIR=$(VENV)/check-data
TEST_DATABASE_URL ?= postgresql://postgres@127.0.0.1:5432/postgres
export TEST_DATABASE_URL

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.house
	$(SETTINGS_ENV) $(BIN)/mypy
	$(SETTINGS_ENV) $(BIN)/python manage.py makemigrations --check --dry-run
	@if $(BIN)/python -c 'from tests.engines import postgresql_problem; exit(postgresql_problem())'; then \
		echo "makemigrations --check --dry-run, on PostgreSQL"; \
		$(SETTINGS_ENV) DATABASE_URL="$$TEST_DATABASE_URL" $(BIN)/python manage.py makemigrations --check --dry-run; \
	fi
	$(SETTINGS_ENV) $(BIN)/python manage.py spectacular --validate --fail-on-warn --file /dev/null
	$(SETTINGS_ENV) CONVSERVER_AUTH=accounts CONVSERVER_ALLOWED_HOSTS=example.org \
		SECRET_KEY="$$($(BIN)/python -c 'import secrets; print(secrets.token_urlsafe(64))')" \
		$(BIN)/python manage.py check --deploy --fail-level WARNING


# One file of pins for every platform and Python, with hashes and without the place they came from.
COMPILE := UV_CUSTOM_COMPILE_COMMAND="make requirements" $(UV) pip compile --quiet --no-config \
	--universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-emit-find-links $(UPGRADE)

requirements: $(INSTALLER)
	$(COMPILE) --output-file requirements/installer.txt requirements/installer.in
	$(COMPILE) --output-file requirements/base.txt requirements/base.in
	$(COMPILE) --output-file requirements/dev.txt requirements/dev.in

clean:
	rm -rf $(VENV) $(NODE_PACKAGES:%=%/node_modules) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache test-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +


$(CREATED):
	@command -v $(PYTHON) >/dev/null || \
		{ echo "convserver needs Python 3.11 or newer, but there is no $(PYTHON) here." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "convserver needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1): choose another with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make a virtual environment; on Debian, apt-get install python3-venv brings what is missing." >&2; exit 1; }
	@echo "Making $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Takes seconds for what takes pip more than a minute. Without it, pip does all.
$(INSTALLER): requirements/installer.txt $(CREATED)
	@$(PIP) install --quiet --only-binary :all: --require-hashes -r requirements/installer.txt \
		|| echo "uv could not be installed: pip goes on, which takes longer." >&2
	@touch $@

# Some machines tell pip alone where packages are.
define install
	@{ test -x $(UV) && $(UV) pip install --quiet --python $(BIN)/python --require-hashes -r $(1); } \
		|| { echo "pip does it instead ..." >&2; $(PIP) install --quiet --no-compile --require-hashes -r $(1); }
endef

$(BASE): requirements/base.txt $(INSTALLER)
	@echo "Installing what convserver needs ..."
	$(call install,requirements/base.txt)
	@touch $@

# dev.txt holds base.txt as well, so `make run` after this has nothing left to install.
$(DEV): requirements/dev.txt requirements/base.txt $(INSTALLER)
	@echo "Installing what working on convserver needs ..."
	$(call install,requirements/dev.txt)
	@touch $(BASE) $@

# Without a network the tests go on without it, and say so as well.
$(NODE): %/node_modules/.installed: %/package-lock.json
	@echo "Installing what tests drive in $* ..."
	@if (cd $* && npm ci --silent --no-audit --no-fund); then touch $@; \
		else echo "npm could not install it." >&2; fi
