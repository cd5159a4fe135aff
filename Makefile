# The commands of README.md. Meson and Ninja build; scripts/ does what takes more than a line.
BUILD := build
DIR ?= $(if $(FENCELOCK_DIR),$(FENCELOCK_DIR),run)

.PHONY: build deps run test browser-test demo lint format bench scale sim soak torture clean

build: deps $(BUILD)/build.ninja
	@ninja -C $(BUILD)

$(BUILD)/build.ninja:
	@meson setup $(BUILD) -Dtests=false

deps:
	@scripts/install-deps

# A five-node cluster on this machine, with its data under run/ (DIR=...). ^C stops it.
run: build
	@exec $(BUILD)/bin/fencelock dev --dir $(DIR)

# All tests (SUITE=unit, cluster, interop, sim, crash, fence, lint: one of them).
test:
	@scripts/install-deps test
	@scripts/run-tests $(SUITE)

# The dashboard in Debian's Chromium, which is a large download (SCREENSHOTS=DIR keeps pictures).
browser-test: build
	@scripts/install-deps browser
	@scripts/browser-test

# The paused holder, end to end (ARGS=--no-fence, ARGS="--store postgres").
demo: build
	@scripts/demo $(ARGS)

lint:
	@scripts/install-deps test
	@scripts/run-tests lint

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i

# Figures of this machine: latency, saturation, the region's load, bytes per lock.
bench: build
	@scripts/bench

# Very many sessions, waiters and locks: 20,000 sessions, 50,000 waiters, one session of 200,000 locks.
scale:
	@scripts/install-deps test
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD)
	@meson configure $(BUILD) -Dtests=true && ninja -C $(BUILD)
	@$(BUILD)/bench/core_scale
	@scripts/scale all

# A whole region in one process on one seed (ARGS="42 --trace"; docs/simulator.md).
sim:
	@scripts/install-deps test
	@[ -f $(BUILD)/build.ninja ] || meson setup $(BUILD)
	@meson configure $(BUILD) -Dtests=true && ninja -C $(BUILD) tests/sim/region/fencelock-sim
	@$(BUILD)/tests/sim/region/fencelock-sim $(if $(ARGS),$(ARGS),fresh)

# The simulators and the fault tests for long (SECONDS=3600).
soak:
	@scripts/install-deps test
	@scripts/soak $(SECONDS)

# Real nodes and clients under faults at random, and a judge of what the clients were told (SECONDS=60; as root). With
# ARGS="--leader-kills 300" the leader is killed again and again under a thousand sessions.
torture: build
	@meson configure $(BUILD) -Dtests=true && ninja -C $(BUILD)
	@scripts/torture --seconds $(if $(SECONDS),$(SECONDS),60) $(ARGS)

clean:
	@rm -rf build build-clang build-asan build-tsan
