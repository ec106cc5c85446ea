"""Unscaling and clipping in one call of ours against torch's unscale_ and clip_grad_norm_, by size, kind and threads.

Prints a table with the goals beside it and writes one JSON file per label; clipping/__init__.py says what is in it.
"""

import sys

from clipping.command import main

if __name__ == "__main__":
    sys.exit(main())
