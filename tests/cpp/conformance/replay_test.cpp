// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// AmpScaler does in every recorded scenario what torch's scaler did: results, errors, gradients, parameters, scale.

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <ampscaler/ampscaler.h>

#include "cpp/conformance/trace.h"

namespace ampscaler {
namespace {

/// The name of the Python exception that stands for this one, and its text.
std::string describe(const c10::Error& error) {
  std::string type = "RuntimeError ";
  if (dynamic_cast<const AssertionError*>(&error)) type = "AssertionError ";
  if (dynamic_cast<const KeyError*>(&error)) type = "KeyError ";
  if (dynamic_cast<const c10::ValueError*>(&error)) type = "ValueError ";
  if (dynamic_cast<const c10::NotImplementedError*>(&error)) type = "NotImplementedError ";
  std::string text = error.what_without_backtrace();
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos;) text[at] = '|';
  return type + text;
}

/// What a call returned or threw, in the words of the trace. Other errors than torch's end the test.
std::string outcome_of(const std::function<std::string()>& call) {
  try {
    return "returns " + call();
  } catch (const c10::Error& error) {
    return "raises " + describe(error);
  } catch (const std::runtime_error& error) {  // c10's numeric conversions
    return std::string("raises RuntimeError ") + error.what();
  }
}

/// The objects of one scenario: what its lines make, change, call and expect.
class Replay {
 public:
  void run(const Scenario& scenario) {
    for (const std::string& line : scenario.lines) {
      Words words(line);
      const std::string verb = words.word();
      const bool is_outcome = verb == "returns" || verb == "raises" || verb == "expect";
      if (!is_outcome) check_state();
      if (verb == "call") call_ = line;
      follow(verb, line, words);
    }
    check_state();
  }

 private:
  void follow(const std::string& verb, const std::string& line, Words& words) {
    if (verb == "scaler") return make_scaler(words);
    if (verb == "optimizer") return make_optimizer(words);
    if (verb == "set") return set(words);
    if (verb == "expect") return expect(words);
    if (verb == "call") {
      outcome_ = outcome_of([&] { return call(words); });
    } else {
      EXPECT_EQ(outcome_, line) << call_;
    }
  }

  /// Everything is as the lines so far say, also what the last call should have left alone.
  void check_state() {
    for (const auto& [what, expected] : expected_)
      EXPECT_EQ(actual(what), expected) << what << " after " << call_;
  }

  std::string actual(const std::string& what) {
    Words words(what);
    const std::string kind = words.word();
    const std::int64_t number = words.integer();
    if (kind == "parameter") return write_tensor(parameters_.at(number));
    if (kind == "gradient") return gradient_text(number);
    const AmpScaler& scaler = scalers_.at(number);
    return write_real(scaler.get_scale()) + ' ' + std::to_string(scaler.get_growth_tracker());
  }

  void make_scaler(Words& words) {
    const std::int64_t number = words.integer();
    AmpScalerOptions options(at::kCPU);
    options.enabled(words.word() == "enabled");
    if (options.enabled()) {
      options.init_scale(words.real()).growth_factor(words.real()).backoff_factor(words.real());
      options.growth_interval(words.integer());
    }
    scalers_.emplace(number, AmpScaler(options));
  }

  void make_optimizer(Words& words) {
    const std::int64_t number = words.integer();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (std::int64_t count = words.integer(); count > 0; --count) {
      auto options = std::make_unique<torch::optim::SGDOptions>(words.real());
      options->momentum(words.real());
      std::vector<at::Tensor> parameters;
      for (std::int64_t size = words.integer(); size > 0; --size) {
        parameters.push_back(parameters_.at(words.integer()));
      }
      groups.emplace_back(std::move(parameters), std::move(options));
    }
    // The optimizer's own options replace what a group leaves at torch's defaults.
    const auto defaults = static_cast<const torch::optim::SGDOptions&>(groups.at(0).options());
    optimizers_.emplace(number, torch::optim::SGD(groups, defaults));
  }

  /// The scenario changes a parameter or a gradient.
  void set(Words& words) {
    const std::string kind = words.word();
    const std::int64_t number = words.integer();
    const std::string text = words.rest();
    expected_[kind + ' ' + std::to_string(number)] = text;
    kind == "parameter" ? set_parameter(number, text) : set_gradient(number, text);
  }

  void set_parameter(std::int64_t number, const std::string& text) {
    const at::Tensor value = Words(text).tensor();
    const auto [found, is_new] = parameters_.try_emplace(number, value);
    if (!is_new) found->second.detach().copy_(value);
    found->second.requires_grad_(value.is_floating_point() || value.is_complex());
  }

  void set_gradient(std::int64_t number, const std::string& text) {
    at::Tensor& gradient = parameters_.at(number).mutable_grad();
    Words words(text);
    if (text == "none") {
      gradient = at::Tensor();
    } else if (text.rfind("of ", 0) == 0) {
      words.word();
      gradient = parameters_.at(words.integer()).grad();
    } else {
      gradient = words.tensor();
    }
  }

  /// The last call changed a parameter, a gradient or the scale to this.
  void expect(Words& words) {
    const std::string kind = words.word();
    const std::string what = kind + ' ' + words.word();
    expected_[what] = words.rest();
  }

  std::string call(Words& words) {
    AmpScaler& scaler = scalers_.at(words.integer());
    const std::string method = words.word();
    if (method == "scale") return scale(scaler, words);
    if (method.rfind("get_", 0) == 0 || method == "is_enabled" || method == "state_dict") {
      return read(scaler, method);
    }
    change(scaler, method, words);
    return "none";
  }

  static std::string scale(AmpScaler& scaler, Words& words) {
    if (words.word() == "tensor") return "tensor " + write_tensor(scaler.scale(words.tensor()));
    const std::vector<at::Tensor> scaled = scaler.scale(words.tensors());
    std::string text = "tensors " + std::to_string(scaled.size());
    for (const at::Tensor& tensor : scaled) text += ' ' + write_tensor(tensor);
    return text;
  }

  static std::string read(const AmpScaler& scaler, const std::string& method) {
    if (method == "get_scale") return "float " + write_real(scaler.get_scale());
    if (method == "get_growth_factor") return "float " + write_real(scaler.get_growth_factor());
    if (method == "get_backoff_factor") return "float " + write_real(scaler.get_backoff_factor());
    if (method == "is_enabled") return scaler.is_enabled() ? "bool 1" : "bool 0";
    if (method == "state_dict") return write_state(scaler.state_dict());
    TORCH_CHECK(method == "get_growth_interval", "trace: unknown method ", method);
    return "int " + std::to_string(scaler.get_growth_interval());
  }

  void change(AmpScaler& scaler, const std::string& method, Words& words) {
    if (method == "unscale_") return scaler.unscale_(optimizers_.at(words.integer()));
    if (method == "update") return update(scaler, words);
    if (method == "set_growth_factor") return scaler.set_growth_factor(words.real());
    if (method == "set_backoff_factor") return scaler.set_backoff_factor(words.real());
    if (method == "set_growth_interval") return scaler.set_growth_interval(words.integer());
    if (method == "load_state_dict") return scaler.load_state_dict(words.state());
    TORCH_CHECK(method == "step" || method == "step_closure", "trace: unknown method ", method);
    torch::optim::SGD& optimizer = optimizers_.at(words.integer());
    if (method == "step") {
      scaler.step(optimizer);
    } else {
      scaler.step(optimizer, [] { return at::Tensor(); });
    }
  }

  static void update(AmpScaler& scaler, Words& words) {
    const std::string kind = words.word();
    if (kind == "none") return scaler.update();
    if (kind == "float") return scaler.update(words.real());
    scaler.update(words.tensor());
  }

  std::string gradient_text(std::int64_t number) const {
    const at::Tensor& gradient = parameters_.at(number).grad();
    if (!gradient.defined()) return "none";
    for (const auto& [earlier, parameter] : parameters_) {
      if (earlier >= number) break;
      if (parameter.grad().is_same(gradient)) return "of " + std::to_string(earlier);
    }
    return write_tensor(gradient);
  }

  std::map<std::int64_t, at::Tensor> parameters_;
  std::map<std::int64_t, torch::optim::SGD> optimizers_;
  std::map<std::int64_t, AmpScaler> scalers_;
  std::map<std::string, std::string> expected_;
  std::string call_, outcome_;
};

class TorchScenario : public testing::TestWithParam<Scenario> {};

TEST_P(TorchScenario, IsTheSameInCpp) {
  SCOPED_TRACE(GetParam().sentence);
  Replay().run(GetParam());
}

std::string test_name(const testing::TestParamInfo<Scenario>& info) {
  std::string name = info.param.id;
  for (char& character : name) character = character == '.' ? '_' : character;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Contract, TorchScenario,
                         testing::ValuesIn(read_scenarios(AMPSCALER_SCENARIOS)), test_name);

}  // namespace
}  // namespace ampscaler
