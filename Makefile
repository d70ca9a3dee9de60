# Two commands for a newcomer: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
LOOK   := $(VENV)-demo
SITE   := $(VENV)-site
CODE   := ccm workers tests bench release
PIP    := bin/pip install --quiet --disable-pip-version-check
CACHE  := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ccm-supervisor

# Otherwise each of the processes that tests start would compile all code again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv lock audit packages chart image release release-tools demo demo-picture demo-incus demo-cluster bench profile bench-smoke test test-oldest test-fast mutants mutants-tools bites edge-cases kube kubelets peers helm labs lab-openstack lab-openstack-down lab-incus lab-incus-down lab-azure lab-vsphere tools check collect docs site fmt fmt-check lint prose types layers clean

##@ Begin
help: ## List the targets
	@awk -F ':.*## ' '/^##@ / {group = substr($$0, 5); if (!(group in of)) order[++count] = group} \
	  /^[a-z-]+:.*## / {of[group] = of[group] sprintf("  %-20s %s\n", $$1, $$2)} \
	  END {for (i = 1; i <= count; i++) print order[i] "\n" of[order[i]]}' $(MAKEFILE_LIST)

venv: $(READY) ## Create .venv with the project and its development extras

# uv takes seconds where pip takes a minute; pip is for hosts whose index only pip knows.
WANTED = --require-hashes -r requirements/build.txt -r requirements/$(1).txt
$(READY): requirements/dev.txt
$(READY): PINS := dev
$(LOOK)/.ready: requirements/all.txt
$(LOOK)/.ready: PINS := all
$(SITE)/.ready: requirements/site.txt
$(SITE)/.ready: PINS := site
$(READY) $(LOOK)/.ready $(SITE)/.ready: %/.ready: setup.cfg pyproject.toml requirements/build.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $*
	$*/$(PIP) --require-hashes -r requirements/uv.txt
	$*/bin/uv pip install --quiet --python $* $(call WANTED,$(PINS)) || $*/$(PIP) $(call WANTED,$(PINS))
	$*/$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# `build` makes the package, `uv` installs, `dev` is what CI runs with, `release` what checks a release, `mutants` what
# changes the code, `all` what the image holds, `site` what builds the documentation.
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade \
  --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make lock"

##@ Dependencies
lock: venv ## Pin all dependencies with their hashes, at the newest that setup.cfg allows
	echo 'setuptools>=77' | $(LOCK) - -o requirements/build.txt
	$(LOCK) setup.cfg --extra dev -o requirements/dev.txt
	echo uv | $(LOCK) - -c requirements/dev.txt -o requirements/uv.txt
	for extra in all release mutants site; do \
	  $(LOCK) setup.cfg --extra $$extra -c requirements/dev.txt -o requirements/$$extra.txt; done
	command -v apt-get && $(BIN)/python -m release lock

audit: venv ## Ask PyPI what is known against the dependencies
	$(BIN)/uvx pip-audit --disable-pip --require-hashes -r requirements/dev.txt

##@ Release
packages: venv ## Make the wheel and the source distribution, below dist
	$(BIN)/python -m release packages

chart: venv ## Write what of the Helm chart follows from the code, and pack it, below dist
	$(BIN)/python -m release chart

image: venv ## Make the image on a host of Debian, without docker, below dist; ARCH=arm64 for that one
	$(BIN)/python -m release image $(if $(ARCH),--architecture=$(ARCH))

release: release-tools ## Make all that is published, and check it, below dist
	rm -rf dist
	$(MAKE) packages chart image
	$(BIN)/python -m release check

release-tools: venv # What checks a release, and runs its image
	$(VENV)/$(PIP) --require-hashes -r requirements/release.txt
	@which umoci runc skopeo >/dev/null || { apt-get update -q && \
	  apt-get install -qy --no-install-recommends umoci runc skopeo; }

##@ Begin
# In an environment without what development needs, which is there in half of the time.
demo: $(LOOK)/.ready ## Watch tainted nodes become ready, on an embedded cluster and cloud
	$(LOOK)/bin/ccm-supervisor sandbox

demo-picture: venv ## Draw the demo after its scenario, into docs/demo.svg
	$(BIN)/python -m tests.docs.demo_picture docs/demo.svg

demo-incus: venv ## The same with real instances and real requests, in the lab's Incus
	$(BIN)/python -m tests.labs.incus.demo

demo-cluster: venv ## Start three true nodes and the product beside them, to play with: docs/try-it.md
	tests/labs/kubelets/lab.sh install
	tests/labs/kubelets/lab.sh up
	tests/labs/kubelets/lab.sh ccm

##@ Measure
# PARTS="initialise kill" picks parts, BENCH="--nodes 100" their sizes; see docs/performance.md.
bench: venv kube ## Measure on a real API server, into bench/RESULTS.md and docs/performance.png
	$(VENV)/$(PIP) -e '.[bench]'
	$(BIN)/python -m bench $(PARTS) $(BENCH)
	$(BIN)/python -m bench.plots

# Neither the figures nor the wall time of a run that is sampled mean anything: look at the shares.
PART ?= initialise
profile: venv kube ## Sample our processes in a part of the bench (PART="latency"), into profiles/*.svg
	$(VENV)/$(PIP) -e '.[bench]'
	$(BIN)/python -m bench $(PART) --profiles profiles --no-keep --repeats 1 \
	  $(or $(BENCH),--nodes 1000 --side cold --side arriving)

bench-smoke: venv kube ## Count writes, cloud reads and frames on a real API server, for CI
	$(BIN)/python -m bench smoke

##@ Servers and labs that tests run against
kube: ## Build (once) the real kube-apiserver, etcd and kubectl that tests run against
	$(PYTHON) -m tests.support.kube.build

kubelets: ## Build (once) the kubelets without containers that tests let join
	$(PYTHON) -m tests.support.kube.build kubelets

peers: ## Build (once) the upstream controllers that tests compare ours with
	$(PYTHON) -m tests.support.kube.build peer
	$(PYTHON) -m tests.support.kube.build readers

lab-openstack: ## Install (once) and start a real OpenStack on loopback
	tests/labs/openstack/lab.sh up

lab-openstack-down: ## End it and remove its state
	tests/labs/openstack/lab.sh wipe

lab-incus: ## Install (once) and start a real Incus with OVN in private namespaces
	tests/labs/incus/lab.sh up

lab-incus-down: ## End it and remove its state
	tests/labs/incus/lab.sh wipe

lab-azure: ## Build (once) the Resource Manager of loopback that the provider of Azure is tested with
	$(PYTHON) -m tests.support.kube.build azure-lab

lab-vsphere: ## Build (once) the vCenter of loopback that the provider of vSphere is tested with
	tests/labs/vsphere/lab.sh install

##@ Test
# In CI a missing part is a failure, so it is made first; elsewhere those tests say that they skip.
# Which tests share a pytest worker: see tests/conftest.py. TESTS="tests/unit -k budget" picks some.
test: venv $(if $(CI),kube kubelets peers helm lab-azure lab-vsphere tools $(if $(CCM_LONG),labs release-tools)) ## Run all tests (for those on a real API server, `make kube` first)
	$(BIN)/python -m tests $(TESTS)

##@ Servers and labs that tests run against
helm: ## Build (once) the helm that the chart is tested with
	$(PYTHON) -m tests.support.kube.build helm

labs: # What tests on real clouds need, which are those that take minutes
	tests/labs/openstack/lab.sh install
	tests/labs/incus/lab.sh install
	tests/labs/kubelets/lab.sh install
	$(PYTHON) -m tests.support.kube.build kubelets-1.36
	$(PYTHON) -m tests.support.kube.build kubelets-1.34
	$(PYTHON) -m tests.support.kube.build openstack
	$(PYTHON) -m tests.support.kube.build godo
	$(BIN)/python -m tests.labs.digitalocean.prism
	$(PYTHON) -m tests.support.kube.build vsphere
	$(PYTHON) -m tests.support.kube.build azure
	$(PYTHON) -m tests.support.kube.build gce

tools: # What tests of the systemd unit, the alert rules and the status page need
	@for tool in systemd-analyze unshare promtool chromium; do \
	  command -v $$tool >/dev/null || missing=$$tool; done; \
	[ -z "$$missing" ] || { apt-get update -q && apt-get install -qy --no-install-recommends \
	  systemd util-linux prometheus chromium; }

##@ Test
OLDEST := $(VENV)-oldest
test-oldest: venv ## Run the tests with the oldest dependencies that setup.cfg allows
	$(BIN)/uv venv --quiet --clear --seed $(OLDEST)
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --extra aws setup.cfg -o $(OLDEST)/oldest.txt
	$(BIN)/uv pip install --quiet --python $(OLDEST) -c $(OLDEST)/oldest.txt -e '.[dev]'
	$(OLDEST)/bin/python -m pytest -n 4 --dist loadgroup -q -m "not alone"

test-fast: venv ## Run the unit tests only, within a minute
	$(BIN)/python -m pytest tests/unit -q -n 2

# Not in CI: it takes hours. MODULE names a file of tests/mutation/modules.tsv; what was interrupted
# goes on, and with FRESH=1 all is tried again.
mutants: mutants-tools ## Change the code in 3,700 places, and list what no unit test notices
	$(BIN)/python -m tests.mutation $(MODULE) --jobs $(or $(JOBS),2) $(if $(FRESH),--fresh)

mutants-tools: venv # What changes the code
	$(VENV)/$(PIP) --require-hashes -r requirements/mutants.txt

# ROWS names some, by a part of the fault or of its test; UNSEEN=1 leaves out those of seen.tsv.
bites: venv ## Take its cure from each row of the fault table, and see the row's test fail
	$(BIN)/python -m tests.docs.faults break $(if $(ROWS),"$(ROWS)") $(if $(UNSEEN),--unseen)

edge-cases: venv ## Run upstream's edge cases and print which tests hold each of them
	$(BIN)/python -m tests.integration.edge_cases

##@ Develop
# The smoke needs the real API server, and the prose a linter of Go: building them takes minutes, so
# elsewhere they are for the asking. The smoke counts, so that it may run beside the others; what measures time is in the tests.
check: venv ## Everything CI runs
	$(MAKE) --jobs=4 --output-sync=target fmt-check lint types layers $(if $(CI),bench-smoke prose) collect
	$(MAKE) test

collect: venv # Compile all tests once, which each of several pytest workers would do
	@found=$$($(BIN)/python -m pytest --collect-only -q) || { echo "$$found"; exit 1; }

site: $(SITE)/.ready ## Build the documentation as a site, below dist/site; it needs no network when read
	$(SITE)/bin/sphinx-build -q -W --keep-going -c docs/site -d build/site . dist/site

docs: venv ## Write the manual page, and the tables that are made from the code
	sed -i '/^## /,$$d' docs/flags.md docs/metrics.md docs/faults.md docs/annotations.md docs/providers/*-differences.md
	$(BIN)/python -m ccm.settings.document >> docs/flags.md
	$(BIN)/python -m ccm.metrics >> docs/metrics.md
	$(BIN)/python -m tests.docs.faults >> docs/faults.md
	$(BIN)/python -m tests.docs.annotations >> docs/annotations.md
	for cloud in aws azure gce openstack; do \
	  $(BIN)/python -m tests.peers $$cloud >> docs/providers/$$cloud-differences.md; done
	$(BIN)/python -m ccm.cli.manual > systemd/ccm-supervisor.1

fmt: venv ## Format the code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix-only $(CODE)

fmt-check: venv ## Check the format
	$(BIN)/ruff format --check $(CODE)

lint: venv ## Lint, and find dead code
	$(BIN)/ruff check $(CODE)
	$(BIN)/vulture

types: venv ## Check types
	mkdir -p $(CACHE) && flock $(CACHE)/mypy.lock $(BIN)/mypy --cache-dir=$(CACHE)/mypy

prose: venv ## Check the words of the pages and of what the code shows to people, with Vale
	$(BIN)/python -m tests.docs.prose

layers: venv ## Check that imports point downwards only
	$(BIN)/lint-imports

include systemd/install.mk

clean: ## Remove what the targets made inside the tree
	rm -rf $(VENV) $(LOOK) $(SITE) $(OLDEST) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mutants
