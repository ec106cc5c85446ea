"""What this build was made for; the module itself is written by CMake from cmake/build_info.py.in."""

VERSION: str
TORCH_VERSION: str
CUDA_MAJOR: str
