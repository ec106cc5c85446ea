// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// A list of flat tensors, cut into units of 16 KiB: what a kernel sums in one go. A unit never spans two
// tensors and is counted from the tensor's element 0, so neither addresses nor threads nor the order of
// the list change what is summed together.
//
//   tensor 0, 40 KiB        tensor 1, 256 B
//   units [0    1    2 ]    [3 ]             unit_end = {3, 4}

#include <cstdint>
#include <vector>

#include "core/data_type.h"
#include "core/macros.h"

namespace ampscaler::core {

inline constexpr std::int64_t kUnitBytes = 16384;

AMPSCALER_HOST_DEVICE constexpr std::int64_t element_bytes(DataType dtype) {
  return dtype == kFloat64 ? 8 : dtype == kFloat32 ? 4 : 2;
}

AMPSCALER_HOST_DEVICE constexpr std::int64_t unit_elements(DataType dtype) {
  return kUnitBytes / element_bytes(dtype);
}

AMPSCALER_HOST_DEVICE constexpr std::int64_t unit_count(std::int64_t elements, DataType dtype) {
  const std::int64_t whole = elements / unit_elements(dtype);
  return elements % unit_elements(dtype) == 0 ? whole : whole + 1;
}

/// One tensor in 16 bytes: 2,040 are arguments of a CUDA kernel. Unit ids of 32 bits cover 64 TiB.
struct PlanEntry {
  std::uint64_t address;
  std::uint32_t unit_end;        // units of this tensor and of all before it
  std::uint32_t tail_and_dtype;  // bits 0-23: elements of its last unit; bits 28-31: its DataType
};

AMPSCALER_HOST_DEVICE inline DataType entry_dtype(PlanEntry entry) {
  return static_cast<DataType>(entry.tail_and_dtype >> 28U);
}

AMPSCALER_HOST_DEVICE inline std::int64_t entry_tail(PlanEntry entry) {
  return entry.tail_and_dtype & 0xFF'FFFFU;
}

AMPSCALER_HOST_DEVICE inline std::uint32_t first_unit(const PlanEntry* entries,
                                                      std::int64_t index) {
  return index == 0 ? 0 : entries[index - 1].unit_end;
}

/// The entry that holds `unit`, which must be below the last unit_end.
AMPSCALER_HOST_DEVICE inline std::int64_t find_entry(const PlanEntry* entries, std::int64_t count,
                                                     std::uint32_t unit) {
  std::int64_t low = 0;
  std::int64_t high = count - 1;
  while (low < high) {  // the first entry that ends after `unit`
    const std::int64_t middle = (low + high) / 2;
    if (entries[middle].unit_end <= unit) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

struct Unit {
  std::uint64_t address;
  std::int64_t elements;
  DataType dtype;
};

/// `unit` of the list, which lies in entry `index`.
AMPSCALER_HOST_DEVICE inline Unit unit_of(const PlanEntry* entries, std::int64_t index,
                                          std::uint32_t unit) {
  const PlanEntry entry = entries[index];
  const DataType dtype = entry_dtype(entry);
  const std::uint64_t offset =
      static_cast<std::uint64_t>(unit - first_unit(entries, index)) * kUnitBytes;
  return {entry.address + offset,
          unit + 1 == entry.unit_end ? entry_tail(entry) : unit_elements(dtype), dtype};
}

/// Whether a tensor without elements has an entry, without units: it has a place in some results.
enum class EmptyTensors : std::uint8_t { kLeaveOut, kKeep };

/// The list on the host. All tensors must fit in the 64 TiB above.
class UnitPlan {
 public:
  explicit UnitPlan(EmptyTensors empty_tensors = EmptyTensors::kLeaveOut)
      : empty_tensors_(empty_tensors) {}

  void reserve(std::size_t tensors) { entries_.reserve(tensors); }

  void add(std::uint64_t address, std::int64_t elements, DataType dtype) {
    if (elements == 0 && empty_tensors_ == EmptyTensors::kLeaveOut) {
      return;
    }
    const std::int64_t units = unit_count(elements, dtype);
    const std::int64_t before_tail = elements == 0 ? 0 : (units - 1) * unit_elements(dtype);
    const auto tail = static_cast<std::uint32_t>(elements - before_tail);
    entries_.push_back({address, unit_total() + static_cast<std::uint32_t>(units),
                        tail | static_cast<std::uint32_t>(dtype) << 28U});
    elements_ += elements;
    bytes_ += elements * element_bytes(dtype);
  }

  const std::vector<PlanEntry>& entries() const { return entries_; }
  std::uint32_t unit_total() const { return entries_.empty() ? 0 : entries_.back().unit_end; }
  std::int64_t elements() const { return elements_; }
  std::int64_t bytes() const { return bytes_; }

  /// `parts` + 1 ascending unit ids from 0 to unit_total(): ranges that may begin inside a tensor, each
  /// within one unit's cost of an equal share. `parts` is at least 1.
  std::vector<std::uint32_t> split(std::int64_t parts) const;

 private:
  EmptyTensors empty_tensors_;
  std::vector<PlanEntry> entries_;
  std::int64_t elements_ = 0;
  std::int64_t bytes_ = 0;
};

/// What starting on another unit costs, in bytes read meanwhile.
inline constexpr std::int64_t kUnitOverheadBytes = 256;

inline std::vector<std::uint32_t> UnitPlan::split(std::int64_t parts) const {
  const std::int64_t total = bytes_ + kUnitOverheadBytes * unit_total();
  const std::int64_t full_unit = kUnitBytes + kUnitOverheadBytes;
  const auto target_of = [&](std::int64_t part) {  // without the overflow of total * part
    return total / parts * part + total % parts * part / parts;
  };
  std::vector<std::uint32_t> bounds{0};
  bounds.reserve(static_cast<std::size_t>(parts) + 1);
  std::int64_t cost_before = 0;  // of all entries before the current one
  std::int64_t part = 1;         // the next one to begin, at `target`
  std::int64_t target = target_of(part);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const PlanEntry entry = entries_[i];
    const std::uint32_t first = first_unit(entries_.data(), static_cast<std::int64_t>(i));
    const std::int64_t units = entry.unit_end - first;
    const std::int64_t tail_bytes = entry_tail(entry) * element_bytes(entry_dtype(entry));
    const std::int64_t cost = (units - 1) * full_unit + tail_bytes + kUnitOverheadBytes;
    for (; part < parts && target < cost_before + cost; target = target_of(++part)) {
      bounds.push_back(first + static_cast<std::uint32_t>((target - cost_before) / full_unit));
    }
    cost_before += cost;
  }
  bounds.resize(static_cast<std::size_t>(parts), unit_total());
  bounds.push_back(unit_total());
  return bounds;
}

}  // namespace ampscaler::core
