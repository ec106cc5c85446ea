// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Tables against the plan that they are cut from, and the shares of blocks. Nothing is read at an address,
// so tensors can be larger than memory.

#include "core/unit_table.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace ampscaler::core {
namespace {

UnitPlan small_tensors(int count) {
  UnitPlan plan;
  for (int i = 0; i < count; ++i) {
    plan.add(0x1000U * static_cast<unsigned>(i + 1), 1 + 5000 * (i % 3),
             static_cast<DataType>(i % kDataTypes));
  }
  return plan;
}

struct Shape {
  int tables = 0;
  std::uint32_t entries = 0;
  std::uint32_t units = 0;
  std::vector<bool> last;
};

/// Checks every unit of every table against the plan's own.
Shape expect_same_units(const UnitPlan& plan) {
  Shape shape;
  for_each_table(plan, [&]<int kCapacity>(const UnitTable<kCapacity>& table, TablePlace place) {
    EXPECT_EQ(place.first_entry, shape.entries);
    EXPECT_EQ(place.first_unit, shape.units);
    EXPECT_LE(table.count, static_cast<std::uint32_t>(kCapacity));
    for (std::uint32_t id = 0; id < table.units; ++id) {
      const std::uint32_t in_plan = id + place.first_unit;
      const std::int64_t entry = find_entry(
          plan.entries().data(), static_cast<std::int64_t>(plan.entries().size()), in_plan);
      const Unit expected = unit_of(plan.entries().data(), entry, in_plan);
      const std::uint32_t found = find_entry(table, id);
      EXPECT_EQ(found + place.first_entry, entry);
      const Unit unit = unit_of(table, found, id);
      EXPECT_EQ(unit.address, expected.address);
      EXPECT_EQ(unit.elements, expected.elements);
      EXPECT_EQ(unit.dtype, expected.dtype);
    }
    ++shape.tables;
    shape.entries += table.count;
    shape.units += table.units;
    shape.last.push_back(place.last);
  });
  EXPECT_EQ(shape.entries, plan.entries().size());
  EXPECT_EQ(shape.units, plan.unit_total());
  return shape;
}

TEST(UnitTable, HasTheUnitsOfItsPlan) {
  for (const int count : {1, 2, 119, 120, 121, 2039, 2040}) {
    const Shape shape = expect_same_units(small_tensors(count));
    EXPECT_EQ(shape.tables, 1) << count;
    EXPECT_EQ(shape.last, std::vector<bool>{true}) << count;
  }
}

TEST(UnitTable, ALongListIsCutAt2040Tensors) {
  EXPECT_EQ(expect_same_units(small_tensors(2041)).tables, 2);
  EXPECT_EQ(expect_same_units(small_tensors(4080)).tables, 2);
  const Shape shape = expect_same_units(small_tensors(5000));
  EXPECT_EQ(shape.last, (std::vector<bool>{false, false, true}));
}

TEST(UnitTable, AnEmptyPlanIsOneEmptyTable) {
  const Shape shape = expect_same_units(UnitPlan());
  EXPECT_EQ(shape.tables, 1);
  EXPECT_EQ(shape.last, std::vector<bool>{true});
}

TEST(UnitTable, LeavesRoomForOtherArguments) {
  EXPECT_LE(sizeof(UnitTable<kLargeTable>) + static_cast<std::size_t>(kOtherArgumentBytes), 32764U);
  EXPECT_GE(kOtherArgumentBytes, 112);
}

TEST(UnitTable, KeptEmptyTensorsHaveNoUnits) {
  UnitPlan plan(EmptyTensors::kKeep);
  plan.add(0, 0, kFloat32);
  plan.add(0x1000, 5000, kFloat32);
  plan.add(0, 0, kFloat64);
  plan.add(0, 0, kFloat16);
  plan.add(0x9000, 1, kFloat16);
  plan.add(0, 0, kFloat32);
  EXPECT_EQ(plan.entries().size(), 6U);
  EXPECT_EQ(plan.unit_total(), 3U);
  EXPECT_EQ(plan.elements(), 5001);
  for_each_table(plan, [](const auto& table, TablePlace /*place*/) {
    EXPECT_EQ(find_entry(table, 0), 1U);
    EXPECT_EQ(find_entry(table, 1), 1U);
    EXPECT_EQ(find_entry(table, 2), 4U);
    EXPECT_EQ(unit_of(table, 4, 2).elements, 1);
  });
}

TEST(UnitTable, SizesBeyondThirtyTwoAndFortyBits) {
  for (const DataType dtype : {kFloat16, kFloat32, kFloat64}) {
    for (const std::int64_t size :
         {(std::int64_t{1} << 31) - 1, std::int64_t{1} << 31, (std::int64_t{1} << 31) + 5,
          (std::int64_t{1} << 32) + 7, (std::int64_t{1} << 40) + 5}) {
      UnitPlan plan;
      plan.add(0x10, 3, kFloat32);
      plan.add(0x1000, size, dtype);
      plan.add(0x20, 1, kFloat16);
      EXPECT_EQ(plan.elements(), size + 4);
      const auto units = static_cast<std::uint32_t>((size - 1) / unit_elements(dtype) + 1);
      for_each_table(plan, [&](const auto& table, TablePlace /*place*/) {
        ASSERT_EQ(table.units, units + 2);
        const std::uint32_t last = units;  // of the large tensor
        EXPECT_EQ(find_entry(table, last), 1U);
        EXPECT_EQ(find_entry(table, last + 1), 2U);
        const Unit unit = unit_of(table, 1, last);
        const std::int64_t before = (static_cast<std::int64_t>(units) - 1) * unit_elements(dtype);
        EXPECT_EQ(unit.address,
                  0x1000U + static_cast<std::uint64_t>(before * element_bytes(dtype)));
        EXPECT_EQ(unit.elements, size - before);
      });
    }
  }
}

TEST(UnitTable, SharesOfBlocksCoverAllUnitsOnce) {
  for (const std::uint32_t units : {1U, 7U, 4096U, 0xFFFF'FFFFU}) {
    for (const std::uint32_t parts : {1U, 2U, 7U, 264U}) {
      EXPECT_EQ(share_begin(units, 0, parts), 0U);
      EXPECT_EQ(share_begin(units, parts, parts), units);
      for (std::uint32_t part = 0; part < parts; ++part) {
        const std::uint64_t share =
            static_cast<std::uint64_t>(share_begin(units, part + 1, parts)) -
            share_begin(units, part, parts);
        EXPECT_LE(share, std::uint64_t{units} / parts + 1);
        EXPECT_GE(share, units / parts);
      }
    }
  }
}

TEST(UnitTable, BlocksFollowTheUnitsUpToWhatTheGpuHolds) {
  EXPECT_EQ(block_count(0, 16, 264), 1U);
  EXPECT_EQ(block_count(1, 16, 264), 1U);
  EXPECT_EQ(block_count(16, 16, 264), 1U);
  EXPECT_EQ(block_count(17, 16, 264), 2U);
  EXPECT_EQ(block_count(264 * 16, 16, 264), 264U);
  EXPECT_EQ(block_count(0xFFFF'FFFFU, 16, 264), 264U);
  EXPECT_EQ(block_count(100, 16, 0), 1U);
}

}  // namespace
}  // namespace ampscaler::core
