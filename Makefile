# Everything runs in .venv with the versions of constraints.txt. `make help` lists the targets.
# Another Python: make test PYTHON=/path/to/python3.12 (after `make clean`).

PYTHON ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RESULTS := outputs/memory-wall

.PHONY: help sweep report test test-long lint wheel-check clean
.DELETE_ON_ERROR:

help:
	@echo "make sweep        run the shipped study memory-wall and write its report"
	@echo "make report       write the report of $(RESULTS) again"
	@echo "make test         lint, types, layers and the tests"
	@echo "make test-long    the tests that compile for minutes: gradients of every metric"
	@echo "make lint         ruff, mypy and import-linter only"
	@echo "make wheel-check  build sdist and wheel, then use the wheel outside this folder"
	@echo "make clean        remove .venv and caches; results in outputs/ stay"

sweep: .venv/.core
	$(BIN)/kvwall sweep memory-wall
	$(BIN)/kvwall report $(RESULTS)

report: .venv/.core
	$(BIN)/kvwall report $(RESULTS)

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

test-long: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m long

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The sdist is built first and the wheel from it, so both are known to be whole.
wheel-check: .venv/.test
	@set -eu; work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; \
	$(BIN)/python -m hatchling build -t sdist -d "$$work/dist"; \
	tar -xzf "$$work"/dist/*.tar.gz -C "$$work"; \
	here=$$(pwd); cd "$$work"/kvwall-*; \
	"$$here/$(BIN)/python" -m hatchling build -t wheel -d "$$work/dist"; cd "$$here"; \
	$(PIP) install --quiet --no-deps --target "$$work/site" "$$work"/dist/*.whl; \
	cd "$$work"; PYTHONPATH="$$work/site" "$$here/$(BIN)/python" -c 'import sys, kvwall.spaces; \
	sys.exit(None if kvwall.spaces.__file__.startswith(sys.argv[1]) else "not the wheel: " + kvwall.spaces.__file__)' "$$work/site"; \
	PYTHONPATH="$$work/site" "$$here/$(BIN)/python" "$$work/site/bin/kvwall" catalog hardware > catalog.txt; \
	test -s catalog.txt; echo "wheel-check: sdist and wheel are whole"

clean:
	rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# --- environment: each stamp is made last, so an interrupted step is done again ---------------

.venv/.core: pyproject.toml constraints.txt | .venv/.ready
	@echo "Installing kvwall and its pinned dependencies into .venv (about a minute)"
	@$(PIP) install --quiet -c constraints.txt hatchling
	@$(PIP) install --quiet -c constraints.txt --no-build-isolation -e .
	@touch $@

.venv/.test: .venv/.core
	@echo "Installing the pinned test tools into .venv"
	@$(PIP) install --quiet -c constraints.txt --no-build-isolation -e ".[test]"
	@touch $@

# Debian and Ubuntu split ensurepip off into python3-venv: without it a pip found on the system
# fills the environment, and where there is no pip either, the message says what to install.
.venv/.ready:
	@set -eu; python=; \
	for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  python=$$candidate; break; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "kvwall needs Python 3.11 or later: none found as $(or $(PYTHON),python3 or python3.11 to python3.13). Install one, or name it: make PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	echo "Creating .venv with $$("$$python" --version)"; \
	rm -rf .venv; \
	if "$$python" -c 'import ensurepip' 2>/dev/null; then \
	  "$$python" -m venv .venv; \
	elif "$$python" -m pip --version >/dev/null 2>&1; then \
	  "$$python" -m venv --without-pip .venv; \
	  "$$python" -m pip --python $(BIN)/python install --quiet pip; \
	else \
	  echo "$$python has neither ensurepip nor pip. On Debian or Ubuntu: apt-get install python3-venv" >&2; \
	  exit 1; \
	fi; \
	touch $@
