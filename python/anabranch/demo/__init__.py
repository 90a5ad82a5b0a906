"""Trains three small byte-level Transformers that differ only in their residual stream.

``python -m anabranch.demo`` (or ``make demo``) trains them on the sources of the Python standard
library and writes a report; docs/demo.md says how to read it. In reading order: :mod:`data` (the
text), :mod:`model` (the Transformer), :mod:`streams` (plain, mHC, Block Attention Residuals),
:mod:`train`, :mod:`measure` and :mod:`probe` (step times; what was learned), :mod:`report`.
"""
