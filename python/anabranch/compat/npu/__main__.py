"""``python -m anabranch.compat.npu program.py [args]``."""

from __future__ import annotations

from anabranch.compat.npu._runner import main

if __name__ == "__main__":
    main()
