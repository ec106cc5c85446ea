"""The mixed-precision experiment: one causal language model in FP32, in low precision, and with an injected overflow.

Writes one strict JSON record per label; docs/mixed_precision_experiment.md says how to run and how to read it.
"""

import sys

from mixed_precision.command import main

if __name__ == "__main__":
    sys.exit(main())
