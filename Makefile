# make demo   train FedAvg and ReBaFL under the same dropout, compare them in a table and a picture
# make demo-check   the same, and its picture must be docs/demo.png byte for byte
# make bench-peers bench   how fast it is, beside the simulators one would use instead
# make chaos  a federation whose machines are killed all the time, and what was left of it
# make test   set-up, lint, types, the whole test suite and how much of the code it runs
# make check  the same without slow tests
# make docs   the documentation as a site: site/index.html
# make dist   a wheel and an sdist in dist/
PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS)

PYTEST := $(BIN)/pytest --numprocesses 2 --dist worksteal  # tests that wait for others leave a core idle

PEERS := flower pfl fedlab
.PHONY: demo demo-check test check chaos lint docs dist install install-hashed browser bench bench-peers clean

demo: .venv/.installed
	$(BIN)/rebafl demo

demo-check: demo
	cmp demo/curves.png docs/demo.png

test: lint browser
	$(PYTEST) --cov --cov-report=
	@echo "Coverage: $$($(BIN)/coverage report) % of the lines"

# the views are tested in a real browser: Debian's chromium, installed where that can be done without a question
browser:
	@command -v chromium >/dev/null \
		|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update --quiet=2 \
			&& apt-get install --yes --quiet=2 --no-install-recommends chromium >/dev/null; } \
		|| echo "There is no chromium: the tests that need a browser are skipped (Debian: apt-get install chromium)."

check: lint
	$(PYTEST) -m "not slow"

# some six minutes; writes what docs/federation.md shows
chaos: .venv/.installed-dev
	$(BIN)/python tests/chaos.py chaos --report docs/measured/chaos.json
	$(BIN)/python tools/make_docs.py

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# offline; a warning (a link that leads nowhere, a page that is not in the menu) is an error
docs: .venv/.installed-dev
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --write-all -d site/.doctrees docs site
	@echo "site/index.html"

# a wheel and an sdist, which `make test` builds and tries as well
dist: .venv/.installed-dev
	$(BIN)/python -m hatchling build -d dist

install: .venv/.installed-dev

# the same, but every file must be one of those in pins.txt, byte for byte; for Python 3.11 on Linux, x86-64
install-hashed: pins.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) --require-hashes --requirement pins.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	@touch .venv/.installed .venv/.installed-dev

# about 20 minutes on a machine with nothing else to do; peers that are not installed are left out
bench: .venv/.installed
	$(BIN)/rebafl bench

# each in an environment of its own, pinned
bench-peers: $(PEERS:%=.bench/%/.installed)

.bench/%/.installed: src/rebafl/bench/peers/requirements-%.txt
	@echo "Setting up .bench/$*"
	@$(PYTHON) -m venv .bench/$*
	@.bench/$*/bin/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) $(if $(filter fedlab,$*),--no-deps) \
		--requirement $<
	@touch $@

.venv/.installed: pyproject.toml constraints.txt
	@echo "Setting up .venv (a few minutes the first time: PyTorch is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --editable .
	@touch $@

.venv/.installed-dev: .venv/.installed
	@$(PIP_INSTALL) --editable ".[dev]"
	@touch $@

clean:
	rm -rf .venv .bench demo chaos site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
