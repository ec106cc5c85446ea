// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Gradients sorted by device (type and index) and dtype, in the order in which they were first
// seen, and unscaled group by group.
//
//   add(g0: cuda:0 float)             cuda:0 [float: g0] [double: g2]
//   add(g1: cuda:1 float)      ->     cuda:1 [float: g1]
//   add(g2: cuda:0 double)

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/UndefinedTensorImpl.h>

#include "ampscaler/export.h"

namespace ampscaler {

/// A tensor that is remembered but not kept alive. Nothing else can come to live at its address meanwhile.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

/// What the check of one device found: a 0-dim float32 tensor on that device, 1 if a gradient held
/// inf or NaN, else 0.
struct DeviceFoundInf {
  c10::Device device;
  at::Tensor found_inf;
};

/// The flags of several checks as a new 0-dim float32 tensor on `device`: their maximum, so exactly 0
/// or 1; 0 for no flag. Does not wait.
AMPSCALER_API at::Tensor combine_found_inf(const std::vector<DeviceFoundInf>& found_inf_per_device,
                                           c10::Device device);

/// Their sum, as torch forms it before the step of an ordinary optimizer. Waits once, for all devices.
AMPSCALER_API double sum_found_inf(const std::vector<DeviceFoundInf>& found_inf_per_device);

/// For bindings and adapters that collect gradients themselves; programs use AmpScaler. One thread at
/// a time.
class AMPSCALER_API GradientGroups {
 public:
  struct DtypeGroup {
    at::ScalarType dtype;
    std::vector<at::Tensor> gradients;
    bool ours;  // unscaled by ampscaler::unscale_; by torch's operator if one gradient must be
    bool may_share_memory;  // so it is looked at before all are unscaled by one call
  };
  struct DeviceGroup {
    c10::Device device;
    std::vector<DtypeGroup> dtypes;
  };

  /// True if our operator can take `gradient` in place of torch's: a dense tensor without repeated
  /// elements, of a dtype and device that we have a kernel for, without a subclass, functional
  /// transform or lazy negation that must see torch's operator. Also false while a dispatch mode is
  /// active on this thread.
  static bool is_plain(const at::Tensor& gradient);
  /// The part of that which lies with neither layout nor dtype: true if nobody must see torch's own
  /// operator. Sparse COO tensors qualify as well.
  static bool may_take_our_operators(const at::Tensor& gradient);

  /// Any gradient. Of those that share memory each is multiplied in turn, as by torch's loop on the CPU.
  void add(const at::Tensor& gradient);
  /// Adds `gradient` if is_plain() holds for it; else returns false. The caller answers for memory that
  /// gradients share, or leaves open, as torch does on CUDA, how often it is multiplied.
  bool add_plain(const at::Tensor& gradient);
  /// The same with everything given and trusted: `plain` must be what is_plain() says.
  void add(c10::Device device, at::ScalarType dtype, const at::Tensor& gradient, bool plain);

  const std::vector<DeviceGroup>& groups() const { return groups_; }

  /// Multiplies every gradient by `inv_scale` in place. Returns one flag per device, copied from
  /// `found_inf` and set to 1 where an input element is inf or NaN; `found_inf` itself is not
  /// written. Does not wait for the device.
  ///
  /// Both scalars are float32 with one element and are copied to each device. Groups of dense and strided
  /// gradients go to ampscaler::unscale_, all others to torch's own operator, which may refuse them with
  /// its own errors. So they come first: a refusal leaves the gradients of ours as they were. bfloat16 in
  /// CUDA memory is refused before anything is written where we have no kernel for it: torch has none.
  std::vector<DeviceFoundInf> unscale_(const at::Tensor& inv_scale,
                                       const at::Tensor& found_inf) const;

 private:
  DtypeGroup& group_of(c10::Device device, at::ScalarType dtype);

  std::vector<DeviceGroup> groups_;
};

}  // namespace ampscaler
