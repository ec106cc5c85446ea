# GoogleTest and google-benchmark: the system's if present, else a pinned source archive.
#
# Offline, or to try the second branch: -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON -DFETCHCONTENT_SOURCE_DIR_GOOGLETEST=<sources>.
include(FetchContent)
# Only what our tests link: no GoogleMock, no tests and no install rules of theirs.
set(BUILD_GMOCK OFF)
set(INSTALL_GTEST OFF)
set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)
FetchContent_Declare(
  googletest
  URL https://github.com/google/googletest/archive/refs/tags/v1.17.0.tar.gz
  URL_HASH SHA256=65fab701d9829d38cb77c14acdc431d2108bfdbf8979e40eb8ae567edf10b27c)
FetchContent_Declare(
  googlebenchmark
  URL https://github.com/google/benchmark/archive/refs/tags/v1.9.4.tar.gz
  URL_HASH SHA256=b334658edd35efcf06a99d9be21e4e93e092bd5f95074c1673d5c8705d95c104)

if(AMPSCALER_TESTS)
  find_package(GTest CONFIG QUIET)
  if(NOT GTest_FOUND)
    FetchContent_MakeAvailable(googletest)
  endif()
endif()
if(AMPSCALER_BENCHMARKS)
  find_package(benchmark CONFIG QUIET)
  if(NOT benchmark_FOUND)
    FetchContent_MakeAvailable(googlebenchmark)
  endif()
endif()
