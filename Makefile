# Podium on one machine. `make help` lists the targets; each sets up what it needs by itself.
# Every package and tool version is pinned in requirements/: laptop.txt runs, dev.txt tests.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
MODEL ?= smollm2-135m-instruct
# PyPI's torch is a CUDA build; this index has the CPU one. Not used where pip is configured with
# find-links of its own: there plain `pip install torch` is taken to be what is wanted.
TORCH_INDEX_URL ?= https://download.pytorch.org/whl/cpu
PYTEST_ARGS ?=
# Most tests wait for something: three at a time fill two cores. `-n 0` for a debugger.
TEST_WORKERS ?= -n 3 --no-loadscope-reorder
# Unit tests wait for nothing, and each worker takes its time to collect them.
UNIT_WORKERS ?= -n 2 --no-loadscope-reorder
SIMULATE_ARGS ?=
FUZZ_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
UP_ARGS ?=
IMAGE_ARGS ?=
E2E_ARGS ?=
BREAK_ARGS ?=
# A script that builds images and runs a cluster where there is neither Docker nor a cluster.
PODIUM_CLUSTER_TOOL ?= $(if $(KUBECONFIG),,$(wildcard ../shared/cluster/cluster))

# Containers often set it, and each of the hundreds of processes of a test run compiles anew then.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --progress-bar off --no-deps --only-binary=:all:
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

##

.PHONY: setup
setup: $(VENV)/.installed ## Make .venv with everything in it (about 3 GB); quick when nothing changed

$(BIN)/python:
	@sh tools/system.sh "$(PYTHON)"
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.torch: requirements/laptop.txt | $(BIN)/python
	@torch=$$(grep '^torch==' requirements/laptop.txt); \
	if [ -n "$$($(PIP) config list | sed -n /find-links/p)" ]; \
	then echo "installing $$torch as pip is configured"; $(INSTALL) "$$torch"; \
	else echo "installing $$torch from PyTorch's CPU index"; \
	     $(INSTALL) --index-url "$(TORCH_INDEX_URL)" "$$torch"; fi
	@touch $@

$(VENV)/.laptop: requirements/laptop.txt $(VENV)/.torch
	@echo "installing requirements/laptop.txt"
	@$(INSTALL) -r requirements/laptop.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.laptop
	@echo "installing requirements/dev.txt"
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.dev
	@echo "installing podium, editable"
	@$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: model
model: setup ## Convert the base model into the model cache, once (MODEL=smollm2-135m-instruct)
	@$(BIN)/python -m podium.local.models.prepare $(MODEL)

##

.PHONY: demo
demo: setup model ## Train the email-search agent through all six services (DEMO_ARGS=)
	@$(BIN)/python -m podium.cli.demo $(DEMO_ARGS)

.PHONY: up
up: setup model ## Run the six services in the foreground (UP_ARGS=)
	@$(BIN)/podium up $(UP_ARGS)

##

.PHONY: test
test: test-programs setup model ## Run the tests (PYTEST_ARGS="-k name")
	$(PYTEST) $(TEST_WORKERS)

.PHONY: test-ci
test-ci: test-programs setup model ## Run the tests, and the long ones whose proof no shorter one holds
	$(PYTEST) --long $(TEST_WORKERS)

.PHONY: test-full
test-full: test-programs setup model ## Run every test, the long ones too, over many more examples
	$(PYTEST) --full $(TEST_WORKERS)

.PHONY: test-programs
test-programs: ## Check for PostgreSQL and Prometheus, which tests start, or install them
	@sh tools/test_programs.sh

.PHONY: test-unit
test-unit: test-programs setup model ## Run the fast tests, which start no service (a minute)
	$(PYTEST) $(UNIT_WORKERS) tests/unit

.PHONY: test-integration
test-integration: test-programs setup model ## Run the tests over real processes and real gRPC
	$(PYTEST) $(TEST_WORKERS) tests/integration

.PHONY: break-lines
break-lines: test-programs setup model ## Break forty lines one at a time; the tests must notice each (BREAK_ARGS="--only ledger")
	$(BIN)/python tools/break_lines.py $(BREAK_ARGS)

.PHONY: simulate
simulate: setup ## Simulate jobs to which faults befall, by their seeds (SIMULATE_ARGS="--seeds 10000")
	PYTHONPATH=tests $(BIN)/python -m simulation $(SIMULATE_ARGS)

.PHONY: fuzz
fuzz: setup ## Say the worst to the real services, as replies and judges' answers (FUZZ_ARGS="--replies 1000000")
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ_ARGS)

.PHONY: adapters
adapters: $(VENV)-openenv/.installed $(VENV)-verifiers/.installed $(VENV)-agents/.installed examples/environment_node/node_modules examples/typescript/node_modules ## Install what tests of adapters and agents need (about 1.4 GB); without it they are skipped

# Their packages pin others too tightly to share an environment with each other or with vLLM.
$(VENV)-%/.installed: requirements/%.txt | setup
	@echo "installing requirements/$*.txt"
	@"$(PYTHON)" -m venv $(VENV)-$*
	@$(VENV)-$*/bin/python -m pip --disable-pip-version-check install -qq --progress-bar off --no-deps --only-binary=:all: -r $<
	@touch $@

examples/%/node_modules: examples/%/package.json
	@cd $(@D) && npm install --silent --no-package-lock --no-audit --no-fund
	@touch $@

.PHONY: typescript
typescript: setup examples/typescript/node_modules ## Generate the client in TypeScript, check and compile its example
	@cd examples/typescript && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent build

export PODIUM_TEST_OPENENV_PYTHON ?= $(wildcard $(CURDIR)/$(VENV)-openenv/bin/python)
export PODIUM_TEST_VERIFIERS_PYTHON ?= $(wildcard $(CURDIR)/$(VENV)-verifiers/bin/python)
export PODIUM_TEST_AGENTS_PYTHON ?= $(wildcard $(CURDIR)/$(VENV)-agents/bin/python)

##

.PHONY: bench-trainer
bench-trainer: setup model ## Measure the trainer against the flat layout and TRL (BENCH_ARGS="--only a")
	$(BIN)/python -m bench.trainer $(BENCH_ARGS)

.PHONY: bench-judge
bench-judge: setup model ## Count a group's judge tokens beside ART's RULER (needs PyPI once)
	$(BIN)/python -m bench.judge $(BENCH_ARGS)

##

.PHONY: images
images: ## Build the images and print their sizes (IMAGE_ARGS="--variant cuda --only trainer")
	@PODIUM_CLUSTER_TOOL="$(PODIUM_CLUSTER_TOOL)" TORCH_INDEX_URL="$(TORCH_INDEX_URL)" \
		"$(PYTHON)" tools/images.py $(IMAGE_ARGS)

.PHONY: e2e
e2e: test-programs setup ## Build the images, install the chart in a real cluster and train there (E2E_ARGS=)
	@PODIUM_CLUSTER_TOOL="$(PODIUM_CLUSTER_TOOL)" TORCH_INDEX_URL="$(TORCH_INDEX_URL)" \
		sh tools/e2e.sh $(BIN) $(E2E_ARGS)

.PHONY: docs
docs: setup ## Make a site of the documents in build/site, with each API; a dead link fails
	@rm -rf build/pages
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going \
		-c tools/docs_site -d build/doctrees . build/site
	@echo "the documents stand in build/site/index.html"

.PHONY: requirements
requirements: setup ## Write each image's part of the lock
	@$(BIN)/python tools/requirements.py

.PHONY: chart-schema
chart-schema: setup ## Write the schema and the table of the chart's values from values.yaml
	@$(BIN)/python tools/chart_schema.py

.PHONY: dashboards
dashboards: setup ## Write the chart's Grafana dashboards
	@$(BIN)/python tools/dashboards.py

.PHONY: chart-golden
chart-golden: setup ## Render the chart's ci/ values into tests/golden/chart
	@$(BIN)/python tools/chart_golden.py

##

.PHONY: check
check: lint type imports proto-check proto-breaking ## Everything that CI checks without running Podium

.PHONY: lint
lint: setup ## ruff, ruff format and buf lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/buf lint

.PHONY: format
format: setup ## Let ruff and buf rewrite what they can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/buf format --write

.PHONY: type
type: setup ## mypy, strictly, over everything but the tests
	$(BIN)/mypy libs services tools examples bench

.PHONY: imports
imports: setup ## Hold the import contracts of .importlinter
	$(BIN)/lint-imports

.PHONY: proto
proto: setup ## Generate libs/podium/*/v1 and the typed specs from proto/
	sh tools/proto.sh $(BIN) libs
	$(BIN)/python tools/specs.py

.PHONY: proto-check
proto-check: setup ## Fail when the committed generated code is not what proto/ gives
	sh tools/proto_check.sh $(BIN)
	$(BIN)/python tools/specs.py --check

.PHONY: proto-breaking
proto-breaking: setup ## Fail when proto/ breaks clients of proto/released.binpb
	sh tools/proto_breaking.sh $(BIN)

.PHONY: proto-release
proto-release: setup ## Write proto/released.binpb: what clients may rely on from now on
	sh tools/proto_release.sh $(BIN)

##

.PHONY: clean
clean: ## Remove .venv, build products and caches (the model cache stays)
	rm -rf $(VENV) $(VENV)-* build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info
	find libs services tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
