# Finds torch for the build: the one of the Python that the extension is for, or the folder given as AMPSCALER_TORCH_DIR.
#
# Sets AMPSCALER_TORCH_ROOT, AMPSCALER_TORCH_VERSION (2.15.0), AMPSCALER_TORCH_CUDA (13.2, or empty) and
# AMPSCALER_TORCH_ARCHS ("75 80 ..."). A plain LibTorch folder cannot tell its architectures: the defaults of torch 2.15 are used.
set(AMPSCALER_TORCH_DIR "" CACHE PATH "A LibTorch folder (with lib and include) to use instead of Python's torch")

function(ampscaler_facts_from_python)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/cmake/torch_facts.py"
    OUTPUT_VARIABLE output ERROR_VARIABLE error RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "ampscaler: ${error}")
  endif()
  foreach(fact dir version cuda_version cuda_archs)
    string(REGEX MATCH "(^|\n)${fact}=([^\n]*)" _ "${output}")
    set(${fact} "${CMAKE_MATCH_2}")
  endforeach()
  set(AMPSCALER_TORCH_ROOT "${dir}" PARENT_SCOPE)
  set(AMPSCALER_TORCH_VERSION "${version}" PARENT_SCOPE)
  set(AMPSCALER_TORCH_CUDA "${cuda_version}" PARENT_SCOPE)
  set(AMPSCALER_TORCH_ARCHS "${cuda_archs}" PARENT_SCOPE)
endfunction()

function(ampscaler_facts_from_folder)
  set(header "${AMPSCALER_TORCH_DIR}/include/torch/headeronly/version.h")
  if(NOT EXISTS "${header}")
    message(FATAL_ERROR "ampscaler: AMPSCALER_TORCH_DIR='${AMPSCALER_TORCH_DIR}' is no LibTorch 2.11 or newer (missing ${header}).")
  endif()
  file(STRINGS "${header}" line REGEX "^  \"[0-9]+\\.[0-9]+\\.[0-9]+\"")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${line}")
  set(AMPSCALER_TORCH_ROOT "${AMPSCALER_TORCH_DIR}" PARENT_SCOPE)
  set(AMPSCALER_TORCH_VERSION "${version}" PARENT_SCOPE)
  set(AMPSCALER_TORCH_CUDA "" PARENT_SCOPE)
  file(GLOB cudart "${AMPSCALER_TORCH_DIR}/lib/libcudart*.so.*" "${AMPSCALER_TORCH_DIR}/../nvidia/cu*/lib/libcudart.so.*")
  if(EXISTS "${AMPSCALER_TORCH_DIR}/lib/libtorch_cuda.so" AND "${cudart}" MATCHES "libcudart[^;]*\\.so\\.([0-9]+)")
    set(AMPSCALER_TORCH_CUDA "${CMAKE_MATCH_1}.0" PARENT_SCOPE) # the minor version is not written anywhere
    set(AMPSCALER_TORCH_ARCHS "75 80 86 90 100 120" PARENT_SCOPE)
  endif()
endfunction()

if(AMPSCALER_TORCH_DIR)
  ampscaler_facts_from_folder()
else()
  ampscaler_facts_from_python()
endif()
if(AMPSCALER_TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "ampscaler: needs torch 2.11 or newer, found ${AMPSCALER_TORCH_VERSION} in ${AMPSCALER_TORCH_ROOT}.")
endif()
message(STATUS "ampscaler: torch ${AMPSCALER_TORCH_VERSION} in ${AMPSCALER_TORCH_ROOT}")
