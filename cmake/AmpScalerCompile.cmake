# Flags of our own files, as an interface target: as global options they would hit GoogleTest's sources too, where g++ 12
# at -O3 with -Werror stops on a false -Wrestrict. torch's headers come with -isystem and are not judged.
add_library(ampscaler_flags INTERFACE)
target_compile_options(
  ampscaler_flags
  INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>
    # Absolute paths of the build machine would get into every TORCH_CHECK message.
    $<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.;-ffile-prefix-map=${AMPSCALER_TORCH_ROOT}=torch>
    # The numeric contract is per operation: no fused multiply-add that the source does not write.
    $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false>
    # Machine code for eight GPUs is much alike: a fifth of the default's size. Drivers unpack a kernel when it is first used.
    $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=size>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ampscaler_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>) # false alarms on std::string
endif()
if(AMPSCALER_WERROR)
  # A kernel that spills registers or copies its table to local memory is slow, so it does not compile.
  target_compile_options(
    ampscaler_flags
    INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
              $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>
              $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error>)
endif()
