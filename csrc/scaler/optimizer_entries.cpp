// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Entries of optimizers, and how an optimizer is recognised.

#include "scaler/optimizer_entries.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace ampscaler {
namespace {

std::shared_ptr<const RememberedParameters> remember(const std::vector<at::Tensor>& parameters) {
  RememberedParameters remembered;
  remembered.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    remembered.emplace_back(parameter.getIntrusivePtr());
  }
  return std::make_shared<const RememberedParameters>(std::move(remembered));
}

// Groups may be reordered, extended or thinned out between two calls, and a generator is empty the
// second time.
bool is_same_optimizer(const RememberedParameters& before, const std::vector<at::Tensor>& now) {
  if (before.empty() || now.empty() ||
      before.front()._unsafe_get_target() == now.front().unsafeGetTensorImpl()) {
    return true;
  }
  std::unordered_set<const void*> addresses;
  for (const WeakTensor& parameter : before) {
    addresses.insert(parameter._unsafe_get_target());
  }
  return std::ranges::any_of(now, [&](const at::Tensor& parameter) {
    return addresses.contains(parameter.unsafeGetTensorImpl());
  });
}

void append(std::vector<DeviceFoundInf>& all, const std::vector<DeviceFoundInf>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

void OptimizerEntry::record(const std::vector<DeviceFoundInf>& found_inf) {
  append(found_inf_per_device, found_inf);
}

OptimizerEntry OptimizerEntries::find(const Participant& optimizer) const {
  const auto found = entries_.find(optimizer.adapter.identity());
  if (found != entries_.end() &&
      is_same_optimizer(*found->second.parameters, optimizer.parameters)) {
    return found->second;
  }
  OptimizerEntry fresh;
  fresh.parameters = remember(optimizer.parameters);
  return fresh;
}

void OptimizerEntries::store(const Participant& optimizer, const OptimizerEntry& entry) {
  OptimizerEntry& stored = entries_[optimizer.adapter.identity()];
  if (stored.parameters != entry.parameters) {
    append(found_inf_of_past_optimizers_, stored.found_inf_per_device);
  }
  stored = entry;
}

void OptimizerEntries::store_stepped(const Participant& optimizer, OptimizerEntry entry,
                                     std::int64_t iteration_before) {
  if (iteration_ == iteration_before) {
    entry.stage = core::Stage::kStepped;
    store(optimizer, entry);
  }
}

std::vector<DeviceFoundInf> OptimizerEntries::found_inf() const {
  std::vector<DeviceFoundInf> all = found_inf_of_past_optimizers_;
  for (const auto& [identity, entry] : entries_) {
    append(all, entry.found_inf_per_device);
  }
  return all;
}

bool OptimizerEntries::has_checks() const {
  return !found_inf_of_past_optimizers_.empty() ||
         std::ranges::any_of(entries_, [](const auto& entry) {
           return !entry.second.found_inf_per_device.empty();
         });
}

void OptimizerEntries::end_iteration() {
  entries_.clear();
  found_inf_of_past_optimizers_.clear();
  ++iteration_;
}

}  // namespace ampscaler
