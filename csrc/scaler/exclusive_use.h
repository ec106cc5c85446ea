// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Refuses a second thread while one is inside: entries and scalars of a scaler are not protected, and
// two Python threads could otherwise corrupt memory. The same thread may enter again, from an
// optimizer's step.

#include <atomic>
#include <thread>

#include <c10/util/Exception.h>

namespace ampscaler {

class ExclusiveUse {
 public:
  /// `user` is the thread that is inside, default-constructed for none.
  explicit ExclusiveUse(std::atomic<std::thread::id>& user) : user_(user), outermost_(true) {
    const std::thread::id here = std::this_thread::get_id();
    std::thread::id inside;
    if (!user_.compare_exchange_strong(inside, here)) {
      TORCH_CHECK(inside == here,
                  "AmpScaler is used by two threads at once; it is not thread-safe.");
      outermost_ = false;
    }
  }
  ~ExclusiveUse() {
    if (outermost_) {
      user_.store({});
    }
  }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  std::atomic<std::thread::id>& user_;
  bool outermost_;
};

}  // namespace ampscaler
