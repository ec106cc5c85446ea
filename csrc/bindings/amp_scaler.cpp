// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// The C++ class AmpScaler for Python optimizers. The GIL is released for the work and taken again
// by the optimizer adapter.

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/python_variable.h>

#include <ampscaler/amp_scaler.h>

#include "bindings/amp_scaler_class.h"
#include "bindings/bindings.h"
#include "bindings/fp16_grads.h"
#include "bindings/python_optimizer.h"
#include "bindings/python_warnings.h"
#include "bindings/step_result.h"
#include "bindings/types.h"

namespace ampscaler::bindings {
namespace {

using Release = py::gil_scoped_release;

c10::Device to_device(const py::object& device) {
  return py::cast<c10::Device>(py::module_::import("torch").attr("device")(device));
}

std::unique_ptr<AmpScaler> make_scaler(const py::object& device, Real init_scale,
                                       Real growth_factor, Real backoff_factor,
                                       Integer growth_interval, bool enabled,
                                       const std::optional<ScalePolicy>& policy,
                                       const std::string& fp16_grads) {
  AmpScalerOptions options(to_device(device));
  options.enabled(enabled)
      .policy(policy.value_or(ScalePolicy()))
      .fp16_grads(parse_fp16_grads(fp16_grads));
  if (enabled) {  // a disabled scaler has no use for the numbers, and torch does not look at them
                  // either
    options.growth_factor(growth_factor)
        .backoff_factor(backoff_factor)
        .growth_interval(growth_interval)
        .init_scale(init_scale);
  }
  return std::make_unique<AmpScaler>(options);
}

std::unique_ptr<AmpScaler> make_check_only(const py::object& device) {
  return std::make_unique<AmpScaler>(AmpScaler::check_only(to_device(device)));
}

bool is_plain_tensor(const py::object& object) { return THPVariable_CheckExact(object.ptr()); }

// The private copies of the scale that one call for a container multiplies by, one per device, as in
// AmpScaler::scale(TensorList); here they outlive the call: a later update() disturbs neither the
// backward passes nor the elements that a lazy iterable has yet to yield.
class ContainerScales {
 public:
  explicit ContainerScales(py::object scaler) : scaler_(std::move(scaler)) {}

  const at::Tensor& on(c10::Device device) {
    auto copy = std::ranges::find(copies_, device, [](const at::Tensor& t) { return t.device(); });
    if (copy == copies_.end()) {
      auto& scaler = py::cast<AmpScaler&>(scaler_);
      copy = copies_.insert(copies_.end(), scaler.scale_on(device).clone());
    }
    return *copy;
  }

 private:
  py::object scaler_;
  std::vector<at::Tensor> copies_;
};

py::object scale_element(ContainerScales& scales, const py::object& output) {
  const at::Tensor& tensor = THPVariable_Unpack(output.ptr());
  const at::Tensor& scale = scales.on(tensor.device());
  // A subclass multiplies itself, so that its type is kept.
  return is_plain_tensor(output) ? py::cast(tensor * scale) : output * py::cast(scale);
}

// Lists and tuples are rebuilt as their own type; other iterables give a lazy map, as in torch.
py::object scale_any(const std::shared_ptr<ContainerScales>& scales, const py::object& outputs) {
  if (THPVariable_Check(outputs.ptr())) {
    return scale_element(*scales, outputs);
  }
  const py::object iterable_type = py::module_::import("collections.abc").attr("Iterable");
  TORCH_CHECK_VALUE(py::isinstance(outputs, iterable_type),
                    "outputs must be a Tensor or an iterable of Tensors");
  const py::cpp_function recurse(
      [scales](const py::object& element) { return scale_any(scales, element); });
  const py::object scaled = py::module_::import("builtins").attr("map")(recurse, outputs);
  const bool rebuilt = py::isinstance<py::list>(outputs) || py::isinstance<py::tuple>(outputs);
  return rebuilt ? py::type::of(outputs)(scaled) : scaled;
}

py::object scale(const py::object& self, const py::object& outputs) {
  auto& scaler = py::cast<AmpScaler&>(self);
  if (!scaler.is_enabled()) {
    return outputs;
  }
  if (is_plain_tensor(outputs)) {
    return py::cast(scaler.scale(THPVariable_Unpack(outputs.ptr())));
  }
  if (THPVariable_Check(outputs.ptr())) {  // a subclass multiplies itself, so that its type is kept
    return outputs * py::cast(scaler.scale_on(THPVariable_Unpack(outputs.ptr()).device()));
  }
  return scale_any(std::make_shared<ContainerScales>(self), outputs);
}

void unscale_(AmpScaler& self, const py::object& optimizer) {
  PythonOptimizer adapter(optimizer, py::args(), py::kwargs());
  const Release no_gil;
  self.unscale_(adapter);
}

PythonStepResult step(AmpScaler& self, const py::object& optimizer, const py::args& args,
                      const py::kwargs& kwargs) {
  const bool has_closure =
      kwargs.contains("closure") || (!args.empty() && PyCallable_Check(args[0].ptr()) == 1);
  TORCH_CHECK(!(self.is_enabled() && has_closure),
              "Closure use is not currently supported if GradScaler is enabled.");
  PythonOptimizer adapter(optimizer, args, kwargs);
  const auto run = [&] {
    const Release no_gil;
    return self.step(adapter);
  };
  const StepResult result = run();
  return {result, adapter.value()};
}

void update(AmpScaler& self, const py::object& new_scale) {
  if (new_scale.is_none() || !self.is_enabled() || !self.scale_tensor().defined()) {
    self.update();  // before the first scale() it throws, whatever new_scale is
  } else if (PyFloat_Check(new_scale.ptr())) {
    self.update(new_scale.cast<double>());
  } else {
    // AttributeError for an int, as in torch. A py::object: an accessor alone would read nothing.
    const py::object device_type = new_scale.attr("device").attr("type");
    TORCH_CHECK_TYPE(THPVariable_Check(new_scale.ptr()),
                     "update: new_scale: expected a float or a tensor, got ",
                     Py_TYPE(new_scale.ptr())->tp_name, ".");
    self.update(THPVariable_Unpack(new_scale.ptr()));
  }
}

py::object to_python(const c10::IValue& value) {
  return value.isInt() ? py::object(py::int_(value.toInt()))
                       : py::object(py::float_(value.toDouble()));
}

py::dict state_dict(const AmpScaler& self) {
  const auto read = [&] {
    const Release no_gil;
    return self.state_dict();
  };
  py::dict result;
  for (const auto& entry : read()) {
    result[py::str(entry.key().toStringRef())] = to_python(entry.value());
  }
  return result;
}

// Numbers as they are, an int beyond 64 bits as a double; anything else as something of the same
// kind, so that load_state_dict can say what it got.
c10::IValue to_ivalue(const py::handle& value) {
  if (value.is_none() || py::isinstance<py::bool_>(value)) {
    return value.is_none() ? c10::IValue() : c10::IValue(value.cast<bool>());
  }
  if (py::isinstance<py::float_>(value)) {
    return value.cast<double>();
  }
  if (py::isinstance<py::int_>(value)) {
    int overflow = 0;
    const std::int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    return overflow == 0 ? c10::IValue(number)
                         : c10::IValue(overflow * std::numeric_limits<double>::max());
  }
  if (THPVariable_Check(value.ptr())) {
    return THPVariable_Unpack(value.ptr());
  }
  return std::string();  // a text, or an object that C++ has no word for
}

void load_state_dict(AmpScaler& self, const py::dict& state_dict) {
  c10::impl::GenericDict state(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [key, value] : state_dict) {
    const char* text = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8(key.ptr()) : nullptr;
    if (text != nullptr) {
      state.insert(std::string(text), to_ivalue(value));
    }
    PyErr_Clear();  // a key that is no text is none of ours
  }
  self.load_state_dict(state);
}

[[noreturn]] void refuse_pickle(const py::object& /*self*/, const py::args& /*protocol*/) {
  throw py::type_error("AmpScaler cannot be pickled or copied: save its state_dict()");
}

void bind_iteration(ScalerClass& scaler) {
  const AmpScalerOptions defaults;
  scaler
      .def(py::init(with_python_warnings(&make_scaler)), py::arg("device") = "cuda",
           py::arg("init_scale") = defaults.init_scale(),
           py::arg("growth_factor") = defaults.growth_factor(),
           py::arg("backoff_factor") = defaults.backoff_factor(),
           py::arg("growth_interval") = defaults.growth_interval(),
           py::arg("enabled") = defaults.enabled(), py::kw_only(), py::arg("policy") = py::none(),
           py::arg("fp16_grads") = "error")
      .def_static("check_only", with_python_warnings(&make_check_only), py::arg("device") = "cuda",
                  "A scaler whose scale is 1 and stays so, for bfloat16 and float32: it checks, "
                  "clips, skips and counts.")
      .def("scale", with_python_warnings(&scale), py::arg("outputs"),
           "`outputs` (a tensor, or nested lists and tuples of them) times the scale. Does not "
           "wait.")
      .def("unscale_", with_python_warnings(&unscale_), py::arg("optimizer"),
           "Divides the optimizer's gradients by the scale in place and notes non-finite ones. "
           "Does not wait.")
      .def("step", with_python_warnings(&step), py::arg("optimizer"),
           "Runs optimizer.step(*args, **kwargs) unless a gradient holds inf or NaN. Returns a "
           "StepResult.\n\n"
           "Waits for the device once for an ordinary optimizer; for a fused one only where an SGD "
           "creates momentum buffers.")
      .def("update", with_python_warnings(&update), py::arg("new_scale") = py::none(),
           "Ends the iteration: adapts the scale, or sets it to `new_scale` (float or 0-dim "
           "tensor). Does not wait.");
}

void bind_numbers(ScalerClass& scaler) {
  scaler.def("is_enabled", &AmpScaler::is_enabled)
      .def_property_readonly("policy", &AmpScaler::policy, py::return_value_policy::copy,
                             "The ScalePolicy; the default one where none was given.")
      .def("get_scale", &AmpScaler::get_scale, py::call_guard<Release>(),
           "The scale; 1.0 when disabled. Waits.")
      .def("get_growth_tracker", &AmpScaler::get_growth_tracker, py::call_guard<Release>(),
           "Clean steps since the last change of the scale. Waits.")
      .def("get_growth_factor", &AmpScaler::get_growth_factor)
      .def("get_backoff_factor", &AmpScaler::get_backoff_factor)
      .def("get_growth_interval", &AmpScaler::get_growth_interval)
      .def(
          "set_growth_factor", [](AmpScaler& self, Real value) { self.set_growth_factor(value); },
          py::arg("new_factor"))
      .def(
          "set_backoff_factor", [](AmpScaler& self, Real value) { self.set_backoff_factor(value); },
          py::arg("new_factor"))
      .def(
          "set_growth_interval",
          [](AmpScaler& self, Integer value) { self.set_growth_interval(value); },
          py::arg("new_interval"))
      .def("__reduce_ex__", &refuse_pickle)
      .def("state_dict", &state_dict,
           "The five entries of torch.amp.GradScaler.state_dict(). Waits once.")
      .def("load_state_dict", &load_state_dict, py::arg("state_dict"),
           "Takes over all five entries, or raises and changes none.");
}

}  // namespace

void bind_amp_scaler(py::module_& module) {
  ScalerClass scaler(module, "AmpScaler",
                     "The C++ loss scaler on Python optimizers: torch.amp.GradScaler's rules, and "
                     "a step that says what it did.");
  bind_iteration(scaler);
  bind_amp_scaler_clip(scaler);
  bind_numbers(scaler);
}

}  // namespace ampscaler::bindings
