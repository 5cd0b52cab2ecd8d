# make demo    compile the digits network for this CPU and classify held-out images
# make test    all tests      make check   tests, lint, format, types
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
comma  := ,
CC_FOUND := $(shell command -v $${CC:-cc} || command -v gcc || command -v clang)
EXTRAS := onnx$(if $(CC_FOUND),,$(comma)zig)
SKIP   ?=

.PHONY: demo test check lint types bench clean update-golden

demo: $(STAMP)
	$(PY) examples/digits/demo.py

test: $(VENV)/.tested-extras
	$(PY) -m pytest -n 2 $(SKIP)

check: $(VENV)/.tested-extras lint types
	$(PY) -m pytest -n 2 $(SKIP)

lint: $(VENV)/.check-extras
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.check-extras
	$(PY) -m mypy

update-golden: $(VENV)/.tested-extras
	$(PY) -m pytest -n 2 tests/golden tests/frontend/test_show_operations.py --update-golden

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml
	$(PY) -m pip install --quiet --editable ".[$(EXTRAS)]"
	touch $@

$(VENV)/.tested-extras: $(STAMP)
	$(PY) -m pip install --quiet --editable ".[$(EXTRAS),test]"
	touch $@

$(VENV)/.check-extras: $(STAMP)
	$(PY) -m pip install --quiet --editable ".[check]"
	touch $@

clean:
	rm -rf $(VENV) build dist dumps
