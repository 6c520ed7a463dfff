# `make` lists the targets. Needs Python 3.11+ and make; set-up puts the rest in .venv, node_modules and .engines.

PORT ?= 4437
DATA ?= ./data
ARGS ?=
DYNAMODB_TESTS := tests/test_engines.py tests/store/dynamo tests/faults tests/conformance -k dynamo

# Four at a time, for two processors: tests wait a lot. `make test BESIDE=` runs one after the other.
BESIDE ?= -n 4 --dist loadfile
RUN := .venv/bin/python -m
export PATH := $(CURDIR)/.venv/bin:$(PATH)
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup serve test test-slow test-dynamodb test-dynamodb-local test-glue6 lint format package aws-local deploy-local \
	bench bench-dynamodb bench-coldstart bench-history bench-cable bench-aviso soak demo clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Set up everything below (each target does what it needs by itself)
	@scripts/setup dev

serve: ## Run the server: PORT=4437 DATA=./data ARGS="--long-poll-timeout 10"
	@scripts/setup serve
	@exec $(RUN) tailrace serve --port $(PORT) --data "$(DATA)" $(ARGS)

test: setup lint ## Run lint and all tests: ARGS="-k producer"
	@$(RUN) pytest $(BESIDE) -m "not slow" $(ARGS)

test-slow: setup ## Run the tests that are left out of `make test`, since they take minutes
	@$(RUN) pytest -m slow $(ARGS)

test-dynamodb: setup ## Run the tests of the HTTP server over DynamoDB instead of SQLite, on ministack
	@TAILRACE_TEST_STORE=dynamodb $(RUN) pytest $(or $(ARGS),tests/http tests/client)

test-dynamodb-local: ## Run the DynamoDB tests on AWS's own engine (its licence asks for an AWS account)
	@scripts/dynamodb-local $(or $(ARGS),$(DYNAMODB_TESTS))

test-glue6: ## Run the tests of the Glue jobs on the Spark of Glue 6.0
	@scripts/setup glue6
	@.engines/glue6/bin/python -m pytest $(or $(ARGS),tests/glue)

lint: setup ## Check style, format and types
	@$(RUN) ruff check --quiet
	@$(RUN) ruff format --check --quiet
	@$(RUN) mypy

format: setup ## Format the code and fix what can be fixed
	@$(RUN) ruff check --fix --quiet || true
	@$(RUN) ruff format

package: setup ## Build what a deployment uploads, in build/lambda
	@$(RUN) scripts.package lambda

aws-local: setup ## Run the deployed shape here: edge, cache, packaged functions, DynamoDB: ARGS="--port 8080"
	@exec $(RUN) tests.e2e $(ARGS)

deploy-local: setup ## Bootstrap, deploy, use, redeploy and destroy the stacks on ministack
	@$(RUN) tests.deploy $(ARGS)

bench: setup ## Measure against the reference server
	@$(RUN) bench $(ARGS)

bench-dynamodb: setup ## Count the DynamoDB store's calls and units and their cost: ARGS="--write"
	@$(RUN) bench.dynamodb $(ARGS)

bench-coldstart: setup ## Measure what functions do before their first request: ARGS="--write"
	@$(RUN) bench.coldstart $(ARGS)

bench-history: setup ## Measure compaction beside the least that Spark can do: ARGS="--write"
	@$(RUN) bench.history $(ARGS)

bench-cable: setup ## Measure how long broadcasts take to their subscribers: ARGS="--aws"
	@$(RUN) bench.cable $(ARGS)

bench-aviso: setup ## Measure notifications, replays, watchers and their filters: ARGS="--write"
	@$(RUN) bench.aviso $(ARGS)

soak: setup ## Load the server for long and watch memory and correctness
	@$(RUN) bench.soak $(ARGS)

demo: setup ## Draw docs/demo.svg from a real run
	@.venv/bin/python scripts/demo.py

clean: ## Remove what set-up and the tools have made; keeps DATA
	rm -rf .venv node_modules .engines .setup.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist cdk.out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
