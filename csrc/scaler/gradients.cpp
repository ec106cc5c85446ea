// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Collecting, checking and grouping gradients.

#include "scaler/gradients.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include "ampscaler/gradient_prefetch.h"
#include "ampscaler/ops.h"
#include "ops/checks.h"
#include "ops/device_copy.h"
#include "ops/pass_checks.h"
#include "ops/pointer_set.h"

namespace ampscaler {
namespace {

bool has_gradient(const at::Tensor& parameter) {
  return parameter.defined() && parameter.grad().defined();
}

const void* gradient_key(const at::Tensor& parameter) {
  return parameter.grad().unsafeGetTensorImpl();
}

at::Tensor gradient_values(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  return gradient.is_sparse() ? gradient._values() : gradient;
}

void coalesce_half_gradient(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.is_sparse() && gradient.scalar_type() == at::kHalf) {
    parameter.mutable_grad() = gradient.coalesce();
  }
}

// Wrappers stand for other tensors: an operator they do not know would fail, or see the wrong values.
void check_no_wrapper(const char* operation, const at::Tensor& gradient) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet kWrappers({DispatchKey::Python, DispatchKey::FuncTorchBatched,
                                           DispatchKey::FuncTorchGradWrapper,
                                           DispatchKey::Functionalize});
  TORCH_CHECK_NOT_IMPLEMENTED(
      !gradient.key_set().has_any(kWrappers), operation,
      ": gradients: expected plain tensors, got a tensor subclass or functional wrapper (",
      gradient.toString(), "). Use unscale_() and torch's own functions for it.");
}

template <typename Visit>
void for_each_version(const GradientLists& gradients, Visit visit) {
  for_each_gradient(gradients, [&](const at::Tensor& gradient) {
    if (!gradient.is_inference()) {
      visit(gradient.unsafeGetTensorImpl()->version_counter());
    }
  });
}

}  // namespace

std::vector<at::Tensor> parameters_with_gradient(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> result;
  result.reserve(parameters.size());
  ops::PointerSet seen(parameters.size());
  for_each_with_gradient(parameters, [&](const at::Tensor& parameter, const at::Tensor& gradient) {
    if (seen.insert(gradient.unsafeGetTensorImpl())) {
      result.push_back(parameter);
    }
  });
  return result;
}

bool repeats_a_gradient(const std::vector<at::Tensor>& parameters) {
  ops::PointerSet seen(parameters.size());
  return std::ranges::any_of(parameters, [&](const at::Tensor& parameter) {
    return has_gradient(parameter) && !seen.insert(gradient_key(parameter));
  });
}

void check_gradients(const std::vector<at::Tensor>& parameters, bool allow_half) {
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor values = gradient_values(parameter);
    TORCH_CHECK_VALUE(allow_half || values.scalar_type() != at::kHalf,
                      "Attempting to unscale FP16 gradients.");
    ops::check_unscalable(values);
  }
}

GradientGroups group_gradients(const std::vector<at::Tensor>& parameters) {
  GradientGroups groups;
  for (const at::Tensor& parameter : parameters) {
    coalesce_half_gradient(parameter);
    groups.add(gradient_values(parameter));
  }
  return groups;
}

std::optional<GradientLists> plain_gradients(const std::vector<at::Tensor>& parameters) {
  GradientLists lists;
  lists.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!GradientGroups::is_plain(gradient)) {
      return std::nullopt;
    }
    lists.add(gradient);
  }
  return lists.are_disjoint() ? std::optional(std::move(lists)) : std::nullopt;
}

GradientLists collect_gradients(const char* operation, const std::vector<at::Tensor>& parameters) {
  GradientLists lists;
  lists.reserve(parameters.size());
  for_each_with_gradient(parameters,
                         [&](const at::Tensor& /*parameter*/, const at::Tensor& gradient) {
                           check_no_wrapper(operation, gradient);
                           lists.add(gradient);
                         });
  lists.remove_duplicates();
  return lists;
}

std::vector<at::Tensor> half_gradients(const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> halves;
  std::ranges::copy_if(gradients, std::back_inserter(halves), [](const at::Tensor& gradient) {
    return gradient.scalar_type() == at::kHalf;
  });
  return halves;
}

bool has_half_gradients(const GradientLists& gradients) {
  return std::ranges::any_of(gradients.lists(), [](const GradientLists::DeviceList& list) {
    return std::ranges::any_of(list.gradients, [](const at::Tensor& gradient) {
      return gradient.scalar_type() == at::kHalf;
    });
  });
}

GradientWrite clip_write(const PassTarget& target, bool amp_aware, bool folds, bool scale_is_one) {
  if (folds) {
    return GradientWrite::kNothing;
  }
  if (amp_aware || !target.scaled) {
    return GradientWrite::kClip;
  }
  // Where nothing is won by writing in the first pass, or a second rounding would cost too much.
  return scale_is_one || has_half_gradients(target.gradients) ? GradientWrite::kUnscaleAndClip
                                                              : GradientWrite::kUnscale;
}

KeepVersions::KeepVersions(const GradientLists& gradients) : gradients_(gradients) {
  for_each_version(gradients_, [this](const c10::VariableVersion& version) {
    versions_.push_back(version.current_version());
  });
}

KeepVersions::~KeepVersions() {
  auto before = versions_.begin();
  for_each_version(gradients_, [&](c10::VariableVersion version) {  // a copy shares the counter
    version.set_version(*before++);
  });
}

}  // namespace ampscaler
