# The install prefix, which is also the wheel's folder `ampscaler/`:
#
#   lib/libampscaler.so   include/ampscaler   share/cmake/AmpScaler   _C*.so, *.py, _C.pyi, py.typed
include(CMakePackageConfigHelpers)

set(_config_dir share/cmake/AmpScaler)
install(TARGETS ampscaler EXPORT AmpScalerTargets LIBRARY DESTINATION lib)
install(DIRECTORY csrc/include/ampscaler DESTINATION include FILES_MATCHING PATTERN "*.h")
install(EXPORT AmpScalerTargets NAMESPACE AmpScaler:: DESTINATION ${_config_dir})
# An editable install has no sibling folder torch: its config remembers where torch was.
set(AMPSCALER_RECORDED_TORCH "")
if(AMPSCALER_EDITABLE)
  set(AMPSCALER_RECORDED_TORCH "${AMPSCALER_TORCH_ROOT}")
endif()
string(REGEX MATCH "^[0-9]+\\.[0-9]+" AMPSCALER_TORCH_MINOR "${AMPSCALER_TORCH_VERSION}")
string(REGEX MATCH "^[0-9]+" AMPSCALER_TORCH_CUDA_MAJOR "${AMPSCALER_TORCH_CUDA}")
if(NOT AMPSCALER_WITH_CUDA)
  set(AMPSCALER_TORCH_CUDA_MAJOR "")
endif()
configure_package_config_file(cmake/AmpScalerConfig.cmake.in "${PROJECT_BINARY_DIR}/AmpScalerConfig.cmake"
                              INSTALL_DESTINATION ${_config_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/AmpScalerConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/AmpScalerConfig.cmake" "${PROJECT_BINARY_DIR}/AmpScalerConfigVersion.cmake"
              cmake/AmpScalerTorch.cmake DESTINATION ${_config_dir})

if(AMPSCALER_PYTHON)
  install(TARGETS _C LIBRARY DESTINATION .)
  configure_file(cmake/build_info.py.in "${PROJECT_BINARY_DIR}/_build_info.py" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/_build_info.py" DESTINATION .)
  install(DIRECTORY python/ampscaler/ DESTINATION . FILES_MATCHING PATTERN "*.py" PATTERN "*.pyi" PATTERN "py.typed"
          PATTERN "__pycache__" EXCLUDE PATTERN "_build_info.py" EXCLUDE
          PATTERN "include" EXCLUDE PATTERN "lib" EXCLUDE PATTERN "share" EXCLUDE)
endif()
