# Decides whether CUDA sources are built: torch.version.cuda plus an nvcc of the same major. A visible GPU plays no part.
#
#   AMPSCALER_CUDA = auto (default): build CUDA when both are there, else say so and build for CPU
#                    1: both must be there, or configuring stops;   0: CPU only
#   AMPSCALER_NVCC = path of an nvcc to take instead of the search
# Sets AMPSCALER_WITH_CUDA, and when it is ON enables the language CUDA.

set(AMPSCALER_CUDA "auto" CACHE STRING "Build CUDA kernels: 0, 1 or auto")
set(AMPSCALER_NVCC "" CACHE FILEPATH "nvcc to use instead of the one found on PATH, in CUDA_HOME or in the Python environment")

# One explicit search, in this order. CMake's own would also look into standard toolkit folders, and "nvcc is not on PATH"
# would then not mean "no nvcc".
function(ampscaler_nvcc_candidates torch_dir result)
  set(candidates "${AMPSCALER_NVCC}")
  if(NOT AMPSCALER_NVCC)
    string(REPLACE ":" ";" path "$ENV{PATH}")
    list(TRANSFORM path APPEND "/nvcc" OUTPUT_VARIABLE candidates)
    if(DEFINED ENV{CUDA_HOME})
      list(APPEND candidates "$ENV{CUDA_HOME}/bin/nvcc")
    endif()
    list(APPEND candidates "${torch_dir}/../nvidia/cu13/bin/nvcc")
  endif()
  set(${result} "${candidates}" PARENT_SCOPE)
endfunction()

# The first candidate whose major version is `major`; `rejected` tells what was seen on the way.
function(ampscaler_find_nvcc torch_dir major result rejected)
  set(found "")
  set(seen "")
  ampscaler_nvcc_candidates("${torch_dir}" candidates)
  foreach(candidate IN LISTS candidates)
    if(found OR NOT EXISTS "${candidate}")
      continue()
    endif()
    execute_process(COMMAND "${candidate}" --version OUTPUT_VARIABLE output ERROR_QUIET)
    if(output MATCHES "release ([0-9]+)\\.([0-9]+)" AND CMAKE_MATCH_1 EQUAL major)
      set(found "${candidate}")
    else()
      string(APPEND seen " ${candidate} is version ${CMAKE_MATCH_1}.${CMAKE_MATCH_2};")
    endif()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
  set(${rejected} "${seen}" PARENT_SCOPE)
endfunction()

# A macro: enable_language must run in the caller's scope.
macro(ampscaler_decide_cuda torch_dir torch_cuda_version torch_cuda_archs)
  set(AMPSCALER_WITH_CUDA OFF)
  set(_ampscaler_reason "")
  if(NOT AMPSCALER_CUDA MATCHES "^(0|1|auto)$")
    message(FATAL_ERROR "ampscaler: AMPSCALER_CUDA must be 0, 1 or auto, got '${AMPSCALER_CUDA}'.")
  elseif(AMPSCALER_CUDA STREQUAL "0")
    set(_ampscaler_reason "AMPSCALER_CUDA=0")
  elseif("${torch_cuda_version}" STREQUAL "")
    set(_ampscaler_reason "the installed torch has no CUDA")
  elseif(NOT "${torch_cuda_version}" MATCHES "^13\\.")
    set(_ampscaler_reason "the installed torch uses CUDA ${torch_cuda_version}, ampscaler supports CUDA 13")
  else()
    ampscaler_find_nvcc("${torch_dir}" 13 _ampscaler_nvcc _ampscaler_rejected)
    if(AMPSCALER_NVCC AND NOT _ampscaler_nvcc)
      message(FATAL_ERROR "ampscaler: AMPSCALER_NVCC=${AMPSCALER_NVCC} is no nvcc of CUDA 13.${_ampscaler_rejected}")
    endif()
    if(_ampscaler_nvcc)
      set(AMPSCALER_WITH_CUDA ON)
    else()
      set(_ampscaler_reason
          "torch uses CUDA ${torch_cuda_version} and no nvcc 13 was found on PATH, in CUDA_HOME or in the Python environment;${_ampscaler_rejected} 'make CUDA=pypi' brings one"
      )
    endif()
  endif()
  if(AMPSCALER_WITH_CUDA)
    ampscaler_enable_cuda("${torch_cuda_archs}")
    message(STATUS "ampscaler: building for CPU and CUDA with ${_ampscaler_nvcc}")
  elseif(AMPSCALER_CUDA STREQUAL "1")
    message(FATAL_ERROR "ampscaler: AMPSCALER_CUDA=1 cannot be met: ${_ampscaler_reason}.")
  else()
    message(STATUS "ampscaler: building for CPU only: ${_ampscaler_reason}")
  endif()
endmacro()

macro(ampscaler_enable_cuda torch_cuda_archs)
  set(CMAKE_CUDA_COMPILER "${_ampscaler_nvcc}")
  set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  # Same GPUs as the installed torch, machine code only, plus PTX of the newest for GPUs to come.
  string(REPLACE " " ";" _ampscaler_archs "${torch_cuda_archs}")
  list(GET _ampscaler_archs -1 _ampscaler_newest)
  list(TRANSFORM _ampscaler_archs APPEND "-real")
  set(CMAKE_CUDA_ARCHITECTURES "${_ampscaler_archs};${_ampscaler_newest}-virtual" CACHE STRING "GPU architectures to build for")
  # The default links libcudart_static beside the shared runtime that torch loads: two runtimes in one process.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden) # as for C++: launch functions and stubs of kernels are not ours to export
  enable_language(CUDA)
endmacro()
