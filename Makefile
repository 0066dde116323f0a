# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The versions with which the tests have passed: without them a new release of a tool could turn them red.
LOCK := .constraints.txt
PIP = PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.installed-runtime
# How many test files run at the same time.
TEST_JOBS ?= 3
UNIT_JOBS ?= 2
# Tests start about a thousand processes of ours: each would compile our modules again without byte code on the disk.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := install
.PHONY: help install lock up check lint fmt test unit coverage docs sim soak deploy-check drill drill-soak example bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## Create .venv and install everything, Spark and tests too (1.4 GiB)

# What a cluster needs is little; Spark, browsers and tests are much more.
$(RUNTIME): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit("lmqcluster needs Python 3.11 or newer, this is %s" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo 'Installing lmqcluster into $(VENV), once ...'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
	@$(PIP) --constraint $(LOCK) --editable '.[thrift]'
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME) pyproject.toml $(LOCK)
	@echo 'Installing Spark and what tests and benchmarks need into $(VENV), about 1.4 GiB, once ...'
	@$(PIP) --constraint $(LOCK) --editable '.[dev,bench,spark,thrift]'
	@touch $(STAMP)

lock: install ## Take the latest versions of everything into .constraints.txt
	@$(PIP) uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --upgrade --no-header --no-annotate --quiet --output-file $(LOCK)
	@git diff --stat -- $(LOCK)

up: $(RUNTIME) ## Run a cluster of three nodes on this machine
	@$(BIN)/lmq dev

lint: install ## Check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy lmqcluster cli chaos tests
	$(BIN)/lint-imports

fmt: install ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: install ## Run the unit tests
	$(BIN)/pytest -q -n $(UNIT_JOBS) --dist loadfile tests/unit

# Twice as slow as without. Spark's tests take long and run few lines of ours, so they are left out.
COVERAGE_TESTS ?= tests --ignore=tests/benchmarks --ignore=tests/spark
coverage: install ## Say which lines the tests run: make coverage COVERAGE_TESTS=tests/unit
	@mkdir -p build/coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -n $(TEST_JOBS) --dist loadfile $(COVERAGE_TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report | tail -n 40
	@echo 'Open build/coverage/html/index.html'

docs: install ## Build the documentation into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --config-file .mkdocs.yml
	@echo 'Open build/site/index.html; its search needs a web server, such as python -m http.server --directory build/site'

check: lint unit ## Run lint and unit: before every commit

test: lint ## Run everything that CI runs (tens of minutes)
	$(BIN)/pytest tests --ignore=tests/benchmarks -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --durations=10

# What takes minutes to fetch and build: Helm and Docker Compose; and the systemd unit in a systemd of its own, for which one has to be root.
deploy-check: install ## Check deploy/ with Helm, Docker Compose and systemd, which are built first (minutes)
	LMQ_DEPLOY_TOOLS=build $(BIN)/pytest tests/deploy

sim: install ## Replay a run of the simulator: make sim SEED=7
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),1) $(SIM_ARGS)

# An hour of new seeds, two processes at a time.
soak: install ## Run the simulator with new seeds: make soak MINUTES=60
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),$(shell date +%s)) --minutes $(or $(MINUTES),60) --jobs 2

drill: install ## Run every failover drill on real processes
	$(BIN)/lmq-drill suite full $(DRILL_ARGS)

drill-soak: install ## Run failover drills with new seeds: make drill-soak HOURS=8
	$(BIN)/lmq-drill suite soak --hours $(or $(HOURS),1) $(DRILL_ARGS)

# 336,776 flights through queues into a table; a node and the query are killed on the way.
example: install ## Run the flights through Spark while nodes die
	$(BIN)/python -m tests.spark.flights_example $(EXAMPLE_ARGS)

bench: install ## Measure speed, with plots in build/bench: make bench BENCH_ARGS=--quick
	@mkdir -p build/bench
	$(BIN)/python -m tests.benchmarks --json build/bench/result.json $(BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.plots build/bench/result.json build/bench
	$(BIN)/python -m tests.benchmarks.backlog $(BACKLOG_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.observed $(OBSERVED_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.core $(CORE_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.delivery $(DELIVERY_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.transactions $(TRANSACTION_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.spark $(SPARK_BENCH_ARGS)

clean: ## Remove .venv, var and build
	rm -rf $(VENV) var build *.egg-info
