// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backend of `grad_norms`: the sums of all units, taken in one pass over the whole list, then added
// per tensor. So one large tensor among small ones still keeps every thread busy.

#include <vector>

#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "kernels/cpu/collect.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/scalars.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"
#include "ops/signatures.h"

namespace ampscaler::cpu {
namespace {

// In the order of the plan. For other norms than 2 and inf, `sum` is the sum of powers.
std::vector<UnitStats> unit_stats(const core::UnitPlan& plan, double norm_type) {
  const KernelTable& table = kernels();
  std::vector<UnitStats> all(plan.unit_total());
  const core::PlanEntry* entries = plan.entries().data();
  for_each_unit(plan, range_count(plan), [&](const UnitVisit& visit) {
    const core::Unit& unit = visit.unit;
    const std::uint64_t offset = unit.address - entries[visit.entry].address;
    UnitStats& stats = all[core::first_unit(entries, visit.entry) +
                           offset / static_cast<std::uint64_t>(core::kUnitBytes)];
    table.stats[unit.dtype](memory_of(unit), unit.elements, &stats);
    if (is_power_norm(norm_type)) {
      stats.sum = power_sum(unit, norm_type);
    }
  });
  return all;
}

// For 0 the number of elements that are not 0, like torch's vector norm: the 0-"norm" of all these is
// then the number of tensors with such an element, which is what the whole list has.
core::GradSums sums_of_entry(const core::UnitPlan& plan, std::int64_t entry,
                             const std::vector<UnitStats>& all, double norm_type) {
  const core::PlanEntry* entries = plan.entries().data();
  core::GradSums sums = {};
  for (auto unit = core::first_unit(entries, entry); unit < entries[entry].unit_end; ++unit) {
    const core::Unit place = core::unit_of(entries, entry, unit);
    add_counts(sums, all[unit], place.elements);
    if (is_power_norm(norm_type)) {
      core::add_exactly(sums.limbs, all[unit].sum);
    } else if (norm_type != 0.0) {
      add_squares(sums, all[unit], place.dtype);
    } else {
      core::add_exactly(sums.limbs, static_cast<double>(place.elements - all[unit].zeros));
    }
  }
  return sums;
}

at::Tensor grad_norms(at::TensorList grads, const at::Tensor& scale, double norm_type) {
  ops::check_grad_norms(grads, scale, norm_type);
  const ops::GradientPlan plan(grads, ops::Access::kRead);
  const std::vector<UnitStats> all = unit_stats(plan.units(), norm_type);
  const core::GradScaling scaling = grad_scaling(scale, std::nullopt, std::nullopt);

  at::Tensor norms = at::detail::empty_cpu({static_cast<std::int64_t>(grads.size())}, at::kFloat);
  float* out = norms.mutable_data_ptr<float>();
  std::int64_t entry = 0;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    core::GradSums sums = {};
    if (grads[i].numel() != 0) {
      sums = sums_of_entry(plan.units(), entry++, all, norm_type);
    }
    double stats[core::kStatsSlots];
    float factors[core::kFactorSlots];
    core::finish(sums, norm_type, scaling, core::ClipRule(), stats, factors);
    out[i] = factors[core::kRoundedNorm];
  }
  return norms;
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("grad_norms", static_cast<ops::GradNormsFunction*>(&grad_norms));
}

}  // namespace ampscaler::cpu
