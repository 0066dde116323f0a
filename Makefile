# `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The tested versions: without them a new release of a tool could break the tests.
LOCK := .constraints.txt
PIP = PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.installed-runtime
# JVMs of tests start from it with a third less processor time.
SPARK_CLASSES := build/spark-classes.jsa
# Number of concurrent test files.
TEST_JOBS ?= 3
UNIT_JOBS ?= 3
# Tests that attack ports or depend on how connections end; they run once more with front-end processes.
FRONT_END_TESTS := refusals refusal_flood unauthenticated half_closed foreign_protocols greedy_clients client_limits \
	few_descriptors hang_up http_memory bad_input_http bad_input_rpc access_tls kestrel_security pipelining http_repeats sqs_attacks
# Tests start about a thousand Python processes, each of which would compile all modules without byte code on disk.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := install
.PHONY: help install lock up check lint fmt test unit coverage docs release sim soak deploy-check drill drill-soak example bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## Create .venv and install everything, Spark and tests too (1.4 GiB)

# A cluster needs little; Spark, browsers and tests need much more.
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

lock: install ## Update .constraints.txt to the latest versions
	@$(PIP) uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --upgrade --no-header --no-annotate --quiet --output-file $(LOCK)
	@git diff --stat -- $(LOCK)

up: $(RUNTIME) ## Run a cluster of three nodes on this machine
	@$(BIN)/lmq dev

lint: install ## Check style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy lmqcluster cli chaos deploy tests
	$(BIN)/lint-imports

fmt: install ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: install ## Run the unit tests
	$(BIN)/pytest -q -n $(UNIT_JOBS) --dist loadfile tests/unit

# Takes twice as long as without coverage. Spark's tests take long and run few lines of this repository, so they are omitted.
COVERAGE_TESTS ?= tests --ignore=tests/benchmarks --ignore=tests/spark
coverage: install ## Report the lines that tests run: make coverage COVERAGE_TESTS=tests/unit
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

release: install ## Build sdist, wheel, image, site, SBOM and checksums into dist/
	$(BIN)/python -m deploy.release $(RELEASE_ARGS)

# Types are checked by one process, so tests run beside it.
check: install ## Run lint and unit: before every commit
	@$(MAKE) --no-print-directory --output-sync=target --jobs 2 lint unit

$(SPARK_CLASSES): $(STAMP)
	@echo 'Archiving the classes of Spark, once ...'
	@$(BIN)/python -W ignore -m tests.spark.class_archive

# Unit tests run before the others, which leave clusters running in each of the concurrent processes.
test: install ## Run everything that CI runs (tens of minutes)
	@$(MAKE) --no-print-directory --output-sync=target --jobs 3 lint unit $(SPARK_CLASSES)
	$(BIN)/pytest tests --ignore=tests/benchmarks --ignore=tests/unit -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --durations=10
	TEST_FRONT_ENDS=2 $(BIN)/pytest $(FRONT_END_TESTS:%=tests/integration/test_%.py) -q -n $(TEST_JOBS) --dist loadfile

# Downloads and builds Helm, Docker Compose and KEDA's scalers, which takes minutes, and starts a separate systemd, which needs root.
deploy-check: install ## Build Helm, Docker Compose and KEDA, and check deploy/ with them and systemd (minutes)
	LMQ_DEPLOY_TOOLS=build $(BIN)/pytest tests/deploy

sim: install ## Replay a run of the simulator: make sim SEED=7
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),1) $(SIM_ARGS)

# An hour of new seeds, in two processes.
soak: install ## Run the simulator with new seeds: make soak MINUTES=60
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),$(shell date +%s)) --minutes $(or $(MINUTES),60) --jobs 2

drill: install ## Run every failover drill on real processes
	$(BIN)/lmq-drill suite full $(DRILL_ARGS)

drill-soak: install ## Run failover drills with new seeds: make drill-soak HOURS=8
	$(BIN)/lmq-drill suite soak --hours $(or $(HOURS),1) $(DRILL_ARGS)

# Sends 336,776 flights through queues into a table; kills a node and the query during the run.
example: install ## Run the flights example on Spark while nodes are killed
	$(BIN)/python -m tests.spark.flights_example $(EXAMPLE_ARGS)

bench: install ## Measure speed, with plots in build/bench: make bench BENCH_ARGS=--quick
	@mkdir -p build/bench
	$(BIN)/python -m tests.benchmarks --json build/bench/result.json $(BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.plots build/bench/result.json build/bench
	$(if $(shell command -v go),$(BIN)/python -m tests.benchmarks.native --json build/bench/native.json $(NATIVE_BENCH_ARGS))
	$(BIN)/python -m tests.benchmarks.backlog $(BACKLOG_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.observed $(OBSERVED_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.core $(CORE_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.delivery $(DELIVERY_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.transactions $(TRANSACTION_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.spark $(SPARK_BENCH_ARGS)

clean: ## Remove .venv, var, build and dist
	rm -rf $(VENV) var build dist *.egg-info
