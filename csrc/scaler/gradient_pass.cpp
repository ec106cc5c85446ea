// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The joint pass: one operator call per device and optimizer, a merge where there are several, and a
// second pass where something is left to write.

#include "ampscaler/gradient_pass.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "core/grad_stats.h"
#include "ops/conclusions_by_torch.h"
#include "ops/device_copy.h"
#include "ops/pass_checks.h"
#include "ops/pointer_set.h"
#include "scaler/gradients.h"

namespace ampscaler {
namespace {

std::optional<at::Tensor> on_device(const std::optional<at::Tensor>& tensor, c10::Device device) {
  return tensor ? std::optional(ops::on_device(*tensor, device)) : std::nullopt;
}

// One value of a row, as a tensor without dimensions. On the CPU a copy: that goes without the dispatcher,
// which takes longer for the handful of values here than a pass over a hundred small gradients.
at::Tensor slot_of(const at::Tensor& row, std::int64_t slot) {
  if (!row.is_cpu() || !GradientGroups::is_plain(row)) {
    return row.select(0, slot);
  }
  at::Tensor value = at::detail::empty_cpu({}, row.scalar_type());
  const auto bytes = static_cast<std::size_t>(row.itemsize());
  const auto* values = static_cast<const std::byte*>(row.const_data_ptr());
  std::memcpy(value.mutable_data_ptr(), values + static_cast<std::size_t>(slot) * bytes, bytes);
  return value;
}

at::Tensor factor(const ops::GradStats& found, core::FactorSlot slot) {
  return slot_of(found.factors, slot);
}

// What counts the references to a gradient has left the caches while it was read.
void give_back(std::vector<at::Tensor>& gradients) {
  constexpr std::size_t kAhead = 16;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (i + kAhead < gradients.size()) {
      __builtin_prefetch(gradients[i + kAhead].unsafeGetTensorImpl(), /*for writing*/ 1);
    }
    gradients[i].reset();
  }
}

// A flag that somebody may write to, as an all-reduce does.
at::Tensor own_flag(const ops::GradStats& found) {
  at::Tensor flag = factor(found, core::kFoundInf);
  return flag.is_alias_of(found.factors) ? flag.clone() : flag;
}

// The gradients of one optimizer on one device, with the scalars of their pass there.
struct ListPass {
  const PassTarget& target;
  const GradientLists::DeviceList& list;
  at::Tensor scale;
  ops::GradStatsOptions options;
  ops::GradStats found;
};

// The user's factor and what is left of earlier clips, as the one number that true gradients are smaller
// by.
std::optional<at::Tensor> pending_factor(const PassTarget& target, c10::Device device) {
  if (!target.clip_coefficient) {
    return on_device(target.user_scale, device);
  }
  const at::Tensor none = at::zeros({}, at::dtype(at::kFloat).device(device));
  return step_factors(none, {}, {}, target.user_scale, target.clip_coefficient).grad_scale;
}

at::Tensor scale_for(const PassTarget& target, const at::Tensor& scale, c10::Device device) {
  return target.scaled ? ops::on_device(scale, device)
                       : at::ones({}, scale.options().device(device));
}

std::size_t list_count(const std::vector<PassTarget>& targets) {
  std::size_t count = 0;
  for (const PassTarget& target : targets) {
    count += target.gradients.lists().size();
  }
  return count;
}

std::vector<ListPass> prepare(const std::vector<PassTarget>& targets, const at::Tensor& scale,
                              const ops::GradStatsOptions& options) {
  std::vector<ListPass> passes;
  passes.reserve(list_count(targets));
  for (const PassTarget& target : targets) {
    for (const GradientLists::DeviceList& list : target.gradients.lists()) {
      passes.push_back({target, list, scale_for(target, scale, list.device), options, {}});
      ops::GradStatsOptions& here = passes.back().options;
      here.accumulate = std::nullopt;
      here.max_norm_tensor = on_device(options.max_norm_tensor, list.device);
      here.user_scale = pending_factor(target, list.device);
      here.divisor = target.scaled ? on_device(options.divisor, list.device) : std::nullopt;
    }
  }
  return passes;
}

// Also across targets: a gradient of two optimizers would be written twice.
void check_all_disjoint(const char* operation, const std::vector<ListPass>& passes) {
  GradientLists all;
  for (const ListPass& pass : passes) {
    for (const at::Tensor& gradient : pass.list.gradients) {
      all.add(gradient);
    }
  }
  for (const GradientLists::DeviceList& list : all.lists()) {
    ops::check_disjoint(operation, list.gradients);
  }
}

// So that what one list is refused for does not come after another is written, and texts name `operation`.
void check_all(const char* operation, const std::vector<ListPass>& passes) {
  for (const ListPass& pass : passes) {
    const ops::GradStatsOptions& o = pass.options;
    const bool in_place = pass.target.write != GradientWrite::kNothing;
    ops::check_pass(operation, pass.list.gradients, pass.scale, o.divisor, o.user_scale,
                    o.norm_type, o.max_norm, o.max_norm_tensor, o.eps, o.accumulate, in_place);
  }
  check_all_disjoint(operation, passes);
}

void read_list(ListPass& pass, bool only_list) {
  ops::GradStatsOptions options = pass.options;
  if (!only_list) {  // the limit is for all lists together
    options.max_norm = std::nullopt;
    options.max_norm_tensor = std::nullopt;
  }
  pass.found = pass.target.write == GradientWrite::kUnscale
                   ? ops::unscale_with_stats_(pass.list.gradients, pass.scale, options)
                   : ops::grad_stats(pass.list.gradients, pass.scale, options);
}

// The operator checks what it is given, before it writes: a single list is not gone through twice for it.
void read_all(const char* operation, std::vector<ListPass>& passes) {
  if (passes.size() != 1) {
    check_all(operation, passes);
  }
  try {
    for (ListPass& pass : passes) {
      read_list(pass, passes.size() == 1);
    }
  } catch (const c10::Error&) {
    check_all(operation, passes);  // the same error, but in the name of `operation`
    throw;
  }
}

// What all lists together have found, on the device of the scale.
ops::GradStats combine(const char* operation, const std::vector<ListPass>& passes,
                       const at::Tensor& scale, const ops::GradStatsOptions& options) {
  if (passes.empty()) {
    ops::GradStatsOptions empty = options;
    empty.divisor = on_device(options.divisor, scale.device());
    empty.max_norm_tensor = on_device(options.max_norm_tensor, scale.device());
    ops::check_pass(operation, {}, scale, empty.divisor, {}, empty.norm_type, empty.max_norm,
                    empty.max_norm_tensor, empty.eps, {}, /*in_place=*/false);
    return ops::grad_stats({}, scale, empty);
  }
  const c10::Device home = scale.device();
  if (passes.size() == 1 && passes.front().list.device == home) {
    return passes.front().found;
  }
  std::vector<at::Tensor> stats;
  stats.reserve(passes.size());
  for (const ListPass& pass : passes) {
    stats.push_back(ops::on_device(pass.found.stats, home));
  }
  ops::GradStatsOptions merged = options;
  merged.max_norm_tensor = on_device(options.max_norm_tensor, home);
  ops::GradStats all = ops::merge_stats(stats, merged);
  // A scaling that cannot be used sets a flag without a non-finite value to count.
  for (const ListPass& pass : passes) {
    const at::Tensor flag = all.factors.select(0, core::kFoundInf);
    flag.copy_(at::maximum(flag, ops::on_device(factor(pass.found, core::kFoundInf), home)));
  }
  return all;
}

// What is left to multiply the gradients of a list by; nothing if the pass has done it all.
std::optional<at::Tensor> second_factor(const ListPass& pass, const ops::GradStats& all,
                                        bool limited, bool only_list) {
  const c10::Device device = pass.list.device;
  switch (pass.target.write) {
    case GradientWrite::kNothing:
      return std::nullopt;
    case GradientWrite::kClip:
    case GradientWrite::kUnscale:
      return limited ? std::optional(ops::on_device(factor(all, core::kRoundedClip), device))
                     : std::nullopt;
    case GradientWrite::kUnscaleAndClip:
      break;
  }
  at::Tensor own = factor(pass.found, core::kUnscaleAndClip);
  if (only_list) {
    return own;
  }
  const at::Tensor coefficient = ops::on_device(slot_of(all.stats, core::kClipCoefficient), device);
  return (own.to(at::kDouble) * coefficient).to(at::kFloat);
}

// The factors of a pass where the host sees them, on the CPU.
const float* visible_factors(const ops::GradStats& found) {
  const bool visible = found.factors.is_cpu() && GradientGroups::is_plain(found.factors);
  return visible ? found.factors.const_data_ptr<float>() : nullptr;
}

// Whether nothing is left to do, as in most steps: then nobody need go through a list of thousands of
// gradients once more.
bool leaves_nothing(const ListPass& pass, const ops::GradStats& all) {
  const bool clips =
      pass.target.write == GradientWrite::kClip || pass.target.write == GradientWrite::kUnscale;
  const float* factors = pass.list.device.is_cpu() ? visible_factors(all) : nullptr;
  return clips && factors != nullptr &&
         (factors[core::kRoundedClip] == 1.0F || factors[core::kFoundInf] != 0.0F);
}

void write_list(const ListPass& pass, const ops::GradStats& all, bool limited, bool only_list) {
  if (leaves_nothing(pass, all)) {
    return;
  }
  const std::optional<at::Tensor> left = second_factor(pass, all, limited, only_list);
  if (left) {
    const at::Tensor found_inf = ops::on_device(factor(all, core::kFoundInf), pass.list.device);
    ops::scale_grads_(pass.list.gradients, *left, found_inf);
  }
}

// The coefficient of this pass on top of what was left before.
std::vector<at::Tensor> coefficients_of(const std::vector<PassTarget>& targets,
                                        const ops::GradStats& all) {
  const at::Tensor coefficient = slot_of(all.stats, core::kClipCoefficient);
  std::vector<at::Tensor> result;
  result.reserve(targets.size());
  for (const PassTarget& target : targets) {
    result.push_back(target.clip_coefficient ? coefficient * *target.clip_coefficient
                                             : coefficient);
  }
  return result;
}

// A scale below 1 can take float16 gradients to infinity, and what a second pass writes no one has seen.
bool may_overflow(const ListPass& pass) {
  if (pass.target.write != GradientWrite::kUnscaleAndClip) {
    return false;
  }
  const float* factors = visible_factors(pass.found);
  return factors == nullptr || std::abs(factors[core::kUnscaleAndClip]) > 1.0F;
}

at::Tensor found_after(const ListPass& pass, const ops::GradStats& all) {
  at::Tensor flag = own_flag(pass.found);
  const std::vector<at::Tensor> halves =
      may_overflow(pass) ? half_gradients(pass.list.gradients) : std::vector<at::Tensor>();
  if (halves.empty()) {
    return flag;
  }
  const at::Tensor one = at::ones({}, all.factors.options().device(pass.list.device));
  return at::maximum(flag, factor(ops::grad_stats(halves, one, {}), core::kFoundInf));
}

std::vector<std::vector<DeviceFoundInf>> flags_of(const std::vector<PassTarget>& targets,
                                                  const std::vector<ListPass>& passes,
                                                  const ops::GradStats& all) {
  std::vector<std::vector<DeviceFoundInf>> flags(targets.size());
  auto pass = passes.begin();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    for (const auto& list : targets[i].gradients.lists()) {
      flags[i].push_back({list.device, found_after(*pass, all)});
      ++pass;
    }
  }
  return flags;
}

}  // namespace

GradientLists::~GradientLists() {
  for (DeviceList& list : lists_) {
    give_back(list.gradients);
  }
}

std::vector<at::Tensor>& GradientLists::list_of(c10::Device device) {
  auto list = std::ranges::find(lists_, device, &DeviceList::device);
  if (list == lists_.end()) {
    list = lists_.insert(lists_.end(), DeviceList{device, {}});
    list->gradients.reserve(lists_.size() == 1 ? expected_ : 0);
  }
  return list->gradients;
}

void GradientLists::remove_duplicates() {
  if (!may_repeat_) {
    return;
  }
  for (DeviceList& list : lists_) {
    ops::PointerSet seen(list.gradients.size());
    std::erase_if(list.gradients, [&](const at::Tensor& gradient) {
      return !seen.insert(gradient.unsafeGetTensorImpl());
    });
  }
}

bool GradientLists::are_disjoint() const {
  return std::ranges::all_of(
      lists_, [](const DeviceList& list) { return ops::are_disjoint(list.gradients); });
}

PassResult run_gradient_pass(const char* operation, const std::vector<PassTarget>& targets,
                             const at::Tensor& scale, const ops::GradStatsOptions& options) {
  const c10::AutoGradMode no_grad(false);
  std::vector<ListPass> passes = prepare(targets, scale, options);
  read_all(operation, passes);
  const ops::GradStats all = combine(operation, passes, scale, options);
  const bool limited = options.max_norm.has_value() || options.max_norm_tensor.has_value();
  for (const ListPass& pass : passes) {
    write_list(pass, all, limited, passes.size() == 1);
  }
  return {factor(all, core::kRoundedNorm), factor(all, core::kFoundInf),
          coefficients_of(targets, all), flags_of(targets, passes, all)};
}

StepFactors step_factors(const at::Tensor& found_inf, const std::optional<at::Tensor>& scale,
                         const std::optional<at::Tensor>& divisor,
                         const std::optional<at::Tensor>& user_scale,
                         const std::optional<at::Tensor>& clip_coefficient) {
  const c10::Device device = found_inf.device();
  const at::Tensor factors =
      ops::step_factors(found_inf, on_device(scale, device), on_device(divisor, device),
                        on_device(user_scale, device), on_device(clip_coefficient, device));
  const bool any = scale || divisor || user_scale || clip_coefficient;
  return {slot_of(factors, 0), any ? std::optional(slot_of(factors, 1)) : std::nullopt};
}

namespace {

// A coefficient that was left to the optimizer, as a part of what gradients are divided by now.
std::optional<at::Tensor> with_coefficient(const std::optional<at::Tensor>& divisor,
                                           const std::optional<at::Tensor>& coefficient) {
  if (!coefficient) {
    return divisor;
  }
  const at::Tensor inverse = coefficient->reciprocal();
  return divisor ? ops::on_device(*divisor, inverse.device()).reshape({}) * inverse : inverse;
}

}  // namespace

std::vector<DeviceFoundInf> clamp_gradients(const PassTarget& target, const at::Tensor& scale,
                                            const std::optional<at::Tensor>& divisor,
                                            double clip_value) {
  const c10::AutoGradMode no_grad(false);
  ops::GradStatsOptions options;
  options.divisor =
      with_coefficient(target.scaled ? divisor : std::nullopt, target.clip_coefficient);
  const at::Tensor factor = target.scaled ? scale : at::ones_like(scale);
  const std::vector<PassTarget> targets{
      {target.gradients, /*scaled=*/true, GradientWrite::kUnscale}};
  const std::vector<ListPass> passes = prepare(targets, factor, options);
  constexpr const char* kOperation = "clip_grad_value_";
  check_all(kOperation, passes);
  std::vector<DeviceFoundInf> flags;
  flags.reserve(passes.size());
  for (const ListPass& pass : passes) {
    const ops::GradStats found = ops::unscale_clamp_(pass.list.gradients, pass.scale, clip_value,
                                                     pass.options.divisor, pass.options.user_scale);
    flags.push_back({pass.list.device, own_flag(found)});
  }
  return flags;
}

InverseScale inverse_scale(const at::Tensor& scale, const std::optional<at::Tensor>& divisor) {
  const c10::AutoGradMode no_grad(false);
  const ops::ScalingTensors scaling =
      ops::make_scaling(scale, on_device(divisor, scale.device()), {}, at::kDouble);
  return {ops::inverse_scale(scaling),
          ops::is_valid_divisor(scaling.divisor).logical_not().to(at::kFloat)};
}

}  // namespace ampscaler
