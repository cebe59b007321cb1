# Every verb works on a fresh checkout: what it needs, and no more, is installed into .venv first.
# `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# One stamp for each set of packages in .venv; the first includes the second.
INSTALLED := $(VENV)/.installed
DEMO := $(VENV)/.demo
SITE := $(VENV)/.site

# The first Python that is new enough and able to make environments; `make install PYTHON=…` chooses another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)

# Tests start many processes; without compiled modules each of them would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

REPLAYED ?= 1000000
ARGS ?=
# Most slow tests wait for child processes and flushes, so one worker more than there are cores pays.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$(( cores < 8 ? cores + 1 : 8 )))

.PHONY: help install fmt lint types test test-fast crash torture demo bench bench-growth bench-scale bench-peers docs site docker-test interop clean

help: ## list the verbs
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## make .venv with VibeMQ and everything its development needs

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "VibeMQ needs Python 3.11 or newer with its venv module (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable '.[demo,speed]' --group dev
	@touch $@ $(DEMO)

$(SITE): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

# Not compiled: most of what pandas brings is never imported.
$(DEMO): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[demo,speed]'
	@touch $@

fmt: install ## format the code and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: install ## style, format and the rooms' imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install ## mypy --strict
	$(BIN)/mypy

test: install ## everything but Docker and Spark clusters, what failed once more; what CI runs
	$(BIN)/lint-imports
	$(BIN)/python tests/run.py -m "not docker and not spark_cluster" -n $(WORKERS) --dist loadgroup --durations=10 $(ARGS)

test-fast: install ## without the tests that start processes or crash things
	$(BIN)/pytest -m "not slow and not docker" -n $(WORKERS) --dist worksteal $(ARGS)

crash: install ## the proof that nothing confirmed is lost, ten minutes of it, in one table
	$(BIN)/python -m tests.proof crash $(ARGS)

torture: install ## the same proof for an hour, after the properties with fresh examples
	HYPOTHESIS_PROFILE=random $(BIN)/pytest -q tests/properties tests/simulation -n $(WORKERS) --dist worksteal
	$(BIN)/python -m tests.proof torture $(ARGS)

demo: $(DEMO) ## 336,776 flights, a kill -9 in the middle, and an account of every one
	$(BIN)/vibemq demo $(ARGS)

bench: install ## VibeMQ alone: throughput, latency, fan-out, memory, recovery; ARGS=--quick for a look
	$(BIN)/python -m bench.alone $(ARGS)

bench-growth: install ## whether costs grow with the backlog, queues and connections; pauses by checkpoints
	$(BIN)/python -m bench.growth $(ARGS)

bench-scale: install ## starts with 10^8 messages, 10^6 dead letters and more, and 10,000 subscribers; 30 GiB of disk
	$(BIN)/python -m bench.scale $(ARGS)

bench-peers: install ## beside RabbitMQ, NATS, Redis, PostgreSQL and beanstalkd, with the table of goals
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m bench.peers $(ARGS)

docs: install ## check the documentation: links, tables, and every Python example
	$(BIN)/pytest tests/docs $(ARGS)

site: $(SITE) mkdocs.yml ## the documentation as a site in build/site, readable without a network; broken links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet $(ARGS)
	@echo 'build/site; with search: $(BIN)/python -m http.server --directory build/site'

docker-test: install ## build the image and prove it: kill, restart, drain (needs a Docker engine)
	$(BIN)/pytest -m docker tests/docker $(ARGS)

interop: install ## other implementations' clients and recorded bytes; a broadcast log of REPLAYED (1000000) messages
	OMQ_REPLAY_MESSAGES=$(REPLAYED) $(BIN)/pytest -rs tests/interop tests/integration/test_omq_replay.py $(ARGS)

clean: ## remove everything that can be made again, .venv included
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- Spark: needs a JDK (17 or later) ---------------------------------------------------------------------------------

.PHONY: demo-spark spark-torture bench-spark spark-cluster

demo-spark: install ## the flights through Spark; an executor, the broker and the driver get a kill -9 on the way
	$(BIN)/python -m vibemq.demos.spark $(ARGS)

spark-torture: install ## ten minutes of kills while Spark reads and writes; ARGS="--minutes 3 --seed 7"
	$(BIN)/python -m tests.spark.torture $(ARGS)

bench-spark: install ## the connector beside the ceiling of Spark's own Python data sources
	$(BIN)/python -m bench.spark $(ARGS)

spark-cluster: install ## spark-submit on a master and two workers, package installed and shipped; Spark Connect
	$(BIN)/pytest -m spark_cluster tests/spark $(ARGS)
