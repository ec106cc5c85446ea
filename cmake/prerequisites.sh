#!/bin/sh
# Names what is missing on this machine, in one sentence, before anything is downloaded. Argument: the Python to use.
python=$1
missing=""
compiler=${CXX:-c++}  # may be two words, such as "ccache g++"
program='#include <bit>
#include <ranges>
#include <source_location>
int main() { return std::bit_cast<int>(0U); }'
command -v git >/dev/null || missing="$missing git;"
if ! echo "$program" | $compiler -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; then
  missing="$missing a C++20 compiler (g++ 12 or newer; '$compiler' is none);"
fi
if ! command -v "$python" >/dev/null || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
  missing="$missing Python >= 3.11 (make PYTHON=...);"
else
  "$python" -c 'import venv, ensurepip' 2>/dev/null || missing="$missing the venv module of $python (Debian: python3-venv);"
  "$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
    missing="$missing the headers of $python (Debian: python3-dev);"
fi
if [ -n "$missing" ]; then
  echo "ampscaler cannot be built here, please install:${missing%;}." >&2
  exit 1
fi
