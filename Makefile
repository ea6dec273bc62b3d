# make demo   train FedAvg and ReBaFL under the same dropout, compare them in a table and a picture
# make test   set-up, lint, types and the whole test suite
PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
PIP_INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS)

.PHONY: demo test check lint install clean

demo: .venv/.installed
	$(BIN)/rebafl run examples/demo.toml algorithm=fedavg out=demo/fedavg
	$(BIN)/rebafl run examples/demo.toml algorithm=rebafl out=demo/rebafl
	$(BIN)/rebafl compare demo/fedavg demo/rebafl --png demo/curves.png

test: lint
	$(BIN)/pytest

check: lint
	$(BIN)/pytest -m "not slow"

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: .venv/.installed-dev

.venv/.installed: pyproject.toml constraints.txt
	@echo "Setting up .venv (a few minutes the first time: PyTorch is large)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(PIP_INSTALL) --editable .
	@touch $@

.venv/.installed-dev: .venv/.installed
	@$(PIP_INSTALL) --editable ".[dev]"
	@touch $@

clean:
	rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
