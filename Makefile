# The commands of README.md; Meson and Ninja do the building.
BUILD := build
SETUP := meson setup $(BUILD)

.PHONY: build deps format

build: deps
	@[ -f $(BUILD)/build.ninja ] || $(SETUP)
	@ninja -C $(BUILD)

deps:
	@scripts/install-deps

format:
	@git ls-files '*.c' '*.h' | xargs clang-format -i
