# Imported targets for torch, made from torch's own folder. Used by this build and installed beside AmpScalerConfig.cmake.
#
# Why not find_package(Torch): it demands a CUDA toolkit from every consumer of a CUDA torch, switches CMAKE_CUDA_ARCHITECTURES
# off, and puts absolute paths into exported targets. A consumer may still call find_package(Torch), before or after:
# our names are prefixed, since a target called `torch` would collide with torch's own export set.
#
#   AmpScaler::torch         libtorch, libtorch_cpu, libc10, headers, link options
#   AmpScaler::torch_python  libtorch_python; only the module _C links it
#   AmpScaler::torch_cuda, AmpScaler::c10_cuda, AmpScaler::cudart   with CUDA only; also reached through AmpScaler::torch
include_guard(GLOBAL)

# ampscaler_import_torch(<torch folder> <with CUDA: ON or OFF>)
function(ampscaler_import_torch torch_dir with_cuda)
  set(lib "${torch_dir}/lib")
  set(include "${torch_dir}/include")
  foreach(needed "${lib}/libtorch_cpu.so" "${include}/torch/csrc/api/include/torch/torch.h")
    if(NOT EXISTS "${needed}")
      message(FATAL_ERROR "ampscaler: no LibTorch in '${torch_dir}' (missing ${needed}). "
                          "Pass -DAMPSCALER_TORCH_DIR=<folder that holds torch's lib and include>.")
    endif()
  endforeach()

  add_library(AmpScaler::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(AmpScaler::torch SYSTEM INTERFACE "${include}" "${include}/torch/csrc/api/include")
  target_compile_features(AmpScaler::torch INTERFACE cxx_std_20)
  # torch's own CMake targets carry these; headers of the distributed package change with them.
  target_compile_definitions(AmpScaler::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
  target_link_libraries(AmpScaler::torch INTERFACE "${lib}/libtorch.so" "${lib}/libtorch_cpu.so" "${lib}/libc10.so")
  target_link_options(
    AmpScaler::torch
    INTERFACE
    # libtorch_cuda needs an NCCL newer than one that a toolkit folder may hold; the linker must not judge by that one.
    -Wl,--allow-shlib-undefined
    # Some distributions' g++ passes --as-needed: libtorch_cuda, and a libampscaler used only through its operators,
    # would be dropped from the program, and their kernels with them.
    -Wl,--no-as-needed)

  add_library(AmpScaler::torch_python INTERFACE IMPORTED GLOBAL)
  target_link_libraries(AmpScaler::torch_python INTERFACE AmpScaler::torch "${lib}/libtorch_python.so")

  if(with_cuda)
    ampscaler_import_torch_cuda("${torch_dir}")
  endif()
endfunction()

# The CUDA half. cudart is the one that torch loads, never the toolkit's: two runtimes in one process do not share state.
function(ampscaler_import_torch_cuda torch_dir)
  file(GLOB cudart "${torch_dir}/../nvidia/cu13/lib/libcudart.so.1[0-9]" "${torch_dir}/lib/libcudart*.so*")
  if(NOT cudart)
    message(FATAL_ERROR "ampscaler: torch's libcudart was not found beside or inside '${torch_dir}'.")
  endif()
  list(GET cudart 0 cudart)
  get_filename_component(cudart "${cudart}" REALPATH)
  add_library(AmpScaler::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(AmpScaler::torch_cuda INTERFACE "${torch_dir}/lib/libtorch_cuda.so")
  add_library(AmpScaler::c10_cuda INTERFACE IMPORTED GLOBAL)
  target_link_libraries(AmpScaler::c10_cuda INTERFACE "${torch_dir}/lib/libc10_cuda.so")
  add_library(AmpScaler::cudart INTERFACE IMPORTED GLOBAL)
  target_link_libraries(AmpScaler::cudart INTERFACE "${cudart}")
  # RUNPATH is not transitive: a program that links our library must find these three itself when torch is no sibling.
  target_link_libraries(AmpScaler::torch INTERFACE AmpScaler::torch_cuda AmpScaler::c10_cuda AmpScaler::cudart)
endfunction()

# For the programs of users: torch's libcudart comes first in their RUNPATH. find_package(Torch) adds the folder of the
# toolkit's libcudart, and CMake may put that one before. The library itself finds torch as its sibling.
function(ampscaler_find_torchs_cudart_first)
  get_target_property(cudart AmpScaler::cudart INTERFACE_LINK_LIBRARIES)
  get_filename_component(folder "${cudart}" DIRECTORY)
  target_link_options(AmpScaler::cudart INTERFACE "LINKER:-rpath,${folder}")
endfunction()
