# make demo    compile the digits network for this CPU and classify held-out images
# make test    all tests      make check   tests, lint, format, types
# make docs    the documentation as a site, in build/site
# make gpu     on a machine with a GPU: correctness, lane tables, benchmarks, in under nine minutes and without a network
PYTHON ?= python3
VENV   ?= .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
comma  := ,
CC_FOUND := $(shell command -v $${CC:-cc} || command -v gcc || command -v clang)
EXTRAS := onnx$(if $(CC_FOUND),,$(comma)zig)
SKIP   ?=

# Of the machine that `make gpu` runs on; `make gpu-wheels` fetches what such a machine may lack, to be brought along.
GPU_PYTHON  ?= python3
GPU_VERSION ?= 3.12
GPU_CHIP    ?= h100
WHEELS      ?= wheels
GPU_NEEDS   := msgspec islpy lark platformdirs ml_dtypes click rich markdown-it-py mdurl pygments cuda-bindings~=13.0.0 cuda-pathfinder
PLATFORMS   := $(foreach n,2_28 2_27 2_24 2_17,--platform manylinux_$(n)_x86_64) --platform manylinux2014_x86_64 --platform any

.PHONY: demo test check docs lint types newest bench clean update-golden gpu gpu-wheels gpu-cache

demo: $(STAMP)
	$(PY) examples/digits/demo.py

test: $(VENV)/.tested-extras
	$(PY) -m pytest -n 2 --dist loadgroup $(SKIP)

check: $(VENV)/.tested-extras lint types test

lint: $(VENV)/.check-extras
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m tests.docs.language

types: $(VENV)/.check-extras
	$(PY) -m mypy

# Without `--quiet`, which would hide the warnings that end a strict build. The notice of MkDocs 2 is about its next version,
# which pyproject.toml excludes.
docs: $(VENV)/.docs-extras
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build

# On another Python: what a change of the language or its library breaks first, in some four minutes.
NEWEST ?= python3.13
newest:
	$(NEWEST) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python -m pip install --quiet --editable . "pytest>=8" "hypothesis>=6.100" "onnx==1.23.2"
	$(VENV)-newest/bin/python -m pytest -q -p no:cacheprovider tests/chain/test_packed.py tests/storage/test_tatami_file.py tests/storage/test_verbatim_code.py \
	  tests/runtime/building/test_apart.py tests/runtime/building/test_cache.py tests/api/test_arguments.py tests/core

update-golden: $(VENV)/.tested-extras
	$(PY) -m pytest -n 2 tests/golden tests/frontend/test_show_operations.py tests/onnx/microsoft/test_table.py tests/docs/test_decisions.py tests/docs/test_readme.py --update-golden

gpu:
	if ls $(WHEELS)/*.whl >/dev/null 2>&1; then \
	  $(GPU_PYTHON) -m pip install -q --no-index --no-deps --no-compile --upgrade --target .gpu-site $(WHEELS)/*.whl; fi
	PYTHONPATH=$$PYTHONPATH:$(CURDIR)/.gpu-site $(GPU_PYTHON) -m benchmarks.gpu $(GPU_ARGS)

# Machine code of what `make gpu` compiles, to be brought along: its minutes then go to kernels.
gpu-cache: $(STAMP)
	$(PY) -m benchmarks.gpu.cubin_cache --chip $(GPU_CHIP)

gpu-wheels:
	$(PYTHON) -m pip download -q --no-deps --only-binary=:all: --python-version $(GPU_VERSION) --implementation cp \
	  $(PLATFORMS) -d $(WHEELS) $(GPU_NEEDS)

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

$(VENV)/.docs-extras: $(STAMP)
	$(PY) -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build dist dumps
