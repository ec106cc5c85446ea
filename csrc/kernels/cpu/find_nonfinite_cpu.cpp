// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backend of `find_nonfinite`. The vector loops tell which units hold an inf or NaN; only those are
// looked at element by element.

#include <cmath>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <torch/library.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/unit_loop.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"
#include "ops/signatures.h"

namespace ampscaler::cpu {
namespace {

enum Kind : std::int64_t { kFinite, kInfinity, kNan };

// One row of the result.
struct Finding {
  std::int64_t first = -1;
  std::int64_t kind = kFinite;
  std::int64_t count = 0;
};

void add(Finding& finding, const Finding& later) {
  if (finding.first < 0) {
    finding.first = later.first;
    finding.kind = later.kind;
  }
  finding.count += later.count;
}

template <typename T>
Kind kind_of(T value) {
  const auto wide = static_cast<double>(value);
  return std::isnan(wide) ? kNan : std::isinf(wide) ? kInfinity : kFinite;
}

// An element of two components counts once, as NaN if either is.
template <typename T>
Finding scan_values(const T* values, std::int64_t elements, std::int64_t width,
                    std::int64_t offset) {
  Finding finding;
  for (std::int64_t i = 0; i < elements; ++i) {
    const Kind kind = std::max(kind_of(values[i * width]), kind_of(values[i * width + width - 1]));
    if (kind != kFinite) {
      add(finding, {offset + i, kind, 1});
    }
  }
  return finding;
}

// `unit` in elements of `width` components; the first has index `offset`.
Finding scan(const core::Unit& unit, std::int64_t width, std::int64_t offset) {
  const void* memory = memory_of(unit);
  const std::int64_t elements = unit.elements / width;
  switch (unit.dtype) {
    case core::kFloat16:
      return scan_values(static_cast<const c10::Half*>(memory), elements, width, offset);
    case core::kBFloat16:
      return scan_values(static_cast<const c10::BFloat16*>(memory), elements, width, offset);
    case core::kFloat32:
      return scan_values(static_cast<const float*>(memory), elements, width, offset);
    default:
      return scan_values(static_cast<const double*>(memory), elements, width, offset);
  }
}

// A finding in an entry of the plan.
struct EntryFinding {
  std::int64_t entry;
  Finding finding;
};

// Findings in the order of the units, several for an entry. `widths` has the components per element of
// each entry.
std::vector<EntryFinding> scan_plan(const core::UnitPlan& plan,
                                    const std::vector<std::int64_t>& widths) {
  const KernelTable& table = kernels();
  const core::PlanEntry* entries = plan.entries().data();
  const std::int64_t ranges = range_count(plan);
  std::vector<std::vector<EntryFinding>> per_range(static_cast<std::size_t>(ranges));
  for_each_unit(plan, ranges, [&](const UnitVisit& visit) {
    const core::Unit& unit = visit.unit;
    UnitStats stats;
    table.stats[unit.dtype](memory_of(unit), unit.elements, &stats);
    if (stats.infs + stats.nans > 0) {
      const std::int64_t width = widths[static_cast<std::size_t>(visit.entry)];
      const auto bytes = static_cast<std::int64_t>(unit.address - entries[visit.entry].address);
      const std::int64_t offset = bytes / core::element_bytes(unit.dtype) / width;
      per_range[static_cast<std::size_t>(visit.range)].push_back(
          {visit.entry, scan(unit, width, offset)});
    }
  });
  std::vector<EntryFinding> all;
  for (const std::vector<EntryFinding>& findings : per_range) {
    all.insert(all.end(), findings.begin(), findings.end());
  }
  return all;
}

// Positions in the list of the tensors that have elements: those of the plan.
std::vector<std::size_t> planned_positions(at::TensorList grads) {
  std::vector<std::size_t> positions;
  positions.reserve(grads.size());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (grads[i].numel() != 0) {
      positions.push_back(i);
    }
  }
  return positions;
}

// Indices are positions in memory, which are row-major only for contiguous gradients and for copies.
std::vector<Finding> findings_in_memory(at::TensorList grads) {
  const ops::GradientPlan plan(grads, ops::Access::kRead);
  const std::vector<std::size_t> positions = planned_positions(grads);
  std::vector<std::int64_t> widths;
  widths.reserve(positions.size());
  for (const std::size_t position : positions) {
    widths.push_back(ops::components(grads[position].scalar_type()));
  }
  std::vector<Finding> findings(grads.size());
  for (const EntryFinding& found : scan_plan(plan.units(), widths)) {
    add(findings[positions[static_cast<std::size_t>(found.entry)]], found.finding);
  }
  return findings;
}

bool is_permuted(const at::Tensor& grad) {
  return grad.is_non_overlapping_and_dense() && !grad.is_contiguous();
}

at::Tensor find_nonfinite(at::TensorList grads) {
  ops::check_find_nonfinite(grads);
  std::vector<Finding> findings = findings_in_memory(grads);
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (findings[i].count > 0 && is_permuted(grads[i])) {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      findings[i] = findings_in_memory(grads[i].contiguous()).front();
    }
  }
  at::Tensor result =
      at::detail::empty_cpu({static_cast<std::int64_t>(grads.size()), 3}, at::kLong);
  auto* rows = result.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < findings.size(); ++i) {
    rows[3 * i] = findings[i].first;
    rows[3 * i + 1] = findings[i].kind;
    rows[3 * i + 2] = findings[i].count;
  }
  return result;
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("find_nonfinite", static_cast<ops::FindNonfiniteFunction*>(&find_nonfinite));
}

}  // namespace ampscaler::cpu
