# Two commands do everything: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint bench clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch torchvision
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	# without the old requests that it asks for and never imports
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'torchattacks>=3.5,<4'
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

# what the README and the tutorial tell a newcomer to do, in an environment of its own
.PHONY: docs-smoke
docs-smoke: $(STAMP)
	$(BIN)/python tests/docs_smoke.py

clean:
	rm -rf $(VENV) runs build dist
