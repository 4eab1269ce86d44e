"""The command line: what a person types becomes a policy and a call, a result becomes text.

Imports stay in the functions that need them, so that `sandbox run` pays for no tables and
`sandbox doctor` runs where the compiled core is missing.
"""
