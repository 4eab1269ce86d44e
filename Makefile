# Everything is set up in .venv by the first target that needs it; `make` alone lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# The first Python that is new enough; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

BIN := .venv/bin
JOBS := 2
# A file's tests stay together: some look for processes by arguments that others of the file have.
TEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile
SOURCES := $(wildcard src/_sandcore/*/*.[ch] src/_sandcore/binding/*.p[xy][dix])
C_FILES := $(wildcard src/_sandcore/core/*.[ch] src/_sandcore/helper/*.[ch] \
	src/_sandcore/launcher/*.[ch] src/_sandcore/include/*.h tests/fuzz/*.[ch] tests/fuzz/*/*.h)
CORE_TESTS = $(shell grep -lE '^(from ccore import|import ccore)' tests/test_*.py)
OURS := src tests tools $(wildcard bench demo) setup.py
HELPER_TESTS := $(addprefix tests/test_,lanes.py namespaces.py)
ASAN = LD_PRELOAD=$$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0

.PHONY: help build test demo bench versus sanitize lint format fuzz afl valgrind soak foreign vm test-macos clean kernel

help:
	@echo 'make build     .venv with the compiled package (PYTHON=... chooses the interpreter)'
	@echo 'make test      the tests (ARGS=... goes to pytest; JOBS=0 for one process)'
	@echo 'make demo      a project and a misbehaving agent, confined'
	@echo 'make bench     what confinement costs beside a bare C floor'
	@echo 'make versus    beside the standard library and other sandboxes, which it installs; with plots'
	@echo 'make sanitize  the tests of the C core under ASan and UBSan, of the helper under UBSan'
	@echo 'make lint      ruff, mypy, stubtest, clang-format, strict warnings'
	@echo 'make format    ruff and clang-format, in place'
	@echo 'make fuzz      a longer run of the property tests'
	@echo 'make afl       AFL++ on what C reads for ten minutes (ARGS=60: for one)'
	@echo 'make valgrind  the same programs on what was found, under memcheck'
	@echo 'make soak      thousands of commands, killed callers, hundreds of sandboxes'
	@echo 'make foreign   the tests of subprocess, asyncio, anyio, trio and psutil, with the drop-in in place'
	@echo 'make vm        the tests ARGS=... under another kernel, KERNEL=..., in a virtual machine'
	@echo 'make test-macos on a Mac: profiles, all faces, and what no other machine can say'
	@echo 'make clean     removes what the others made'

# The environment: made anew when what is installed in it changes.
.venv/.installed: pyproject.toml tools/require.py
	@test -n '$(PYTHON)' || { echo 'error: sandcore needs Python 3.11 or newer:' \
		'apt-get install python3.11 python3.11-venv' >&2; exit 1; }
	@$(PYTHON) tools/require.py build
	@$(BIN)/python -c 'import sys' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -q --disable-pip-version-check 'setuptools>=77' 'cython>=3.1'
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[dev]'
	@mkdir -p build && touch $@ build/.compiled

build/.compiled: setup.py $(SOURCES) | .venv/.installed
	@$(BIN)/python setup.py -q build_ext --inplace
	@mkdir -p build && touch $@

build: .venv/.installed build/.compiled

kernel: .venv/.installed
	@$(BIN)/python tools/require.py kernel

test: build kernel
	@$(TEST) $(ARGS)

demo: build kernel
	@$(BIN)/python demo/run.py

bench: build kernel
	@$(BIN)/python bench/run.py

versus: build kernel
	@$(BIN)/python -m pip install -q --disable-pip-version-check 'matplotlib>=3.8'
	@$(BIN)/python -W ignore bench/versus.py --install --plots docs/plots $(ARGS)

sanitize: build kernel
	@SANDCORE_SANITIZE=1 $(ASAN) $(TEST) $(CORE_TESTS) $(ARGS)
	@SANDCORE_SANITIZE=1 $(BIN)/python setup.py -q build --build-base build/sanitized \
		--build-lib build/sanitized/lib
	@PYTHONPATH=$(CURDIR)/build/sanitized/lib $(TEST) $(HELPER_TESTS) $(ARGS)

lint: build
	@$(BIN)/ruff check $(OURS)
	@$(BIN)/ruff format --check $(OURS)
	@$(BIN)/mypy src/sandbox src/_sandcore tools
	@$(BIN)/python -m mypy.stubtest _sandcore
	@$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	@SANDCORE_STRICT=1 $(BIN)/python setup.py -q build_ext --force \
		--build-lib build/strict --build-temp build/strict/objects
	@echo 'lint: clean'

format: .venv/.installed
	@$(BIN)/ruff check -q --fix-only $(OURS) && $(BIN)/ruff format -q $(OURS)
	@$(BIN)/clang-format -i $(C_FILES)

fuzz: build kernel
	@HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -m hypothesis $(ARGS)

afl: build kernel
	@$(BIN)/python tests/fuzz/fuzzing.py afl $(ARGS)

valgrind: build kernel
	@$(BIN)/python tests/fuzz/fuzzing.py valgrind

soak: build kernel
	@$(BIN)/python tests/soak.py $(ARGS)

foreign: build kernel
	@$(BIN)/python tests/foreign.py $(ARGS)

# KERNEL: a directory into which a kernel package was unpacked; ARGS: for pytest.
vm: build
	@$(BIN)/python tools/vm.py '$(KERNEL)' $(ARGS)

# Without a compiled core: what is listed here needs none.
test-macos: .venv/.installed
	@$(BIN)/python -m pytest $(addprefix tests/test_,sbpl.py seatbelt.py meaning.py macos.py mac_live.py) $(ARGS)

clean:
	rm -rf .venv build dist src/*.egg-info src/_sandcore/*.so src/_sandcore/sandcore-helper src/_sandcore/sandcore-exec
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
