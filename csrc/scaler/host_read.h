// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// The only place where the library waits for a device to read a value; each call is counted, so
// that tests can assert how often a step waits.

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ampscaler {

/// Waits for the device of `scalar` (one element, any real dtype) and returns its value.
double read_scalar(const at::Tensor& scalar);

/// Waits once for two scalars on one device.
std::pair<double, double> read_scalars(const at::Tensor& first, const at::Tensor& second);

/// Waits once for scalars on any devices and returns their sum, formed on the host in their order.
double read_sum(const std::vector<at::Tensor>& scalars);

}  // namespace ampscaler
