// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The choice of a table: by name, by the machine, and by the environment variable of a fresh process.

#include "kernels/cpu/isa.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace ampscaler::cpu {
namespace {

TEST(Isa, BeginsWithTheBaselineAndWidens) {
  const auto tables = available_kernels();
  ASSERT_GE(tables.size(), 1U);
  const std::string names[] = {"baseline", "avx2", "avx512"};
  ASSERT_LE(tables.size(), std::size(names));
  for (std::size_t i = 0; i < tables.size(); ++i) {
    EXPECT_EQ(tables[i]->name, names[i]);
  }
}

#if defined(AMPSCALER_X86_KERNELS)
TEST(Isa, HasWhatTheProcessorHas) {
  const auto tables = available_kernels();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  EXPECT_EQ(tables.size(), 1U + (avx2 ? 1 : 0) + (avx512 ? 1 : 0));
}
#endif

TEST(Isa, EveryEntryOfATableIsFilled) {
  for (const KernelTable* table : available_kernels()) {
    for (int type = 0; type < kDataTypes; ++type) {
      EXPECT_NE(table->stats[type], nullptr);
      EXPECT_NE(table->unscale_with_stats[type], nullptr);
      EXPECT_NE(table->unscale_clamp[type], nullptr);
      EXPECT_NE(table->multiply[type], nullptr);
    }
  }
}

TEST(Isa, ChoosesByNameAndTheWidestWithoutOne) {
  for (const KernelTable* table : available_kernels()) {
    EXPECT_EQ(&choose_kernels(table->name), table);
  }
  EXPECT_EQ(&choose_kernels(""), available_kernels().back());
}

TEST(Isa, RefusesAnUnknownNameWithWhatTheMachineHas) {
  std::string available;
  for (const KernelTable* table : available_kernels()) {
    available += (available.empty() ? "" : ", ") + std::string(table->name);
  }
  try {
    choose_kernels("sse9");
    FAIL() << "no exception";
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(),
              "AMPSCALER_CPU_ISA: expected one of " + available + " on this machine, got 'sse9'");
  }
}

[[noreturn]] void exit_with_name(const char* variable) {
  if (variable == nullptr) {
    unsetenv("AMPSCALER_CPU_ISA");
  } else {
    setenv("AMPSCALER_CPU_ISA", variable, 1);
  }
  try {
    std::fprintf(stderr, "chosen: %s;", kernels().name);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s", error.what());
    std::exit(1);
  }
  std::exit(0);
}

// Each in a process of its own, since the choice is made once.
TEST(IsaDeathTest, IsChosenOncePerProcessByTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const KernelTable* table : available_kernels()) {
    EXPECT_EXIT(exit_with_name(table->name), testing::ExitedWithCode(0),
                "chosen: " + std::string(table->name) + ";");
  }
  const std::string widest = available_kernels().back()->name;
  EXPECT_EXIT(exit_with_name(nullptr), testing::ExitedWithCode(0), "chosen: " + widest + ";");
  EXPECT_EXIT(exit_with_name(""), testing::ExitedWithCode(0), "chosen: " + widest + ";");
  EXPECT_EXIT(exit_with_name("sse9"), testing::ExitedWithCode(1), "AMPSCALER_CPU_ISA: expected");
}

}  // namespace
}  // namespace ampscaler::cpu
