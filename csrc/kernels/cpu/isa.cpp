// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The choice of a kernel table: by the processor's features, or by name.

#include "kernels/cpu/isa.h"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace ampscaler::cpu {
namespace {

constexpr const char* kVariable = "AMPSCALER_CPU_ISA";

#if defined(AMPSCALER_X86_KERNELS)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

std::string names(const std::vector<const KernelTable*>& tables) {
  std::string result;
  for (const KernelTable* table : tables) {
    result += (result.empty() ? "" : ", ") + std::string(table->name);
  }
  return result;
}

const KernelTable& choose_by_environment() {
  const char* requested =
      std::getenv(kVariable);  // NOLINT(concurrency-mt-unsafe): once per process
  return choose_kernels(requested == nullptr ? "" : requested);
}

}  // namespace

std::vector<const KernelTable*> available_kernels() {
  std::vector<const KernelTable*> tables = {&kBaselineKernels};
#if defined(AMPSCALER_X86_KERNELS)
  if (has_avx2()) {
    tables.push_back(&kAvx2Kernels);
  }
  if (has_avx512()) {
    tables.push_back(&kAvx512Kernels);
  }
#endif
  return tables;
}

const KernelTable& choose_kernels(const std::string& requested) {
  const std::vector<const KernelTable*> tables = available_kernels();
  if (requested.empty()) {
    return *tables.back();
  }
  for (const KernelTable* table : tables) {
    if (requested == table->name) {
      return *table;
    }
  }
  throw std::invalid_argument(std::string(kVariable) + ": expected one of " + names(tables) +
                              " on this machine, got '" + requested + "'");
}

const KernelTable& kernels() {
  static const KernelTable& chosen = choose_by_environment();
  return chosen;
}

}  // namespace ampscaler::cpu
