// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Reads tests/conformance/scenarios.trace: words, numbers and tensors of the lines that trace_scenarios.py writes.

#include <cstdint>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>

namespace ampscaler {

/// The lines of one behaviour, in order, without the line that names it.
struct Scenario {
  std::string id;
  std::string sentence;
  std::vector<std::string> lines;
};

/// GoogleTest would print the bytes of the object. Found through its namespace.
inline void PrintTo(const Scenario& scenario, std::ostream* stream) {
  *stream << scenario.sentence;
}

/// All scenarios of a file. Throws c10::Error if there is no such file, or if it is cut off.
std::vector<Scenario> read_scenarios(const std::string& path);

/// The words of one line. Every reader throws c10::Error when the line says something else.
class Words {
 public:
  explicit Words(const std::string& line) : stream_(line) {}

  std::string word();
  std::int64_t integer();
  double real();
  /// `<dtype> <dimensions> <sizes...> <bytes in hexadecimal, or ->`
  at::Tensor tensor();
  /// `<count> <tensor>...`
  std::vector<at::Tensor> tensors();
  /// `state <count> <key> <float|int> <value>...`
  c10::impl::GenericDict state();
  /// What is left of the line, without the blank before it.
  std::string rest();

 private:
  std::istringstream stream_;
};

/// A value as the file writes it, for comparisons of whole lines.
std::string write_tensor(const at::Tensor& tensor);
std::string write_real(double value);
std::string write_state(const c10::impl::GenericDict& state);

}  // namespace ampscaler
