// Copyright (c) 2026 the ampscaler authors. BSD-3-Clause.
#pragma once
// Which of the builds in CMakeLists.txt this is, for tests that do less in slow ones. Only here and around
// code that does not compile elsewhere are the macros asked.

namespace simt {

#if defined(SIMT_RACE)
inline constexpr bool kFindsRaces = true;
#else
inline constexpr bool kFindsRaces = false;
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kHasAddressSanitizer = true;
#else
inline constexpr bool kHasAddressSanitizer = false;
#endif

#if defined(SIMT_COVERAGE)
inline constexpr bool kCountsLines = true;
#else
inline constexpr bool kCountsLines = false;
#endif

}  // namespace simt
