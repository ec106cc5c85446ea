// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
// Saving and loading: keys and types of torch.amp.GradScaler, all or nothing.

#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <ampscaler/ampscaler.h>

#include "cpp/error_text.h"
#include "cpp/scaler/training.h"

namespace ampscaler {
namespace {

c10::impl::GenericDict copy_with(const c10::impl::GenericDict& state, const char* key,
                                 const c10::IValue& value) {
  auto copy = state.copy();
  copy.insert_or_assign(key, value);
  return copy;
}

c10::impl::GenericDict copy_without(const c10::impl::GenericDict& state, const char* key) {
  auto copy = state.copy();
  EXPECT_EQ(copy.erase(key), 1U);
  return copy;
}

TEST(State, HasTorchsKeysAndTypes) {
  AmpScaler scaler = make_scaler(4.0);
  auto optimizer = make_sgd({make_parameter(1.0F)});
  scaler.step(optimizer);
  scaler.update();
  const auto state = scaler.state_dict();
  EXPECT_EQ(state.size(), 5U);
  EXPECT_EQ(state.at("scale").toDouble(), 4.0);
  EXPECT_EQ(state.at("growth_factor").toDouble(), 2.0);
  EXPECT_EQ(state.at("backoff_factor").toDouble(), 0.5);
  EXPECT_EQ(state.at("growth_interval").toInt(), 2000);
  EXPECT_EQ(state.at("_growth_tracker").toInt(), 1);
}

TEST(State, WaitsOnce) {
  const AmpScaler scaler = make_scaler(4.0);
  const std::int64_t before = host_read_count();
  scaler.state_dict();
  EXPECT_EQ(host_read_count() - before, 1);
}

TEST(State, SurvivesAFileBeforeAndAfterTheFirstScale) {
  AmpScaler saved = make_scaler(1024.0, 7);
  auto optimizer = make_sgd({make_parameter(1.0F)});
  saved.step(optimizer);
  saved.update();
  const std::vector<char> bytes = torch::pickle_save(saved.state_dict());
  for (const bool scaled_before : {false, true}) {
    AmpScaler loaded(AmpScalerOptions(at::kCPU));
    if (scaled_before) {
      loaded.scale(at::ones({}));
    }
    const void* address = scaled_before ? loaded.scale_tensor().const_data_ptr() : nullptr;
    loaded.load_state_dict(torch::pickle_load(bytes).toGenericDict());
    EXPECT_EQ(loaded.get_scale(), 1024.0);
    EXPECT_EQ(loaded.get_growth_tracker(), 1);
    EXPECT_EQ(loaded.get_growth_interval(), 7);
    loaded.scale(at::ones({}));
    EXPECT_EQ(loaded.scale_tensor().item<float>(), 1024.0F);
    EXPECT_EQ(loaded.get_growth_tracker(), 1);
    if (scaled_before) {
      EXPECT_EQ(loaded.scale_tensor().const_data_ptr(), address);
    }
  }
}

TEST(State, AcceptsIntegersForFloatsAndExtraKeys) {
  AmpScaler scaler = make_scaler(4.0);
  auto state = copy_with(scaler.state_dict(), "scale", 16);
  state.insert("extra", "ignored");
  scaler.load_state_dict(state);
  EXPECT_EQ(scaler.get_scale(), 16.0);
}

TEST(State, AScaleThatDecayedToZeroCanBeLoaded) {
  AmpScaler scaler = make_scaler(4.0);
  scaler.load_state_dict(copy_with(scaler.state_dict(), "scale", 0.0));
  EXPECT_EQ(scaler.get_scale(), 0.0);
}

TEST(State, BadStatesAreRefusedWhole) {
  AmpScaler scaler = make_scaler(4.0);
  const auto good = copy_with(scaler.state_dict(), "scale", 32.0);
  const auto load = [&](const c10::impl::GenericDict& state) {
    return [&scaler, state] { scaler.load_state_dict(state); };
  };
  const c10::impl::GenericDict empty(c10::StringType::get(), c10::AnyType::get());
  EXPECT_EQ(error_text(load(empty)),
            "The source state dict is empty, possibly because it was saved from a disabled "
            "instance of GradScaler.");
  for (const char* key :
       {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}) {
    EXPECT_EQ(error_text<KeyError>(load(copy_without(good, key))), key);
    EXPECT_THROW(scaler.load_state_dict(copy_with(good, key, "text")), c10::TypeError) << key;
  }
  EXPECT_THROW(scaler.load_state_dict(copy_with(good, "scale", 1e39)), c10::ValueError);
  EXPECT_THROW(scaler.load_state_dict(copy_with(good, "growth_factor", 0.1)), AssertionError);
  EXPECT_THROW(scaler.load_state_dict(copy_with(good, "growth_interval", 0)), c10::ValueError);
  EXPECT_THROW(scaler.load_state_dict(copy_with(good, "_growth_tracker", std::int64_t{1} << 40)),
               c10::ValueError);
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
}

TEST(State, AFailedLoadChangesNothing) {
  AmpScaler scaler(AmpScalerOptions(at::kCPU).init_scale(4.0));
  {
    const c10::InferenceMode inference;  // the scale becomes an inference tensor
    scaler.scale(at::ones({}));
  }
  const auto other = copy_with(make_scaler(32.0).state_dict(), "growth_factor", 3.0);
  EXPECT_THROW(scaler.load_state_dict(other), c10::Error);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
  EXPECT_EQ(scaler.get_scale(), 4.0);
}

TEST(State, OfADisabledScalerIsEmptyAndLoadingIsIgnored) {
  AmpScaler disabled(AmpScalerOptions(at::kCPU).enabled(false));
  EXPECT_TRUE(disabled.state_dict().empty());
  disabled.load_state_dict(disabled.state_dict());
  disabled.load_state_dict(make_scaler(4.0).state_dict());
  EXPECT_EQ(disabled.get_scale(), 1.0);
}

}  // namespace
}  // namespace ampscaler
