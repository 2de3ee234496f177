# Everything a contributor runs. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DAEMONS := recommender updater admission-controller
BIN     := bin
VECTORS ?= testdata/vectors
# Tag of the container images.
TAG     ?= latest
# A stripped binary may have so many bytes: docs/dependencies.md says why.
BUDGET         := 38000000
LDFLAGS := -s -w
# The local control plane keeps its state here; it is ignored by git.
CLUSTER := .cluster
# More options of `make scale`; `cd e2e && go run ./bench recommender -h` lists them.
SCALE   ?=
# How many VPAs `make scale-updater` measures with, one after the other, and more of its options.
VPAS    ?= 25,100,250,500,1000
RUSH    ?=
# More options of `make load`.
LOAD    ?=
# More recordings for `make quality`, which may be absent, and `make quality-page`.
TRACES  ?= ../shared/data/traces
# What of hack/cluster compiles without all of Kubernetes.
CLUSTER_PACKAGES := ./burn ./cgroup ./deb ./instance ./local ./network ./pki ./play ./realnode ./stage ./supervise ./trace
# Whether a machine that cannot run a real node fails `make e2e-node`; anything else but required skips it there.
NODE    ?= required
# How long a tenant attacks.
LENGTH  ?= 10m
# The version from which `make e2e-install` upgrades.
FROM    ?= HEAD~1
# The page that gets its times, such as lab/docs/real-node.md.
PAGE    ?=
# Nearly all the time of `make test` with an empty build cache goes into compiling libraries, so there are two variants of
# them: this one, which programs, tools, linters and tests that need no race detector share with the local control plane,
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(filter-out -trimpath,$(GOFLAGS)) -trimpath)
# and this one. Vetting would read all libraries again, in each variant; `make lint` vets.
RACE    := CGO_ENABLED=1 GOFLAGS="$(filter-out -trimpath,$(GOFLAGS))" go test -race -vet=off
# These tests run in one goroutine and take minutes with the race detector. The packages that they call are tested with it.
COMPUTING := ./recommender/model
# These simulate days, or compute for minutes with the race detector. Others call the same code with it.
SIMULATIONS := TestReview_BoundsHeap|FuzzReviewIsBounded|TestRecipeAnnotation_Switches|TestTrim_|TestTrimmer_|TestFactory_CachesTrimmed|TestWriteLimiter_Bounds|TestDocs_CommandsWithout|TestSave_WritesRestoredHistory|TestContainerLimit_BoundsStatus|TestFuse_TripsWhenOneInThree|TestFuse_Survives|TestStartRate_Survives|TestRollout_HundredPods|TestHPA_ExclusionPrevents|TestShare_IncrementalMatches|TestLateLoader_LoadsHistory|TestRestart_KeepsPeakOf|TestRestart_CountsPeak|TestSteadyState_Writes|TestRestart_KeepsSketches|TestNewRecipe_HoldsTarget|TestFollowingMemory_|TestFollow_ObserveMode|TestTargetHeld_While
# Their packages.
SIMULATING := ./recommender ./recommender/checkpoints ./updater ./admission-controller ./pkg/kube/client ./kubectl-loadline
LINT    := go tool -modfile=$(CURDIR)/hack/tools/lint/go.mod golangci-lint

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the three daemons into bin/
	@echo "build: the three daemons; the first time this compiles their libraries for a few minutes"
	@for d in $(DAEMONS); do \
		go build -ldflags "$(LDFLAGS)" -o $(BIN)/$$d ./cmd/$$d; \
		size=$$(stat -c %s $(BIN)/$$d); echo "build $(BIN)/$$d: $$size bytes"; \
		if [ $$size -gt $(BUDGET) ]; then echo "build: $(BIN)/$$d is larger than $(BUDGET) bytes; see docs/dependencies.md" >&2; exit 1; fi; \
	done

.PHONY: plugin
plugin: ## build the kubectl plugin into bin/
	go build -ldflags "$(LDFLAGS)" -o $(BIN)/kubectl-loadline ./kubectl-loadline
	@size=$$(stat -c %s $(BIN)/kubectl-loadline); echo "build $(BIN)/kubectl-loadline: $$size bytes"; \
		if [ $$size -gt $(BUDGET) ]; then echo "build: $(BIN)/kubectl-loadline is larger than $(BUDGET) bytes; see docs/dependencies.md" >&2; exit 1; fi

.PHONY: images
images: ## build the container images into dist/images, without a container engine (TAG=v1.0.0)
	@go build -C hack/images -o $(CURDIR)/$(BIN)/images .
	@$(BIN)/images -out dist/images -tag $(TAG)

.PHONY: push
push: ## build the container images, copy them to REGISTRY=registry.example/team, and write dist/deploy with them for kubectl apply -k (TAG=v1.0.0)
	@test -n '$(REGISTRY)' || { echo "make push: REGISTRY is empty: say where the images go, such as REGISTRY=registry.example/team" >&2; exit 1; }
	@go build -C hack/images -o $(CURDIR)/$(BIN)/images .
	@$(BIN)/images -out dist/images -tag $(TAG) -push '$(REGISTRY)'

.PHONY: release
release: ## build all that is published of VERSION=v0.1.0 into dist/release; docs/release.md says what (ALLOW_DIRTY=1 to try it)
	@go build -C hack/images -o $(CURDIR)/$(BIN)/release ./release
	@$(BIN)/release -version '$(VERSION)' $(if $(filter 1,$(ALLOW_DIRTY)),-allow-dirty)

.PHONY: manifests
manifests: ## write deploy/loadline.yaml and the parts of the chart that follow from deploy/
	go run -C hack/manifests . -root ../..

.PHONY: generate
generate: ## regenerate clients, deep copies, custom resource definitions and manifests
	hack/generate.sh

.PHONY: verify
verify: ## regenerate and fail when a generated file was stale
	hack/verify.sh

.PHONY: lint
lint: ## static checks of the programs, of e2e, of hack/images and of hack/manifests
	$(LINT) run ./...
	cd e2e && $(LINT) run --config ../.golangci.yml ./...
	cd e2e/compat/older && $(LINT) run --config ../../../.golangci.yml ./...
	cd hack/images && $(LINT) run --config ../../.golangci.yml ./...
	cd hack/manifests && $(LINT) run --config ../../.golangci.yml ./...

.PHONY: unit unit-race unit-plain
unit: ## unit tests, with the race detector but for replays and simulations of days
	@$(MAKE) -j2 --output-sync=target unit-race unit-plain
unit-race: # many wait, so more packages run at once than there are processors
	packages=$$(go list ./... | grep -v $(COMPUTING:./%=-e /%$$)); \
		$(RACE) -timeout 20m -p 4 -skip '$(SIMULATIONS)' ./updater ./recommender $$packages # the two that take longest begin first
unit-plain:
	go test -vet=off $(COMPUTING)
	go test -vet=off -run '$(SIMULATIONS)|TestProgram|TestHeap_BoundedWithPolicy' $(SIMULATING) # memory holds without the race detector

.PHONY: cluster-checks
cluster-checks: ## static checks and unit tests of hack/cluster, once for each version of it
	@hack/cluster-checks.sh "$(LINT)" $(CLUSTER_PACKAGES)

.PHONY: conformance
conformance: ## run every vector file in VECTORS=<dir>
	@go run ./hack/conformance -vectors $(VECTORS)

.PHONY: compat
compat: ## compare with the upstream VPA module, over 10,000 random histories
	cd e2e && go test -vet=off ./compat/ratios
	cd e2e/compat/older && go test -vet=off .
	cd e2e && go test -vet=off -timeout 30m ./compat -histories=10000

.PHONY: prometheus
prometheus: ## history and live usage from a real Prometheus (the Debian package, unpacked into your cache directory)
	cd e2e && $(RACE) ./prometheus/...

.PHONY: lab
lab: ## static checks and unit tests of the studies in lab/, including the quality gate on testdata/traces
	cd lab && $(LINT) run --config ../.golangci.yml ./...
	cd lab && go test -vet=off $$(go list ./... | grep -v /quality$$) # the race detector would take minutes
	cd lab && go test -vet=off -count=1 ./quality # reads files outside its module, which the test cache ignores

.PHONY: lab-pages
lab-pages: quality-page quality-nodes ## write all generated pages of lab/docs from the recordings of TRACES=<dir> (half an hour)
	go run -C lab ./closedloop

.PHONY: quality
quality: ## replay recorded usage and fail when recommendations got worse; TRACES=<dir> has more recordings
	go run -C lab ./quality -traces $(abspath $(TRACES))

.PHONY: quality-page
quality-page: ## the same, and write the tables of lab/docs/quality.md and README.md from the recordings of TRACES=<dir> (eight minutes)
	go run -C lab ./quality -traces $(abspath $(TRACES)) -page docs/quality.md

.PHONY: quality-nodes
quality-nodes: ## write the tables of nodes of lab/docs/quality.md from the recordings of TRACES=<dir> (a quarter of an hour)
	go run -C lab ./quality -traces $(abspath $(TRACES)) -nodes docs/quality.md

.PHONY: cluster-binary
cluster-binary: ## build the local control plane (8 to 13 minutes the first time, then cached)
	@hack/cluster/build.sh

.PHONY: cluster-up
cluster-up: ## start a local control plane and print its kubeconfig
	@binary=$$(hack/cluster/build.sh | tail -n 1); "$$binary" up --dir $(CLUSTER) --traces testdata/traces

.PHONY: cluster-down
cluster-down: ## stop the local control plane and remove its state
	@binary=$$(hack/cluster/build.sh | tail -n 1); "$$binary" down --dir $(CLUSTER)

.PHONY: e2e e2e-compiled e2e-together e2e-first e2e-second e2e-third
e2e: build plugin cluster-binary e2e-compiled ## user-visible promises, on four local control planes in parallel
	@$(MAKE) -j4 --output-sync=target e2e-together e2e-first e2e-second e2e-third
# Processes beside each other would each compile the same libraries. To list what is exported compiles, and links nothing.
e2e-compiled:
	@cd e2e && CGO_ENABLED=1 GOFLAGS="$(filter-out -trimpath,$(GOFLAGS))" go list -race -export -test . ./demo ./harness ./node ./prometheus/... ./replay >/dev/null
e2e-together:
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary LOADLINE_PROMISES=together $(RACE) -count=1 -parallel 16 -timeout 25m . ./demo ./harness ./replay
e2e-first e2e-second e2e-third:
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary LOADLINE_PROMISES=$(@:e2e-%=%) $(RACE) -count=1 -timeout 25m .

.PHONY: e2e-migration
e2e-migration: build plugin $(BIN)/helm ## from the three programs of the reference, and from its chart, to ours and back (builds those, a few minutes the first time)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; export LOADLINE_CLUSTER=$$binary LOADLINE_PROMISES=first LOADLINE_MIGRATION=yes; \
		go test -vet=off -count=1 -v -run TestMovingOverOfAChart . && go test -vet=off -count=1 -v -run TestMovingOverFromTheReference .

.PHONY: e2e-node
e2e-node: build ## promises on one real node: kubelet, containerd, cgroups (needs root; NODE=optional skips where it cannot run)
	@if [ $(NODE) != required ] && [ $$(id -u) != 0 ]; then echo "skipped: no real node here: it needs root, not user $$(id -u)"; exit; fi; \
		binary=$$(hack/cluster/build.sh --real-node | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary LOADLINE_NODE=$(NODE) $(RACE) -v -count=1 -parallel 12 -timeout 20m ./node

.PHONY: e2e-hostile
e2e-hostile: build plugin ## attack the three programs, with the memory limits of the manifests, as a tenant of one namespace (LENGTH=10m)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary go test -vet=off -v -count=1 -parallel 4 -timeout 40m ./hostile -length $(LENGTH)

# Of the version with which hack/manifests renders the chart.
$(BIN)/helm: hack/manifests/go.mod
	@echo "build: helm; the first time this compiles its libraries for some minutes"
	@GOBIN=$(CURDIR)/$(BIN) go install -ldflags "$(LDFLAGS)" helm.sh/helm/v4/cmd/helm@$$(go list -C hack/manifests -m -f '{{.Version}}' helm.sh/helm/v4)
	@touch $@

.PHONY: e2e-install
e2e-install: plugin $(BIN)/helm ## install as pods on one real node, upgrade from FROM=<commit> under load, go back and forth, uninstall (needs root; twenty minutes)
	@hack/install-images.sh $(BIN)/install $(FROM)
	@binary=$$(hack/cluster/build.sh --real-node | tail -n 1); $$binary fetch >/dev/null; cd e2e; LOADLINE_CLUSTER=$$binary LOADLINE_IMAGES=$(CURDIR)/$(BIN)/install \
		go test -vet=off -v -count=1 -timeout 30m -exec 'unshare --net' ./install $(if $(PAGE),-page $(CURDIR)/$(PAGE))

.PHONY: scale
scale: build ## measure a pass with 10,000 pods and write lab/docs/scale.md (an hour; SCALE="-only loadline" and more options)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary go run ./bench recommender -document ../lab/docs/scale.md $(SCALE)

.PHONY: scale-updater
scale-updater: build ## measure resizes of the updater with 25 to 1,000 VPAs and write lab/docs/scale.md (half an hour; VPAS=25,100 and RUSH="-only loadline" for less)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary go run ./bench updater -vpas $(VPAS) -document ../lab/docs/scale.md $(RUSH)

.PHONY: load
load: build ## measure the webhook with 10,000 VPAs on one processor and write the figures to lab/docs/scale.md (6 minutes; LOAD="-rate 200" and more options)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary go run ./bench webhook -document ../lab/docs/scale.md $(LOAD)

.PHONY: rest
rest: build ## measure the webhook with nothing to do beside the reference's and write lab/docs/scale.md (twenty minutes)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary go run ./bench rest -document ../lab/docs/scale.md

.PHONY: demo
demo: build ## show workloads being put right on a local control plane (KEEP=1 leaves it running)
	@binary=$$(hack/cluster/build.sh | tail -n 1); cd e2e; LOADLINE_CLUSTER=$$binary go run ./demo $(if $(KEEP),-keep)

.PHONY: bench
bench: ## benchmarks with allocations
	go test -run '^$$' -bench . -benchmem ./pkg/core/... ./pkg/convert/... ./recommender/... ./updater/... ./admission-controller/...

.PHONY: bench-compat
bench-compat: ## benchmarks side by side with the upstream VPA module, and a table of ratios
	@cd e2e; { \
		go test -run '^$$' -bench HistogramAdd -benchmem -benchtime 5ms ./compat -rounds 60; \
		go test -run '^$$' -bench 'Recommend|Build|NothingNew|CheckpointsIdle|AddPods' -benchmem -benchtime 100ms ./compat -rounds 9; \
		go test -run '^$$' -bench IngestTick -benchmem -benchtime 1x ./compat -rounds 9; \
		go test -run '^$$' -bench Heap -benchmem -benchtime 1x ./compat; \
	} | go run ./compat/ratios

.PHONY: check
check: ## the inner loop: generated files, static checks, unit tests, vectors
	$(MAKE) verify
	$(MAKE) lint
	$(MAKE) cluster-checks
	$(MAKE) unit
	$(MAKE) conformance

.PHONY: test test-beside-node
test: check lab ## everything that must pass before a change lands
	$(MAKE) build plugin cluster-binary e2e-compiled
	@$(MAKE) -j2 --output-sync=target NODE=optional e2e-node test-beside-node
# A change of CPU is observed for five minutes, so what runs on the real node mostly waits. What
# computes goes before e2e: next to four control planes and a node it delays the promises.
test-beside-node:
	$(MAKE) compat
	$(MAKE) prometheus
	$(MAKE) images-test
	$(MAKE) manifests-test
	$(MAKE) e2e

.PHONY: images-test
images-test: ## build a release with its images twice, and fail when a byte differs or a file is missing
	cd hack/images && go test -vet=off -count=1 ./... # results of files outside of its module are not cached

.PHONY: manifests-test
manifests-test: ## render every overlay and the chart, and check schemas, pods, permissions and values (half a minute)
	cd hack/manifests && go test -vet=off -count=1 ./... # results of files outside of its module are not cached

.PHONY: property
property: ## a million plans of the updater for random clusters (half a minute)
	LOADLINE_PLANS=1000000 go test -count=1 -run TestRandomClusters -v ./pkg/core/disruption

.PHONY: clean
clean: ## remove what was built here
	rm -rf $(BIN) dist
