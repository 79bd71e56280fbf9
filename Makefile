# Every target works from a fresh checkout: what it needs is made on first use and kept outside the repository.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := $(shell python3 scripts/environment.py path)
ifeq ($(VENV),)
  $(error no Python environment, see above: this needs python3, 3.11 or newer)
endif
PYTHON := $(VENV)/bin/python
LANES := operator/penstock/limiter/liblanes.so.1
CLUSTER ?= local
ARGS ?=
JOBS ?= 3
IMAGE ?=
export PYTHONPATH := operator:.

.PHONY: help
help: ## Show this list
	@awk -F':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: env
env: $(VENV)/complete $(LANES) ## Make the Python environment, and compile the limiter's lanes

$(VENV)/complete:
	@python3 scripts/environment.py create

$(LANES): operator/penstock/limiter/lanes.c scripts/native.py | $(VENV)/complete
	@$(PYTHON) scripts/native.py --install-compiler

##@ See it

.PHONY: demo
demo: env ## Cluster, images, Penstock, a model: ends with a streamed answer (CLUSTER=kind for kind)
	@$(PYTHON) -m e2e.demo up --driver $(CLUSTER)

.PHONY: demo-shell
demo-shell: env ## A shell in the demo cluster's network, with KUBECONFIG and kubectl
	@$(PYTHON) -m e2e.cluster shell --name demo --driver $(CLUSTER)

.PHONY: demo-down
demo-down: env ## Remove the demo cluster and everything of it
	@$(PYTHON) -m e2e.demo down --driver $(CLUSTER)

.PHONY: manifest
manifest: env ## Print the install manifest for an image of your own (IMAGE=...)
	@test -n "$(IMAGE)" || { echo "say which image: make manifest IMAGE=registry.example/penstock:dev" >&2; exit 2; }
	@$(PYTHON) scripts/generate.py --image "$(IMAGE)"

##@ Check it

.PHONY: test
test: env ## Unit tests, and integration tests on a real API server (JOBS=3: so many at a time)
	@$(PYTHON) -m pytest -m "not cluster" --numprocesses $(JOBS) --dist worksteal $(ARGS)

.PHONY: unit
unit: env ## Unit tests only
	@$(PYTHON) -m pytest -m "not cluster and not integration" --ignore tests/integration --numprocesses $(JOBS) --dist worksteal $(ARGS)

.PHONY: check
check: env ## Format, lint, types, layers, generated files
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m mypy
	@$(PYTHON) -m mypy e2e bench scripts
	@$(VENV)/bin/lint-imports
	@$(PYTHON) scripts/generate.py --check

.PHONY: format
format: env ## Format the code and apply safe fixes
	@$(PYTHON) -m ruff format .
	@$(PYTHON) -m ruff check --fix .

.PHONY: generate
generate: env ## Write the CRD, its reference page, the chart's generated parts and the install manifest
	@$(PYTHON) scripts/generate.py

.PHONY: lock
lock: env ## Pin what is installed now, after a change of dependencies in pyproject.toml
	@$(PYTHON) -m pip freeze > constraints.new
	@mv constraints.new constraints.txt

.PHONY: e2e
e2e: env ## The whole product on a real two-node cluster (ARGS="--engine VLLM -- -k drain")
	@$(PYTHON) -m e2e $(ARGS)

.PHONY: e2e-kind
e2e-kind: env ## The same on two kind nodes
	@$(PYTHON) -m e2e --driver kind $(ARGS)

.PHONY: e2e-operator
e2e-operator: env ## The operator's promises on the two-node cluster: truth, availability, upgrades, rights, chart, hub, signals
	@$(PYTHON) -m e2e --operator $(ARGS)

.PHONY: e2e-versions
e2e-versions: env ## CRD and objects on the oldest and the newest API server (each builds for half an hour, once)
	@$(PYTHON) -m pytest e2e/versions $(ARGS)

.PHONY: e2e-clients
e2e-clients: env ## Real clients and SDKs at a real limiter: what each surfaces, retries and waits for (ARGS="-k curl")
	@$(PYTHON) -m e2e.clients $(ARGS)

.PHONY: test-cluster
test-cluster: env ## The local cluster and the image builders themselves, for real
	@$(PYTHON) -m pytest -m cluster tests/cluster tests/images --ignore tests/cluster/test_kind_cluster.py $(ARGS)

.PHONY: test-kind
test-kind: env ## The kind driver itself, for real (its node image takes some minutes, once)
	@$(PYTHON) -m pytest -m cluster tests/cluster/test_kind_cluster.py $(ARGS)

##@ Measure it

.PHONY: bench-relay
bench-relay: env ## The relay beside nginx, haproxy, Envoy, an aiohttp proxy and no proxy
	@$(PYTHON) -m bench.relay $(ARGS)

.PHONY: bench-limiter
bench-limiter: env ## The limiter's promises: refusals, fairness, quotas, aborts, uploads, price (ARGS="--only fairness")
	@$(PYTHON) -m bench.limiter $(ARGS)

.PHONY: fuzz
fuzz: env ## Hostile bytes at the limiter's parsers and at the live relay, from both sides, for 10 minutes
	@$(PYTHON) -m bench.limiter.fuzz $(ARGS)

.PHONY: soak
soak: env ## An hour of mixed traffic, aborts and reloads; fails when memory, descriptors or counts drift
	@$(PYTHON) -m bench.limiter.soak $(ARGS)

.PHONY: bench-operator
bench-operator: env ## The operator on a real API server: scale, quiet, repair, writes, faults (ARGS="--only quiet")
	@$(PYTHON) -m bench.operator $(ARGS)

##@ Real vLLM on CPU

.PHONY: engine-vllm
engine-vllm: env ## Prepare real vLLM for CPU (2.9 GB, once)
	@$(PYTHON) -m e2e.vllm prepare

.PHONY: e2e-vllm
e2e-vllm: env engine-vllm ## An LLMBackend on real vLLM
	@$(PYTHON) -m e2e --vllm $(ARGS)

.PHONY: conformance
conformance: env engine-vllm ## One suite against real vLLM and the stand-in, differences listed
	@$(PYTHON) -m e2e.conformance $(ARGS)
