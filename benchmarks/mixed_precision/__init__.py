"""The parts of the mixed-precision experiment, benchmarks/train_mixed_precision_backward.py.

From the outside in: command; options, environment, hub, model, data; runs, steps, clock; metrics, compare, gates;
record, reading, report.
"""
