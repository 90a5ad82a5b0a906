"""NPU programs, unchanged, on a machine without an NPU.

``python -m anabranch.compat.npu program.py [args]`` runs a program as ``python program.py [args]``
would; :func:`install` and :func:`uninstall` do the same inside a program. While the layer is
installed, ``torch_npu``, ``torchair``, ``pypto`` and ``cann_ops_transformer`` can be imported
(where the real ones are absent, which always go first), ``torch.npu`` exists, and the device
``npu`` is the CPU. Importing this package changes nothing.

What is mapped, what is not, and where results differ in form: ``docs/npu.md``.
"""

from __future__ import annotations

from anabranch.compat.npu._install import install, is_installed, uninstall

__all__ = ["install", "is_installed", "uninstall"]
