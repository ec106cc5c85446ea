// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The gradients of an optimizer's parameters, as AmpScaler needs them: each once, checked before
// anything is written, sparse ones by their values.

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ampscaler/gradient_groups.h"
#include "ampscaler/gradient_pass.h"

namespace ampscaler {

/// The parameters that have a gradient, without those whose gradient another one has already: a
/// second mention would divide it twice.
std::vector<at::Tensor> parameters_with_gradient(const std::vector<at::Tensor>& parameters);

/// Whether two parameters hold the same gradient.
bool repeats_a_gradient(const std::vector<at::Tensor>& parameters);

/// Throws if a gradient cannot be unscaled: c10::ValueError for float16 unless `allow_half`,
/// c10::NotImplementedError or c10::Error, with torch's texts, for dtypes and layouts.
void check_gradients(const std::vector<at::Tensor>& parameters, bool allow_half);

/// Groups the gradients' values. A sparse float16 gradient is replaced by its coalesced form first,
/// since duplicates may overflow in their sum; other sparse ones stay as they are.
GradientGroups group_gradients(const std::vector<at::Tensor>& parameters);

/// For unscale_ and the check of a step: nothing if the pass cannot do the work as torch would, because a
/// gradient is not plain (GradientGroups::is_plain) or shares memory with another one, which torch
/// accepts; group_gradients() can. `parameters` as parameters_with_gradient() returns them.
std::optional<GradientLists> plain_gradients(const std::vector<at::Tensor>& parameters);

/// For clips and queries: all gradients of `parameters`, each once. Throws c10::NotImplementedError for
/// those that only torch's operators can handle, like tensor subclasses.
GradientLists collect_gradients(const char* operation, const std::vector<at::Tensor>& parameters);

template <typename Visit>
void for_each_gradient(const GradientLists& gradients, Visit visit) {
  for (const GradientLists::DeviceList& list : gradients.lists()) {
    for (const at::Tensor& gradient : list.gradients) {
      visit(gradient);
    }
  }
}

/// The float16 ones.
std::vector<at::Tensor> half_gradients(const std::vector<at::Tensor>& gradients);
bool has_half_gradients(const GradientLists& gradients);

/// Puts the version counters of gradients back when it goes: unscale_ does not count as a change, as in
/// torch, or a gradient that has a graph of its own could not be differentiated afterwards.
class KeepVersions {
 public:
  explicit KeepVersions(const GradientLists& gradients);
  ~KeepVersions();
  KeepVersions(const KeepVersions&) = delete;
  KeepVersions& operator=(const KeepVersions&) = delete;

 private:
  const GradientLists& gradients_;
  std::vector<std::uint32_t> versions_;  // of those that have one, in the order of the lists
};

}  // namespace ampscaler
