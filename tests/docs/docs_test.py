#!/usr/bin/env python3
"""Compiles and runs every C++ block of README.md and docs/, and checks the pages' links.

A block is a piece of a program: its #include lines go to the top, the rest into main. Buffers that it
passes to TensorView are declared here, full of zeros; sizes are tokens = 3, hidden = 8, layers = 2,
`blocks` are two addresses and `finished` two tensors [tokens, hidden] in BF16. If it has a `status`, that
must be ok.

Arguments: the folder of the project, the folder of libanabranch.so, a compiler.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```cpp\n(.*?)^```", re.MULTILINE | re.DOTALL)
BUFFER = re.compile(r"TensorView\((\w+),")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)  # code is no text with links
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PRELUDE = """
  [[maybe_unused]] const std::int64_t tokens = 3, hidden = 8, layers = 2;
  alignas(64) static float shared[2][65536];
  [[maybe_unused]] std::vector<void*> blocks = {shared[0], shared[1]};
  [[maybe_unused]] std::vector<anabranch::TensorView> finished;
  for (void* block : blocks) {
    finished.emplace_back(block, anabranch::DType::kBFloat16, anabranch::Dims{tokens, hidden});
  }
"""


def program(block: str) -> str:
    lines = block.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = [line for line in lines if not line.startswith("#include")]
    buffers = sorted(set(BUFFER.findall(block)) - {"block", "blocks", "nullptr"})
    declared = "".join(f"  alignas(64) static float {name}[65536];\n" for name in buffers)
    end = "status.ok() ? 0 : 1" if "Status status" in block else "0"
    return "\n".join([
        "#include <anabranch/attn_res.h>", "#include <anabranch/mhc.h>", "#include <vector>",
        *includes, "int main() {", PRELUDE, declared, *body, f"  return {end};", "}", ""])


def run_block(block: str, root: pathlib.Path, library: str, compiler: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "block.cc"
        source.write_text(program(block), encoding="utf-8")
        build = subprocess.run(
            [compiler, "-std=c++17", f"-I{root / 'include'}", str(source), f"-L{library}",
             "-lanabranch", f"-Wl,-rpath,{library}", "-o", f"{folder}/block"],
            capture_output=True, text=True, check=False)
        if build.returncode != 0:
            return build.stderr
        run = subprocess.run([f"{folder}/block"], capture_output=True, text=True, check=False)
        return "" if run.returncode == 0 else f"exit code {run.returncode}\n{run.stderr}"


def main() -> int:
    root, library, compiler = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    blocks = failures = 0
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for target in LINK.findall(FENCED.sub("", text)):
            if not (page.parent / target).exists():
                failures += 1
                print(f"{page}: link to {target}, which does not exist")
        for block in BLOCK.findall(text):
            blocks += 1
            problem = run_block(block, root, library, compiler)
            if problem:
                failures += 1
                print(f"{page}: block fails:\n{block}{problem}")
    print(f"docs_test: {blocks} blocks, {failures} failures")
    return 1 if failures or blocks == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
