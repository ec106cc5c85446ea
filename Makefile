# Commands of the project; `make help` lists them. Everything is installed into a virtual environment inside the project.
#
#   TORCH=2.11.0            another torch, with an environment and a build folder of its own
#   AMPSCALER_CUDA=0|1|auto build without CUDA kernels, insist on them, or decide by torch and nvcc (default)
#   CUDA=pypi               take nvcc from PyPI's wheels, at the CUDA version of torch
DEFAULT_TORCH := 2.15.0
TORCH ?= $(DEFAULT_TORCH)
AMPSCALER_CUDA ?= auto
PYTHON ?= python3
ifeq ($(filter 0 1 auto,$(AMPSCALER_CUDA)),)
$(error AMPSCALER_CUDA must be 0, 1 or auto, got '$(AMPSCALER_CUDA)')
endif

ifneq ($(words $(CURDIR)),1)
$(error the path of this folder has a space, which make cannot handle: $(CURDIR))
endif
VENV := $(CURDIR)/.venv$(if $(filter-out $(DEFAULT_TORCH),$(TORCH)),-$(TORCH))
BIN := $(VENV)/bin
# Named after torch: another default version must not meet an old environment.
STAMP := $(VENV)/.stamp-torch-$(TORCH)
ifeq ($(CUDA),pypi)
override AMPSCALER_CUDA := 1
BUILD := build/$(TORCH)-cuda-pypi
NVCC_STAMP := $(VENV)/.stamp-nvcc
NVCC_OPTION = -DAMPSCALER_NVCC=$$($(BIN)/python -c "import nvidia, pathlib; print(pathlib.Path(list(nvidia.__path__)[0]) / 'cu13/bin/nvcc')")
else ifneq ($(CUDA),)
$(error CUDA=$(CUDA): the only value is pypi; to build with or without CUDA use AMPSCALER_CUDA=0, 1 or auto)
else
BUILD := build/$(TORCH)-cuda-$(AMPSCALER_CUDA)
endif
STAGE := $(BUILD)/stage

# ccache makes a second clone of the project build in a second. The launchers are read by the first configure only.
# Not for gpu-check, which builds by itself, on machines without the environment of this file.
ifneq ($(MAKECMDGOALS),gpu-check)
export CCACHE_BASEDIR := $(CURDIR)
export CMAKE_CXX_COMPILER_LAUNCHER := $(BIN)/ccache
export CMAKE_CUDA_COMPILER_LAUNCHER := $(BIN)/ccache
export PYTHONPATH := $(CURDIR)/$(STAGE)
endif
export PATH := $(BIN):$(PATH)
export AMPSCALER_CUDA

.PHONY: help env build test test-cpp test-python test-random mutants gates simt-coverage gpu-check test-package test-fetched-googletest demo experiment bench format stubs contract check-default-torch clean \
  lint lint-format lint-python lint-spelling lint-tidy
.DEFAULT_GOAL := help

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16
	@sed -n 's/^# *\(\(TORCH\|AMPSCALER_CUDA\|CUDA\)=.*\)/  \1/p' $(MAKEFILE_LIST)

env: $(STAMP) $(NVCC_STAMP)  ## Create the environment with torch and the tools

$(STAMP): requirements-dev.txt
	@sh cmake/prerequisites.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==$(TORCH) -r requirements-dev.txt
	@touch $@

# ptxas refuses the output of a compiler of another minor version, so all three are pinned to torch's.
$(VENV)/.stamp-nvcc: $(STAMP)
	minor=$$($(BIN)/python -c "import torch, sys; print(torch.version.cuda or sys.exit('CUDA=pypi: this torch has no CUDA'))") && \
	$(BIN)/pip install --quiet nvidia-cuda-nvcc==$$minor.* nvidia-cuda-crt==$$minor.* nvidia-nvvm==$$minor.* nvidia-cuda-runtime==$$minor.*
	@touch $@

CONFIGURE = -DAMPSCALER_WERROR=ON -DAMPSCALER_CUDA=$(AMPSCALER_CUDA) $(NVCC_OPTION) $(CMAKE_ARGS)
ifneq ($(CMAKE_ARGS),)
.PHONY: $(BUILD)/build.ninja
endif
$(BUILD)/build.ninja: $(STAMP) $(NVCC_STAMP)
	cmake -S . -B $(BUILD) -G Ninja -DPython_EXECUTABLE=$(BIN)/python $(CONFIGURE) -DAMPSCALER_TESTS=ON

build: $(BUILD)/build.ninja  ## Build the library, the module, the C++ tests and examples
	cmake --build $(BUILD)
	@rm -rf $(STAGE) && cmake --install $(BUILD) --prefix $(STAGE)/ampscaler > $(BUILD)/install.log

test: test-cpp test-python  ## Run all tests of this checkout

test-cpp: build
	ctest --test-dir $(BUILD) --output-on-failure

test-python: build
	python -m pytest -p no:cacheprovider tests/python tests/conformance

PROGRAMS ?= 2000
SEED ?= 0
test-random: build  ## Run PROGRAMS=2000 random programs, from SEED=0, on torch's scaler and the drop-in in lock-step
	python -m ampscaler.conformance --random $(PROGRAMS) --seed $(SEED)

mutants: build  ## Plant defects in the CUDA kernels and check that their tests on the CPU notice each
	python tests/simt/check_mutants.py --build $(BUILD)

gates: build  ## Check registers, spills, loads and barriers of the CUDA kernels' machine code, and lint them
	python tests/gates/check_gates.py --build $(BUILD)

# The counts are written beside the object files and add up from run to run, hence the deletion.
COVERAGE_LIMIT ?= 98
simt-coverage: build  ## Which lines of the CUDA kernels their tests on the CPU run; at least COVERAGE_LIMIT=98 percent
	@if [ -d $(BUILD)/tests/CMakeFiles/unscale_kernel_test.dir ]; then \
	  cmake --build $(BUILD) --target simt_coverage && find $(BUILD)/tests -name '*.gcda' -delete && \
	  for program in $(BUILD)/tests/*_coverage; do $$program --gtest_brief=1 || exit 1; done && \
	  gcovr --root . --merge-lines --filter 'csrc/kernels/cuda/.*\.cuh' --fail-under-line $(COVERAGE_LIMIT) $(BUILD)/tests; \
	else echo "skipped: this build has no SIMT tests, for want of the CUDA headers"; fi

# With any Python that has torch: the machine with the GPU need not have the environment of this file.
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
gpu-check:  ## On a machine with a GPU: check and measure there what cannot be on others; at most 10 minutes
	$(GPU_PYTHON) tests/gpu/gpu_check.py

test-package: build  ## Test the wheel, an editable install, and C++ projects built against them
	AMPSCALER_BUILD_DIR=$(CURDIR)/$(BUILD) python -m pytest -p no:cacheprovider tests/package

# The branch that fetches GoogleTest, with sources that Debian's googletest package brings, so that nothing is downloaded.
GOOGLETEST_SOURCES ?= /usr/src/googletest
test-fetched-googletest: build
	@if [ ! -f $(GOOGLETEST_SOURCES)/CMakeLists.txt ]; then \
	  echo "skipped: no GoogleTest sources in $(GOOGLETEST_SOURCES) (GOOGLETEST_SOURCES=... names another folder)"; \
	else \
	  cmake -S . -B $(BUILD)-fetched -G Ninja -DPython_EXECUTABLE=$(BIN)/python $(CONFIGURE) -DAMPSCALER_PYTHON=OFF \
	    -DAMPSCALER_TESTS=ON -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON \
	    -DFETCHCONTENT_SOURCE_DIR_GOOGLETEST=$(GOOGLETEST_SOURCES) > $(BUILD)/fetched.log && \
	  cmake --build $(BUILD)-fetched --target core_test && $(BUILD)-fetched/tests/core_test --gtest_brief=1; \
	fi

demo: build  ## Train on handwritten digits in FP16, in Python and in C++
	python examples/python/train_digits.py --output $(BUILD)/demo
	$(BUILD)/examples/cpp/train_digits $(BUILD)/demo/digits.csv $(BUILD)/demo/scale_trace.csv

experiment: build  ## Train a small language model in FP32 and FP16, with torch's scaler and ours; prints a table
	python benchmarks/train_mixed_precision_backward.py --run-mode real_cpu --scaler both --run-label make_experiment \
	  --output-dir $(BUILD)/experiment --overwrite

# In a folder of its own, so that the tests never come to need google-benchmark.
bench: build  ## Measure against torch's own scaler
	python benchmarks/unscale_host_time.py
	python benchmarks/clip_grad_norm.py --label make_bench --results $(BUILD)/bench
	cmake -S . -B $(BUILD)-bench -G Ninja -DPython_EXECUTABLE=$(BIN)/python $(CONFIGURE) \
	  -DAMPSCALER_PYTHON=OFF -DAMPSCALER_BENCHMARKS=ON > $(BUILD)/bench.log
	cmake --build $(BUILD)-bench --target unscale_bench clip_bench
	$(BUILD)-bench/benchmarks/unscale_bench --benchmark_counters_tabular=true
	$(BUILD)-bench/benchmarks/clip_bench --benchmark_counters_tabular=true

CPP_FILES = $(shell git ls-files '*.h' '*.cpp' '*.cu' '*.cuh')
lint: lint-format lint-python lint-spelling lint-tidy  ## Run all linters

lint-format: $(STAMP)
	clang-format --dry-run --Werror $(CPP_FILES)
	ruff format --check .

lint-python: build
	ruff check .
	mypy

lint-spelling: $(STAMP)
	codespell

# The compiler's own warning names are unknown to clang, and its omp.h is not found by it.
lint-tidy: build
	run-clang-tidy.py -quiet -extra-arg=-Wno-unknown-warning-option -extra-arg=-fno-openmp -clang-tidy-binary $(BIN)/clang-tidy \
	  -p $(BUILD) '/csrc/.*\.cpp$$' > $(BUILD)/clang-tidy.log 2>&1 || \
	  { grep -E 'warning|error' $(BUILD)/clang-tidy.log; exit 1; }

format: $(STAMP)  ## Rewrite the sources in the project's format
	clang-format -i $(CPP_FILES)
	ruff check --fix .
	ruff format .

# Other versions of torch word some of it differently.
check-default-torch:
	@[ "$(TORCH)" = "$(DEFAULT_TORCH)" ] || { echo "the files in the repository are written with torch $(DEFAULT_TORCH)"; exit 1; }

stubs: check-default-torch build  ## Write python/ampscaler/_C.pyi anew from the built module
	python tests/python/stubs.py --write

contract: check-default-torch build  ## Write docs/parity.md and the scenarios for C++ anew from the conformance suite
	python tests/conformance/parity.py --write
	python tests/conformance/trace_scenarios.py --write

clean:  ## Remove the build folders (the environments stay)
	rm -rf build
