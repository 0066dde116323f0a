# make up        a three-node cluster on loopback          make install   create .venv and install everything, Spark and tests too
# make test      everything CI checks                      make bench   the benchmark suite
# make check     lint, types, import rules, unit tests     make sim SEED=n   replay one simulated run
# make drill     every failover drill                      make drill-soak HOURS=n   drills with new seeds for n hours
# make deploy-check   all of deploy/ by its users' tools, some of which take minutes to build

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP = PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
RUNTIME := $(VENV)/.installed-runtime
CLASSES := $(VENV)/spark-classes.jsa
# How many test files run at the same time.
TEST_JOBS ?= 3
# Tests start about a thousand processes of ours: each would compile our modules again without byte code on the disk.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install up check lint test unit sim soak deploy-check drill drill-soak example bench clean

install: $(STAMP)

# What a cluster needs is little; Spark, browsers and tests are much more.
$(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("lmqcluster needs Python 3.11 or newer, this is %s" % sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo 'Installing lmqcluster into $(VENV), once ...'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
	@$(PIP) --editable .
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME) pyproject.toml
	@echo 'Installing Spark and what tests and benchmarks need into $(VENV), about 1.4 GiB, once ...'
	@$(PIP) --editable '.[dev,bench,spark]'
	@touch $(STAMP)

up: $(RUNTIME)
	@$(BIN)/lmq dev

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy lmqcluster cli chaos
	$(BIN)/lint-imports

unit: install
	$(BIN)/pytest -q tests/unit

check: lint unit

# Java's archive of Spark's classes saves the tests more time than it takes; they pass without it too.
$(CLASSES): $(STAMP)
	-@$(BIN)/python -W ignore -m tests.spark.shared_classes

test: lint $(CLASSES)
	$(BIN)/pytest tests --ignore=tests/benchmarks -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder --durations=10

# What takes minutes to fetch and build: Helm and Docker Compose; and the systemd unit in a systemd of its own, for which one has to be root.
deploy-check: install
	LMQ_DEPLOY_TOOLS=build $(BIN)/pytest tests/deploy

sim: install
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),1) $(SIM_ARGS)

# An hour of new seeds, two processes at a time.
soak: install
	$(BIN)/python -m tests.simulation --seed $(or $(SEED),$(shell date +%s)) --minutes $(or $(MINUTES),60) --jobs 2

drill: install
	$(BIN)/lmq-drill suite full $(DRILL_ARGS)

drill-soak: install
	$(BIN)/lmq-drill suite soak --hours $(or $(HOURS),1) $(DRILL_ARGS)

# 336,776 flights through queues into a table; a node and the query are killed on the way.
example: install
	$(BIN)/python -m tests.spark.flights_example $(EXAMPLE_ARGS)

bench: install
	$(BIN)/python -m tests.benchmarks $(BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.backlog $(BACKLOG_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.observed $(OBSERVED_BENCH_ARGS)
	$(BIN)/python -m tests.benchmarks.spark $(SPARK_BENCH_ARGS)

clean:
	rm -rf $(VENV) var build *.egg-info
