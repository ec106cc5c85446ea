// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// CPU backend of `scale_grads_`, the second pass of clipping. Most steps do not clip: then it returns
// without a look at the gradients.

#include <torch/library.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/scalars.h"
#include "kernels/cpu/unit_loop.h"
#include "ops/gradient_plan.h"
#include "ops/pass_checks.h"
#include "ops/signatures.h"

namespace ampscaler::cpu {
namespace {

void multiply(at::TensorList grads, float factor) {
  const KernelTable& table = kernels();
  const ops::GradientPlan plan(grads, ops::Access::kWrite);
  for_each_unit(plan.units(), range_count(plan.units()), [&](const UnitVisit& visit) {
    table.multiply[visit.unit.dtype](memory_of(visit.unit), visit.unit.elements, factor);
  });
  plan.copy_back();
}

void scale_grads(at::TensorList grads, const at::Tensor& factor, const at::Tensor& found_inf) {
  ops::check_scale_grads(grads, factor, found_inf);
  ops::check_disjoint("scale_grads_", grads);
  ops::bump_versions(grads);  // as on devices, where the host does not know the factor
  const auto value = static_cast<float>(number(factor));
  if (value != 1.0F && number(found_inf) == 0.0) {
    multiply(grads, value);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(ampscaler, CPU, library) {
  library.impl("scale_grads_", static_cast<ops::ScaleGradsFunction*>(&scale_grads));
}

}  // namespace ampscaler::cpu
