"""The contract itself: one file per section, one function per behaviour. docs/conformance.md says how to add one."""
