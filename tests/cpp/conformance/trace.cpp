// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The reader of recorded scenarios, and the writer of values in the same words.

#include "cpp/conformance/trace.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

namespace ampscaler {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 14> kDtypes = {{
    {"float16", at::kHalf},
    {"bfloat16", at::kBFloat16},
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"int32", at::kInt},
    {"int64", at::kLong},
    {"int16", at::kShort},
    {"int8", at::kChar},
    {"uint8", at::kByte},
    {"bool", at::kBool},
    {"complex32", at::kComplexHalf},
    {"complex64", at::kComplexFloat},
    {"float8_e4m3fn", at::kFloat8_e4m3fn},
    {"float8_e5m2", at::kFloat8_e5m2},
}};

at::ScalarType dtype_of(const std::string& name) {
  for (const auto& [known, dtype] : kDtypes) {
    if (name == known) return dtype;
  }
  TORCH_CHECK(false, "trace: unknown dtype '", name, "'");
}

const char* name_of(at::ScalarType dtype) {
  for (const auto& [name, known] : kDtypes) {
    if (dtype == known) return name;
  }
  TORCH_CHECK(false, "trace: unknown dtype ", dtype);
}

// The bytes of the elements. NaN goes without its payload, as in values.py.
std::vector<std::uint8_t> tensor_bytes(const at::Tensor& tensor) {
  at::Tensor values = tensor.detach().contiguous();
  if (values.is_floating_point() && values.element_size() > 1) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    values = at::where(values.isnan(), at::full({}, nan, values.options()), values).contiguous();
  }
  std::vector<std::uint8_t> result(values.nbytes());
  if (!result.empty()) std::memcpy(result.data(), values.const_data_ptr(), result.size());
  return result;
}

}  // namespace

std::vector<Scenario> read_scenarios(const std::string& path) {
  std::ifstream file(path);
  TORCH_CHECK(file, "trace: cannot read '", path, "'");
  std::vector<Scenario> scenarios;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind('#', 0) == 0) continue;
    if (line == "end " + std::to_string(scenarios.size())) return scenarios;
    if (line.rfind("scenario ", 0) == 0) {
      Words words(line.substr(9));
      std::string id = words.word();
      scenarios.push_back({std::move(id), words.rest(), {}});
    } else {
      TORCH_CHECK(!scenarios.empty(), "trace: a line before the first scenario: ", line);
      scenarios.back().lines.push_back(line);
    }
  }
  TORCH_CHECK(false, "trace: '", path, "' ends without its last line");
}

std::string Words::word() {
  std::string result;
  TORCH_CHECK(stream_ >> result, "trace: the line ends too early: ", stream_.str());
  return result;
}

std::int64_t Words::integer() {
  const std::string text = word();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TORCH_CHECK(error == std::errc() && end == text.data() + text.size(),
              "trace: expected an integer, got '", text, "'");
  return value;
}

double Words::real() {
  const std::string text = word();
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  TORCH_CHECK(*end == '\0', "trace: expected a number, got '", text, "'");
  return value;
}

at::Tensor Words::tensor() {
  const at::ScalarType dtype = dtype_of(word());
  std::vector<std::int64_t> sizes(integer());
  for (std::int64_t& size : sizes) size = integer();
  const std::string digits = word();
  at::Tensor result = at::empty(sizes, dtype);
  auto* bytes = static_cast<std::uint8_t*>(result.data_ptr());
  const std::size_t count = digits == "-" ? 0 : digits.size() / 2;
  TORCH_CHECK(count == result.nbytes(), "trace: wrong number of bytes: ", stream_.str());
  for (std::size_t i = 0; i < count; ++i) {
    const char* byte = digits.data() + 2 * i;
    const auto [end, error] = std::from_chars(byte, byte + 2, bytes[i], 16);
    TORCH_CHECK(error == std::errc() && end == byte + 2, "trace: expected bytes, got ", digits);
  }
  return result;
}

std::vector<at::Tensor> Words::tensors() {
  std::vector<at::Tensor> result(integer());
  for (at::Tensor& item : result) item = tensor();
  return result;
}

c10::impl::GenericDict Words::state() {
  TORCH_CHECK(word() == "state", "trace: expected a state: ", stream_.str());
  c10::impl::GenericDict result(c10::StringType::get(), c10::AnyType::get());
  for (std::int64_t count = integer(); count > 0; --count) {
    std::string key = word();
    const bool is_integer = word() == "int";
    result.insert(std::move(key), is_integer ? c10::IValue(integer()) : c10::IValue(real()));
  }
  return result;
}

std::string Words::rest() {
  std::string result;
  std::getline(stream_, result);
  return result.empty() ? result : result.substr(1);
}

std::string write_tensor(const at::Tensor& tensor) {
  std::ostringstream text;
  text << name_of(tensor.scalar_type()) << ' ' << tensor.dim();
  for (const std::int64_t size : tensor.sizes()) text << ' ' << size;
  text << ' ' << (tensor.numel() == 0 ? "-" : "");
  constexpr const char* kDigits = "0123456789abcdef";
  for (const std::uint8_t byte : tensor_bytes(tensor))
    text << kDigits[byte >> 4] << kDigits[byte & 15];
  return text.str();
}

std::string write_real(double value) {
  // Python's float.hex(): as many digits as a double has, and a sign on the exponent.
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (value == 0) return std::signbit(value) ? "-0x0.0p+0" : "0x0.0p+0";
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%.13a", value);
  return text.data();
}

std::string write_state(const c10::impl::GenericDict& state) {
  std::ostringstream text;
  text << "state " << state.size();
  for (const auto& item : state) {
    text << ' ' << item.key().toStringRef();
    if (item.value().isInt()) {
      text << " int " << item.value().toInt();
    } else {
      text << " float " << write_real(item.value().toDouble());
    }
  }
  return text.str();
}

}  // namespace ampscaler
