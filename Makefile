# The verbs of this project. Every one installs the system packages it lacks
# (as root; else it names them) and needs nothing but Go beside them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(PATH):/usr/sbin:/sbin

PROGRAMS := iptables nft conntrack ipset ip
UNIT = $$(go list ./... | grep -v '^portolan/e2e')

# What the compact layout of iptables mode is held to beside the other modes.
COMPACT = ^Test(Flows|Cells|Stories|Growth|Shares|Turns|Affinity|Conntrack|Restart|Repair|Cleanup)

.PHONY: build test lint golden e2e e2e-ipvs soak bench bench-full bench-parts report demo

build: ## the program, in bin/portolan
	go build -trimpath -o bin/portolan ./cmd/portolan

test: ## everything but the scenarios with real packets
	tools/system-packages $(PROGRAMS) gcc
	go vet ./...
	go test -race $(UNIT)
	for m in deploy/check bench/report; do (cd $$m && go vet -mod=mod . && go test -mod=mod .); done

lint: ## format, vet and staticcheck
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	go vet ./...
	GOARCH=arm64 go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go mod tidy -diff
	for m in deploy/check bench/report; do (cd $$m && go vet . && go mod tidy -diff && go tool -modfile=../../tools/go.mod staticcheck .); done

golden: ## writes the golden files anew; look at the difference
	tools/system-packages $(PROGRAMS)
	go test $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n1 dirname | sort -u) -update

e2e: ## scenarios with real packets, in network namespaces
	tools/system-packages $(PROGRAMS) update-ca-certificates
	tools/e2e-test -p 1 -timeout 25m ./e2e/...
	PORTOLAN_E2E_BACKENDS=compact-legacy,compact-nft tools/e2e-test -timeout 25m ./e2e -run '$(COMPACT)'
	cd deploy/check && ../../tools/e2e-test -mod=mod -run Server . -args -server
	tools/e2e-test -timeout 25m ./trace/judge -args -cases 500 -nftcases 1000
	$(MAKE) e2e-ipvs

e2e-ipvs: ## the part of e2e that needs other kernels: they run as guests
	tools/system-packages $(PROGRAMS)
	tools/guest/e2e | tools/e2e-summary || { [ "$${AGAIN-}" = 1 ] && tools/guest/e2e | tools/e2e-summary; }

soak: ## changes, flushes, restarts, kills and rolling updates, half an hour of them
	tools/system-packages $(PROGRAMS)
	tools/e2e-test -timeout 90m ./e2e -run 'TestSoak|TestKilled|TestRollingUpdates' -args -soak 10m -kills 200 -rolls 50

bench: ## beside kube-proxy, a quarter of an hour; BENCH holds flags
	tools/system-packages $(PROGRAMS)
	go run ./bench -modes all -workloads 1000x10 -repeats 1 -busy 5s -idle 5s $(BENCH)
	go run ./bench -modes nftables,iptables-legacy -workloads 1000mix,5000x10 -repeats 1 -busy 5s -idle 5s $(BENCH)

SIZES := 1000x10,2000x10,5000x10,10000x10,1000mix,5000mix,10000mix
bench-full: ## all modes and sizes beside kube-proxy, hours; BENCH holds flags
	tools/system-packages $(PROGRAMS)
	go run ./bench -modes nftables,iptables-legacy,iptables-legacy-compact -workloads $(SIZES) -storm 1m $(BENCH)
	go run ./bench -modes iptables-nft,iptables-nft-compact -workloads 1000x10,2000x10,5000x10 -deadline 15m $(BENCH)
	go run ./bench -modes nftables,iptables-legacy-compact -workloads 45000x1,5006x50 -deadline 5m $(BENCH)

report: ## docs/performance.md, of what is in bench/results
	cd bench/report && go run -mod=mod .

bench-parts: ## operation counts and times of what runs for every change
	tools/system-packages $(PROGRAMS)
	go test -run '^$$' -bench . -benchmem $(UNIT)

demo: build ## the main job, on real packets
	tools/system-packages $(PROGRAMS)
	bin/portolan lab run
