# Two commands do everything: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench clean

PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Locked first, so that pip takes what torch and whorl ask for from there, checked by its hash.
$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --require-hashes --only-binary :all: -r requirements-dev.txt
	$(PIP) --no-warn-conflicts -c constraints.txt torch torchvision
	$(PIP) --no-deps --no-build-isolation -e .
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/whorl demo

test: $(STAMP)
	$(BIN)/python -m pytest -n auto

# a hostile user: settings, TOML, Python, command line, files; the seed that it prints brings the same cases again
.PHONY: fuzz
FUZZ_CASES ?= 5000
FUZZ_SEED ?= $(shell date +%s)
fuzz: $(STAMP)
	FUZZ_CASES=$(FUZZ_CASES) FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest tests/fuzz -q -p no:cacheprovider --timeout=0

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python benchmarks/estimator.py
	$(BIN)/whorl bench

# every measured figure of README and docs, recomputed from benchmarks/results
.PHONY: verify-docs
verify-docs: $(STAMP)
	$(BIN)/python benchmarks/verify_docs.py

# the documentation's site, and every page of it in a browser
.PHONY: site site-check
site: $(STAMP)
	$(BIN)/python -m mkdocs build --strict --site-dir build/site

site-check: $(STAMP)
	$(BIN)/python -m pytest tests/test_site.py -m "slow or not slow" -p no:cacheprovider

# what the README and the tutorial tell a newcomer to do, in an environment of its own
.PHONY: docs-smoke
docs-smoke: $(STAMP)
	$(BIN)/python tests/docs_smoke.py

# the notebooks of examples/, run, with what came out kept in them
.PHONY: notebooks
notebooks: $(STAMP)
	$(BIN)/python tests/notebook_runs.py

# the wheel, in an environment that has nothing but what it asks for
.PHONY: wheel-smoke
wheel-smoke:
	tests/wheel_smoke.sh $(PYTHON)

# what `make test` installs, all but torch and torchvision; `make lock UPGRADE=--upgrade` takes newer versions
.PHONY: lock
lock: $(STAMP)
	$(PIP) uv
	echo 'torchattacks>=3.5,<4' | $(BIN)/uv pip compile --quiet $(UPGRADE) -c constraints.txt -o requirements-dev.txt pyproject.toml -

clean:
	rm -rf $(VENV) runs build dist
