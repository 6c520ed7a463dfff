# `make` lists the targets. Needs Python 3.11+ and make; set-up puts the rest in .venv, node_modules and .engines.

PORT ?= 4437
DATA ?= ./data
ARGS ?=
DYNAMODB_TESTS := tests/integration/devtools/test_engines.py tests/integration/store tests/integration/faults \
	tests/integration/conformance -k dynamo

# Six at a time, for two processors: tests wait a lot. `make test BESIDE=` runs one after the other.
BESIDE ?= -n 6 --dist loadfile
RUN := .venv/bin/python -m
PHASE := scripts/phase
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export BEGAN := $(shell date +%s)
# Compiled modules are kept, whatever the shell says: without them every start of Python takes seconds.
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory

# Two set-ups at once would spoil each other's work.
LOCK := $(if $(shell command -v flock),flock .setup.lock)
SETUP := @$(LOCK) env MAKEFLAGS= $(MAKE) --silent --jobs=8 --file=scripts/setup.mk

.DEFAULT_GOAL := help
.PHONY: help setup serve unit test test-slow test-under-load test-dynamodb test-dynamodb-local test-glue6 coverage mutants \
	lint format lock openapi console viewer package templates built aws-local deploy-local bench bench-dynamodb bench-coldstart bench-history bench-cable \
	bench-aviso bench-client bench-collapsing bench-containers soak chaos demo rust-server clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Set up everything below (each target does what it needs by itself)
	$(SETUP) dev

serve: ## Run the server: PORT=4437 DATA=./data ARGS="--long-poll-timeout 10"
	$(SETUP) serve
	@exec $(RUN) tailrace serve --port $(PORT) --data "$(DATA)" $(ARGS)

unit: ## Run the tests that need no engine, Spark or Node; under a minute, for after each edit
	$(SETUP) unit
	@$(RUN) pytest -n 2 --dist loadfile tests/unit $(ARGS)

test: ## Run lint and all tests that prove the product: ARGS="-k producer"
	@$(PHASE) "Set-up" $(MAKE) setup
	@$(PHASE) "Lint, packages and templates" $(MAKE) --jobs=2 --output-sync=target lint built
	@echo "== Tests"
	@$(RUN) pytest $(BESIDE) --durations=10 -m "not slow" $(ARGS)

test-slow: setup ## Run the rest: other modes of the stores, campaigns, deployments; takes an hour
	@$(RUN) pytest --durations=10 -m slow $(ARGS)

test-under-load: ## Run `make test` while four busy processes run beside it
	@scripts/under-load 4 $(MAKE) test

test-dynamodb: setup ## Run the tests of the HTTP server over DynamoDB instead of SQLite, on ministack
	@TEST_STORE=dynamodb $(RUN) pytest $(or $(ARGS),tests/integration/durable_streams tests/integration/client)

test-dynamodb-local: ## Run the DynamoDB tests on AWS's own engine (its licence asks for an AWS account)
	$(SETUP) dynamodb-local
	@scripts/dynamodb-local $(or $(ARGS),$(DYNAMODB_TESTS))

test-glue6: ## Run the tests of the Glue jobs on the Spark of Glue 6.0
	$(SETUP) glue6
	@.engines/glue6/bin/python -m pytest $(or $(ARGS),tests/integration/glue)

coverage: setup ## Measure the branch coverage of `make test`
	@$(RUN) pytest $(BESIDE) -m "not slow" --cov --cov-report=term:skip-covered $(ARGS)

mutants: setup ## Apply each bug of devtools/mutants and see that a test fails: ARGS="--only ID"
	@$(RUN) devtools.mutants $(ARGS)

lint: setup ## Check style, format, types and imports
	@$(RUN) ruff check --quiet
	@$(RUN) ruff format --check --quiet
	@$(RUN) mypy
	@lint-imports --no-logo | tail -3
	@hadolint Dockerfile

format: setup ## Format the code and fix what can be fixed
	@$(RUN) ruff check --fix --quiet || true
	@$(RUN) ruff format

lock: setup ## Compile requirements/*.in into pinned and hashed .txt files: ARGS="--upgrade"
	@$(RUN) scripts.lock $(ARGS)

costs: setup ## Compute the tables of costs in docs/deploying.md and docs/modes.md
	@$(RUN) scripts.costs

openapi: setup ## Join the OpenAPI documents to the one that the server serves
	@$(RUN) scripts.openapi

console: setup ## Build the console at / from the sources in the folder console
	@node_modules/.bin/tsc --project console
	@node_modules/.bin/vite build --config console/vite.config.ts --logLevel warn

viewer: ## Fetch the viewer of /docs from npm: VERSION=2.4.820
	@scripts/viewer $(VERSION)

PLATFORMS ?= lambda
package: setup ## Build what a deployment uploads, in build/lambda
	@for platform in $(PLATFORMS); do $(RUN) scripts.package $$platform || exit 1; done

templates: setup ## Synthesise the stacks that the tests look at, in build/templates
	@$(RUN) devtools.templates

# What tests share and takes long to make.
built: setup
	@$(MAKE) package PLATFORMS="host lambda"
	@$(MAKE) templates

aws-local: setup ## Run the deployed shape here: edge, cache, functions, DynamoDB: ARGS="--port 8080 --live=containers"
	@exec $(RUN) devtools.local_aws $(ARGS)

deploy-local: setup ## Bootstrap, deploy, use, redeploy and destroy the stacks on ministack
	@$(RUN) devtools.local_deploy $(ARGS)

bench: setup ## Measure beside the Rust and reference servers: ARGS="--shape ds-bench"
	@$(RUN) bench $(ARGS)

rust-server: ## Install the official Rust server by cargo, as a column of `make bench`
	@cargo install --quiet --locked --root .engines/rust durable-streams@0.1.5

bench-dynamodb: setup ## Count the DynamoDB store's calls and units and their cost: ARGS="--write"
	@$(RUN) bench.dynamodb $(ARGS)

bench-coldstart: setup ## Measure what functions do before their first request: ARGS="--write"
	@$(RUN) bench.coldstart $(ARGS)

bench-history: setup ## Measure compaction beside the least that Spark can do: ARGS="--write"
	@$(RUN) bench.history $(ARGS)

bench-cable: setup ## Measure how long broadcasts take to their subscribers: ARGS="--aws"
	@$(RUN) bench.cable $(ARGS)

bench-containers: setup ## Measure 10,000 readers of server-sent events on one container: ARGS="--write"
	@$(RUN) bench.containers $(ARGS)

bench-aviso: setup ## Measure notifications, replays, watchers and their filters: ARGS="--write"
	@$(RUN) bench.aviso $(ARGS)

bench-client: setup ## Measure the Python client beside the stock JavaScript client: ARGS="--write"
	@$(RUN) bench.client $(ARGS)

bench-collapsing: setup ## Count the origin requests of readers that come and go: ARGS="--write"
	@$(RUN) devtools.load.arrivals $(ARGS)

soak: setup ## Load the server for long and watch memory and correctness
	@$(RUN) bench.soak $(ARGS)

chaos: setup ## Harm the server while it works, and check every answer: ARGS="--seconds 60 --seed 7 --only kill,fuzz"
	@$(RUN) devtools.chaos $(ARGS)

demo: setup ## Draw docs/demo.svg from a real run
	@.venv/bin/python scripts/demo.py

clean: ## Remove what set-up and the tools have made; keeps DATA
	rm -rf .venv node_modules .engines .setup.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build dist cdk.out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
