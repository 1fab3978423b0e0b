# Every verb of this project. Nothing is assumed but a shell, make, and either Docker or root on Debian or Ubuntu.
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help chaos soak test check bench bench-comparators docs up down heal clean

export FLASHML_SETUP_T0 := $(shell date +%s)
# Settings of the command line reach the scripts; unset ones stay unset, so that .env and the defaults count.
$(foreach name,PYTHON BASE_IMAGE CA_BUNDLE TORCH_INDEX_URL PIP_INDEX_URL TOXIPROXY_IMAGE FLASHML_ENGINE FLASHML_PORT \
  FLASHML_MIN_FREE_MIB WORKERS SEED,$(if $(value $(name)),$(eval export $(name))))
# testcontainers: its reaper image may not be pullable, and containers are reached through published ports.
export TESTCONTAINERS_RYUK_DISABLED := true
export TESTCONTAINERS_HOST_OVERRIDE := 127.0.0.1

# Compiled modules are kept, also where the caller's environment says otherwise: pytest rewrites each test module.
unexport PYTHONDONTWRITEBYTECODE

PY := .venv/bin/python
SIDE_BY_SIDE := -n $(shell echo $$(($$(nproc) + 1)))
# `make check` is for every commit: it leaves out what starts processes, and property tests draw fewer examples.
EXAMPLES ?= brief
LATER := not bench_stress and not soak and not torch
UNMARKED := not integration and $(LATER)
# A SIGKILL of make is one of the run, so that `make heal` does not find it under way.
WITH_MAKE := $(if $(shell command -v setpriv),setpriv --pdeathsig KILL)

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26
	@echo '  variables: WORKERS SEED EXPERIMENT COUNT ARGS FLASHML_ENGINE=never FLASHML_PORT BASE_IMAGE CA_BUNDLE TORCH_INDEX_URL'

chaos: ## set up, then run the chaos experiments (EXPERIMENT="a b" SEED=7 WORKERS=3 COUNT=20)
	@docker/setup.sh stack
	@$(WITH_MAKE) $(PY) -m chaos run $(EXPERIMENT) $(if $(SEED),--seed $(SEED)) $(if $(WORKERS),--workers $(WORKERS)) \
	  $(if $(COUNT),--count $(COUNT))

soak: ## set up, then the full counts of the harness: hours; the same command goes on (ARGS="--share 0.1 --minutes 60")
	@docker/setup.sh stack
	@$(WITH_MAKE) $(PY) -m chaos soak $(ARGS)

test: ## set up, then every test: check, torch tests in the image, integration tests on containers
	@docker/setup.sh test
	@$(MAKE) check EXAMPLES=whole
	@$(PY) -m pytest $(SIDE_BY_SIDE) -m "integration and $(LATER)" tests/unit
	@docker run --rm --network none --label dev.flashruntime.owner=flashruntime flashruntime/test:local
	@$(PY) -m pytest tests/integration

bench: ## set up, then run the benchmarks (ARGS="--scenario submit_latency", ARGS=--smoke)
	@docker/setup.sh stack
	@$(PY) -m benchmarks run $(if $(findstring --scenario,$(ARGS))$(findstring --all,$(ARGS)),,--all) $(ARGS)

bench-comparators: ## make the image with ray and accelerate, which `make bench` then measures too
	@docker/setup.sh bench

docs: ## build the documentation, which needs no network, into site/
	@docker/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --config-file docs/mkdocs.yml
	@echo 'open site/index.html'

check: ## lint, format, types, import rules, unit, contract and architecture tests (no engine needed), in brief
	@docker/setup.sh venv
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m pytest $(SIDE_BY_SIDE) --hypothesis-profile $(EXAMPLES) -m "$(UNMARKED)" \
	  $(wildcard tests/unit tests/contract tests/architecture)

up: ## start the composed stack (WORKERS=4 FLASHML_PORT=8000)
	@docker/setup.sh stack
	@docker/stack.sh up

down: ## stop the composed stack; its volumes are kept
	@docker/stack.sh down

heal: ## undo whatever an interrupted chaos run left behind
	@docker/stack.sh heal

clean: ## remove all that the above made: stack, volumes, images, .venv, caches; stop an engine that we started
	@docker/stack.sh clean
