# Every target sets up what it needs by itself; nothing has to be installed by hand but Debian, Python 3.11 and make.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTEST := .venv/bin/pytest
RINGS := .venv/bin/python -m tests.rings

.PHONY: help
help: ## Show what there is.
	@echo "Isthmus joins Slurm and Kubernetes. Two commands to begin with: make demo, make test"
	@awk -F ':.*## ' '/^## / { printf "\n%s\n", substr($$0, 4) } /^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

## Begin
.PHONY: demo
demo: .venv/ready ## Bring up a cluster with Slurm and the bridge, let Slurm place pods, take it down again.
	@scripts/demo

.PHONY: test
test: prepare ## Run all the checks and tests (as root; 25 minutes, about twice that on the first run).
	$(RINGS) lint unit flows e2e

## While you work
.PHONY: quick
quick: prepare ## Run the checks, the unit tests, and enough others to touch every process once (4 minutes).
	$(RINGS) --quick lint unit flows e2e

.PHONY: lint
lint: .venv/ready ## Check style, types and layers.
	$(RINGS) lint

.PHONY: house
house: ## Print the limits on lines and repeated code, each beside its bar.
	@scripts/house

.PHONY: unit
unit: .venv/ready ## Test decisions and properties, without any server (two minutes).
	$(RINGS) unit

.PHONY: prepare
prepare: .venv/ready ## Build binaries and images that the tests need and the cache lacks.
	.venv/bin/python -m tests.bed.prepare

.PHONY: flows
flows: prepare ## Test on a real control plane and real Slurm daemons, without nodes (minutes).
	$(RINGS) flows

.PHONY: e2e
e2e: prepare ## Test on the whole local cluster with real pods (minutes).
	$(RINGS) e2e

.PHONY: docs
docs: ## Build the documentation site in build/site, and check its links.
	@scripts/docs

## At length
.PHONY: soak
soak: prepare ## Run what is random for long: a hundred times the examples, hundreds of seeds of kills, long outages, hold-ups (three hours).
	ISTHMUS_SEEDS=60 $(PYTEST) tests/e2e/test_leaving_nothing.py
	ISTHMUS_SLURM_VERSIONS=26.05,24.11 ISTHMUS_AWAY_SECONDS=300 $(PYTEST) tests/e2e/test_operator_controller.py
	ISTHMUS_SEEDS=200 $(PYTEST) tests/flows/bridge/test_crashes.py
	$(PYTEST) tests/soak
	ISTHMUS_SEEDS=160 $(PYTEST) tests/flows/operator/test_creation_faults.py tests/flows/operator/test_fields.py
	ISTHMUS_SEEDS=200 $(PYTEST) tests/flows/sharedroot/test_killed.py tests/flows/sharedroot/test_populate.py
	.venv/bin/python -m tests.bed.holdups --seed=$$RANDOM $(RINGS) flows e2e
	ISTHMUS_PODS=500 ISTHMUS_AWAY_SECONDS=60 $(PYTEST) tests/flows/bridge/test_outages.py --timeout=900
	ISTHMUS_SEEDS=300 $(PYTEST) tests/properties/test_elastic_runs.py
	ISTHMUS_SEEDS=40 $(PYTEST) tests/flows/health/test_storms.py
	$(PYTEST) tests/properties --hypothesis-profile=soak --timeout=3600

.PHONY: guest
guest: .venv/ready ## Try a cluster from up to down on a stock Debian 12, emulated: systemd, control groups of version 2 (as root).
	.venv/bin/python -m tests.guest

.PHONY: bench
bench: prepare ## Measure, and print each figure beside its bar.
	@scripts/bench

## Tidy up
.PHONY: clean
clean: ## Remove local clusters and what was made in this directory; the cache stays.
	@[ ! -x .venv/bin/isthmus ] || .venv/bin/isthmus down --all
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

.venv/ready: requirements-dev.lock scripts/venv
	@echo "Setting up .venv"
	@scripts/venv
