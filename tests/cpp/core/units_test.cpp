// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Units against a list of them that is written out one by one, and the shares that a plan is split into.
// Nothing is read at an address, so tensors can be larger than memory.

#include "core/units.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

struct Flat {
  std::uint64_t address;
  std::int64_t elements;
  DataType dtype;
};

std::int64_t size_of(DataType dtype) {
  const std::int64_t sizes[kDataTypes] = {2, 2, 4, 8};
  return sizes[dtype];
}

UnitPlan plan_of(const std::vector<Flat>& tensors) {
  UnitPlan plan;
  plan.reserve(tensors.size());
  for (const Flat& tensor : tensors) {
    plan.add(tensor.address, tensor.elements, tensor.dtype);
  }
  return plan;
}

/// The reference: cuts 16 KiB off until nothing is left.
std::vector<Unit> written_out(const std::vector<Flat>& tensors) {
  std::vector<Unit> units;
  for (const Flat& tensor : tensors) {
    const std::int64_t most = 16384 / size_of(tensor.dtype);
    std::uint64_t address = tensor.address;
    for (std::int64_t left = tensor.elements; left > 0; left -= most, address += 16384) {
      units.push_back({address, std::min(left, most), tensor.dtype});
    }
  }
  return units;
}

std::int64_t bytes_of(const std::vector<Flat>& tensors) {
  std::int64_t bytes = 0;
  for (const Flat& tensor : tensors) {
    bytes += tensor.elements * size_of(tensor.dtype);
  }
  return bytes;
}

void expect_units(const std::vector<Flat>& tensors) {
  const UnitPlan plan = plan_of(tensors);
  const std::vector<Unit> expected = written_out(tensors);
  ASSERT_EQ(plan.unit_total(), expected.size());
  EXPECT_EQ(plan.bytes(), bytes_of(tensors));
  const auto count = static_cast<std::int64_t>(plan.entries().size());
  for (std::uint32_t id = 0; id < plan.unit_total(); ++id) {
    const std::int64_t entry = find_entry(plan.entries().data(), count, id);
    const Unit unit = unit_of(plan.entries().data(), entry, id);
    ASSERT_EQ(unit.address, expected[id].address) << id;
    ASSERT_EQ(unit.elements, expected[id].elements) << id;
    ASSERT_EQ(unit.dtype, expected[id].dtype) << id;
  }
}

std::vector<Flat> random_list(std::mt19937_64& random, std::size_t tensors, std::int64_t most) {
  std::vector<Flat> list;
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::int64_t elements =
        std::uniform_int_distribution<std::int64_t>(0, random() % 3 == 0 ? most : 64)(random);
    const auto dtype = static_cast<DataType>(random() % kDataTypes);
    list.push_back({random() & 0xFFFF'FFFF'FFFEU, elements, dtype});
  }
  return list;
}

TEST(Unit, Has16KiBOfEveryDataType) {
  const std::int64_t expected[kDataTypes] = {8192, 8192, 4096, 2048};
  for (const DataType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    EXPECT_EQ(element_bytes(dtype), size_of(dtype));
    EXPECT_EQ(unit_elements(dtype), expected[dtype]);
  }
}

TEST(Unit, CountsOfSizesAroundAUnit) {
  for (const DataType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    const std::int64_t unit = unit_elements(dtype);
    EXPECT_EQ(unit_count(0, dtype), 0);
    EXPECT_EQ(unit_count(1, dtype), 1);
    EXPECT_EQ(unit_count(unit - 1, dtype), 1);
    EXPECT_EQ(unit_count(unit, dtype), 1);
    EXPECT_EQ(unit_count(unit + 1, dtype), 2);
    for (const std::int64_t size : {std::int64_t{1}, unit - 1, unit, unit + 1, 5 * unit}) {
      expect_units({{0x1000, size, dtype}});
      expect_units({{0x1000, 3, kFloat32}, {0x77777770, size, dtype}, {0x2002, 9, kFloat16}});
    }
  }
}

TEST(UnitPlan, AgreesWithAListWrittenOut) {
  std::mt19937_64 random(1);
  for (std::size_t tensors = 0; tensors < 200; ++tensors) {
    expect_units(random_list(random, tensors, 50000));
  }
}

TEST(UnitPlan, LeavesOutTensorsWithoutElements) {
  const Flat none{0x5000, 0, kFloat32};
  const Flat some{0x9000, 5000, kFloat32};
  expect_units({none, some, some});
  expect_units({some, none, none, some});
  expect_units({some, some, none});
  EXPECT_EQ(plan_of({none, some, none}).entries().size(), 1U);
  const UnitPlan empty = plan_of({none, none});
  EXPECT_EQ(empty.unit_total(), 0U);
  EXPECT_EQ(empty.bytes(), 0);
  EXPECT_TRUE(empty.entries().empty());
}

TEST(UnitPlan, HoldsTensorsOfMoreThan32Bits) {
  const std::int64_t two_31 = std::int64_t{1} << 31;
  for (const DataType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    for (const std::int64_t size : {two_31 - 1, two_31, two_31 + 5, 2 * two_31 + 7}) {
      expect_units({{0x1002, 1, kBFloat16}, {0x7F00'0000'0000, size, dtype}, {0x10, 1, kFloat64}});
    }
  }
}

/// What each unit costs by the rule in units.h, added up.
std::vector<std::int64_t> costs_before(const std::vector<Flat>& tensors) {
  std::vector<std::int64_t> sums{0};
  for (const Unit& unit : written_out(tensors)) {
    sums.push_back(sums.back() + unit.elements * size_of(unit.dtype) + kUnitOverheadBytes);
  }
  return sums;
}

/// Checks a split; returns the largest difference between two parts, in bytes.
std::int64_t expect_fair(const std::vector<Flat>& tensors, std::int64_t parts) {
  const UnitPlan plan = plan_of(tensors);
  const std::vector<std::uint32_t> bounds = plan.split(parts);
  EXPECT_EQ(bounds.size(), static_cast<std::size_t>(parts + 1));
  EXPECT_EQ(bounds.front(), 0U);
  EXPECT_EQ(bounds.back(), plan.unit_total());
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  const std::vector<std::int64_t> before = costs_before(tensors);
  const std::int64_t unit = kUnitBytes + kUnitOverheadBytes;
  std::int64_t least = before.back();
  std::int64_t most = 0;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const std::int64_t cost = before[bounds[i + 1]] - before[bounds[i]];
    EXPECT_LE(std::abs(cost * parts - before.back()), unit * parts) << i << " of " << parts;
    least = std::min(least, cost);
    most = std::max(most, cost);
  }
  return most - least;
}

TEST(Split, CoversRandomListsInFairShares) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 300; ++round) {
    const std::vector<Flat> list = random_list(random, random() % 80, 200000);
    for (const std::int64_t parts : {1, 2, 3, 7, 16, 64, 1000}) {
      expect_fair(list, parts);
    }
  }
}

TEST(Split, GivesEqualTensorsEqualShares) {
  for (const std::int64_t elements : {1, 64, 4096, 8192, 5000}) {
    const std::vector<Flat> list(24, {0x1000, elements, kFloat32});
    for (const std::int64_t parts : {1, 2, 3, 4, 6, 8, 12, 24}) {
      EXPECT_EQ(expect_fair(list, parts), 0) << elements << " " << parts;
    }
  }
}

TEST(Split, GivesNoPartTwoUnitsWhereThereAreEnoughParts) {
  const std::vector<Flat> list(3, {0x1000, 1, kFloat32});
  for (std::int64_t parts = 3; parts < 2000; ++parts) {
    const std::vector<std::uint32_t> bounds = plan_of(list).split(parts);
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      ASSERT_LE(bounds[i + 1] - bounds[i], 1U) << parts;
    }
  }
}

TEST(Split, OfAnEmptyPlanHasEmptyParts) {
  EXPECT_EQ(UnitPlan().split(1), (std::vector<std::uint32_t>{0, 0}));
  EXPECT_EQ(UnitPlan().split(5), std::vector<std::uint32_t>(6, 0));
}

// Thousands of biases beside one embedding, wherever it stands: a share by number of units would give
// one part the biases, of 384 bytes each, for as many units of 16 KiB.
TEST(Split, SharesAHugeTensorAndThousandsOfTinyOnes) {
  for (const std::size_t place : {0, 2500, 5000}) {
    std::vector<Flat> list(5000, {0x1000, 64, kBFloat16});
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(place),
                {0x7000'0000, 50'000'000, kFloat32});
    for (const std::int64_t parts : {2, 3, 8, 132, 264}) {
      expect_fair(list, parts);
    }
  }
}

TEST(Split, OfAlmost64TiBDoesNotOverflow) {
  const std::int64_t units = 0xFFFF'FFFE;
  UnitPlan plan;
  plan.add(0x1000, units * 4096, kFloat32);
  plan.add(0x1000, 1, kFloat16);
  EXPECT_EQ(plan.unit_total(), 0xFFFF'FFFFU);
  const std::vector<std::uint32_t> bounds = plan.split(1024);
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(bounds[i + 1] - bounds[i]), 0x1p22, 1.0) << i;
  }
  const Unit last = unit_of(plan.entries().data(), 0, 0xFFFF'FFFDU);
  EXPECT_EQ(last.address, 0x1000 + (std::uint64_t{0xFFFF'FFFD} << 14U));
  EXPECT_EQ(last.elements, 4096);
}

}  // namespace
}  // namespace ampscaler::core
