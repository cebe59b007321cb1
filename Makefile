# Every target works on a fresh checkout: it first installs what it needs, and no more, into .venv.
# `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# One stamp for each set of packages in .venv; the first includes the second.
INSTALLED := $(VENV)/.installed
DEMO := $(VENV)/.demo
DEMO_SPARK := $(VENV)/.demo-spark
SITE := $(VENV)/.site

# The first Python that is new enough and able to make environments; `make install PYTHON=…` chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)

# Tests start many processes; without compiled modules each of them would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

REPLAYED ?= 1000000
RECONNECTS ?= 200
MINUTES ?= 120
ARGS ?=
# Most slow tests wait for child processes and flushes, so one worker more than there are cores pays.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$(( cores < 8 ? cores + 1 : 8 )))

.PHONY: help install fmt lint types compiled test test-long test-fast crash jobs-proof console-soak console-presses torture demo bench bench-mixed bench-growth bench-scale bench-delays bench-access bench-peers console-check console-vendor fuzz-api docs site docker-test interop clean

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with VibeMQ and all development tools

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "VibeMQ needs Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# Not compiled, here and below: most of what pandas and PySpark bring is never imported.
$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,speed]' --group dev
	@touch $@ $(DEMO) $(DEMO_SPARK)

$(SITE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

$(DEMO): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,speed]'
	@touch $@

$(DEMO_SPARK): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,speed,spark]'
	@touch $@ $(DEMO)

fmt: install ## format the code and fix what ruff can fix by itself
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: install ## style, format and the rooms' imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install ## mypy --strict
	$(BIN)/mypy --num-workers 2

# Each worker of pytest compiles every test on its own, all at the same time. What cannot be imported is told by `test`.
compiled: install ## compile the tests, each once, before their first run
	cores=$$(nproc 2>/dev/null || echo 2); files=$$(find tests -name 'test_*.py' | wc -l); \
	find tests -name 'test_*.py' | sort | xargs -P $$cores -n $$(( files / cores + 1 )) \
		$(BIN)/python -m pytest -p tests.only_imported -p no:hypothesispytest --collect-only -qq -p no:cacheprovider >/dev/null 2>&1 || true

test: install ## all tests except long ones, Docker and Spark clusters, as CI runs them; what fails is run a second time
	$(BIN)/lint-imports
	$(BIN)/python tests/run.py -m "not long and not docker and not spark_cluster" -n $(WORKERS) --dist loadgroup --durations=60 $(ARGS)

test-long: install ## the tests that repeat others with more kinds of input, or that others cover in less time; half an hour
	$(BIN)/python tests/run.py -m "long and not docker and not spark_cluster" -n $(WORKERS) --dist loadgroup --durations=10 $(ARGS)

test-fast: install ## the tests that start no processes
	$(BIN)/pytest -m "not slow and not long and not docker" -n $(WORKERS) --dist worksteal $(ARGS)

jobs-proof: install ## 100,000 dead letters replayed, and exported, by a job, with 20 kills of the broker and of the command line; ARGS="--provider sqlite --kind replay"
	$(BIN)/python -m tests.crash.jobs_killed $(ARGS)

crash: install ## ten minutes of the proof that nothing confirmed is lost; prints a table; ARGS="--minutes 20 --seed 7"
	$(BIN)/python -m tests.proof crash $(ARGS)

console-soak: install ## 20 browsers, one of them Chromium, are clicked about in for MINUTES (120) while messages flow: nothing grows, no errors
	$(BIN)/python -m tests.proof.console_soak --minutes $(MINUTES) $(ARGS)

console-presses: install ## every control of the console is pressed, in whatever state: no error, no white page; ARGS="--presses 3000 --seed 1"
	$(BIN)/python -m tests.proof.console_presses $(ARGS)

fuzz-api: install ## schemathesis asks the HTTP API for ten minutes what its description allows and what it does not
	$(BIN)/python -m tests.integration.http_schema $(ARGS)

torture: test-long ## one hour of the same proof, after the long tests and the property tests with new random examples
	HYPOTHESIS_PROFILE=random $(BIN)/pytest -q tests/properties tests/simulation -n $(WORKERS) --dist worksteal
	$(BIN)/python -m tests.proof torture $(ARGS)

demo: $(DEMO) ## send 336,776 flights through a broker that is killed with kill -9, and check that none is lost
	$(BIN)/vibemq demo $(ARGS)

bench: install ## measure VibeMQ: throughput, latency, fan-out, memory, recovery; ARGS=--quick for a short run
	$(BIN)/python -m bench.alone $(ARGS)

bench-mixed: install ## measure single publishes beside publishers at full speed and checkpoints; about three minutes
	$(BIN)/python -m bench.mixed $(ARGS)

bench-growth: install ## measure costs against the number of messages, queues and connections, and pauses by checkpoints
	$(BIN)/python -m bench.growth $(ARGS)

bench-scale: install ## measure starts with 10^8 messages, 10^6 dead letters, and 10,000 subscribers; needs 30 GiB of disk
	$(BIN)/python -m bench.scale $(ARGS)

bench-delays: install ## 1,000,000 delayed messages: growth, restart, order, 50 times kill -9; a mixed order; about eight minutes
	$(BIN)/python -m bench.delays $(ARGS)

bench-access: install ## measure floods of wrong logins, what the time of a refusal tells, and 10,000 users with 100,000 permissions
	$(BIN)/python -m bench.logins $(ARGS)
	$(BIN)/python -m bench.logins.timing $(ARGS)
	$(BIN)/python -m bench.logins.http_timing $(ARGS)
	$(BIN)/python -m bench.users $(ARGS)

bench-peers: install ## measure VibeMQ beside RabbitMQ, NATS, Redis, PostgreSQL and beanstalkd
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench.peers $(ARGS)

screenshots: install ## take pictures of every page of the console into build/screenshots; ARGS=--docs: those of the documentation
	$(BIN)/python -m tools.console.screenshots $(ARGS)

console-check: ## TypeScript and Biome read the console's source, node runs its pure parts; needs node and npm
	python3 -m tools.console.check
	node --test tests/browser/node

console-vendor: ## make the console's vendored libraries anew with npm, in exact versions; ARGS=--check compares
	python3 -m tools.console.vendor $(ARGS)

docs: install ## check the documentation: links, tables, and every example
	$(BIN)/pytest tests/docs $(ARGS)

site: $(SITE) mkdocs.yml ## build the documentation as a site in build/site, readable without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo 'build/site; with search: $(BIN)/python -m http.server --directory build/site'

docker-test: install ## build the image and test it: kill, restart, drain (needs a Docker engine)
	$(BIN)/pytest -m docker tests/docker $(ARGS)

interop: install ## test with clients of other implementations; replay a log of REPLAYED (1000000) messages; kill the broker RECONNECTS (200) times under BlazingMQ's SDK
	OMQ_REPLAY_MESSAGES=$(REPLAYED) BLAZINGMQ_RECONNECTS=$(RECONNECTS) $(BIN)/pytest -rs -o faulthandler_timeout=3600 tests/interop tests/integration/test_omq_replay.py $(ARGS)

clean: ## remove everything that the other targets make, .venv included
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- Spark: needs a JDK (17 or later) ---------------------------------------------------------------------------------

.PHONY: demo-spark spark-torture bench-spark spark-cluster

demo-spark: $(DEMO_SPARK) ## send the flights through Spark; an executor, the broker and the driver are killed with kill -9
	$(BIN)/python -m vibemq.demos.spark $(ARGS)

spark-torture: install ## ten minutes of kills and of checkpoints rolled back while Spark reads and writes; ARGS="--minutes 3 --seed 7"
	$(BIN)/python -m tests.spark.torture $(ARGS)

bench-spark: install ## measure the connector beside the fastest possible Python data source and PostgreSQL over JDBC
	$(BIN)/python -m bench.spark $(ARGS)

spark-cluster: install ## spark-submit on a master and two workers, package installed and shipped; Spark Connect
	$(BIN)/pytest -m spark_cluster tests/spark $(ARGS)
