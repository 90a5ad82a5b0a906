"""What `import anabranch` costs beyond `import torch`: seconds, the least of several processes.

python bench/import_time.py [--processes 5]
"""

from __future__ import annotations

import argparse
import subprocess
import sys

CODE = """
import time, torch
start = time.perf_counter()
import anabranch
print(time.perf_counter() - start)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=5)
    count = parser.parse_args().processes
    command = [sys.executable, "-c", CODE]
    times = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(count)
    ]
    print(f"import anabranch after torch: {min(times):.3f} s, the least of {count} processes")


if __name__ == "__main__":
    main()
