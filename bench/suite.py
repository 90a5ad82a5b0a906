"""Compares anabranch with what a PyTorch user would take instead, in one process, side by side.

    python bench/suite.py --quick            # two minutes
    python bench/suite.py --out out/bench    # all of it: about a quarter of an hour on two cores

Writes results.json, table.md and plots into the output folder and prints the table.

PyTorch takes every large output from the system anew, and its pages are faulted in during the call
that writes it; with --keep-memory freed memory is kept (for all contenders), as it is in a process
that runs with another allocator.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from contenders import Work, contenders
from measure import Times, available_bytes, first_call, fit_line, side_by_side
from report import lines_text, markdown, plots, roofline, scaling_text
from tqdm import tqdm

# What glibc reads when a process starts: nothing is mapped or given back by the call.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(2**40),
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
    "MALLOC_TOP_PAD_": str(2**26),
}

QUICK = [
    *(Work("mhc sublayer", t, d, 0, b) for t, d in ((1, 4096), (512, 1024)) for b in (False, True)),
    *(Work("block_attn_res", 512, 1024, 9, b) for b in (False, True)),
]


def full_works() -> list[Work]:
    """Every combination of the table."""
    works = []
    for backward in (False, True):
        for d in (1024, 4096, 7168):
            for tokens in (1, 16, 512, 2048, 8192):
                works.append(Work("mhc sublayer", tokens, d, 0, backward))
        for sources, d in ((2, 7168), (9, 7168), (66, 2048)):
            for tokens in (1, 16, 512, 2048, 8192):
                works.append(Work("block_attn_res", tokens, d, sources, backward))
    return works


def machine() -> str:
    """Processor, cores, PyTorch."""
    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} cores, {torch.get_num_threads()} threads, torch {torch.__version__}"


def measure(work: Work, args: argparse.Namespace) -> dict[str, Any]:
    """All contenders of one case."""
    calls = contenders(work, compiled=not args.no_compile)
    skipped = {}
    if work.eager_bytes > 0.7 * available_bytes():
        why = f"not run: needs about {work.eager_bytes / 2**30:.0f} GiB"
        skipped = {name: why for name in calls if not name.startswith("anabranch")}
        calls = {name: call for name, call in calls.items() if name not in skipped}
    torch._dynamo.config.recompile_limit = 64
    first = {name: first_call(call) for name, call in calls.items()}
    # Of what takes so long one call is enough; a first compiled call is compilation.
    slow = {n: Times([s]) for n, (_, s) in first.items() if s > 8 and "compiled" not in n}
    quick = {name: call for name, call in calls.items() if name not in slow}
    measured = slow | side_by_side(quick, args.seconds, args.rounds)
    times = {name: measured[name] for name in calls}
    ours = times["anabranch"].median
    rows = [
        {
            "name": name,
            "median": t.median,
            "spread": t.spread,
            "runs": len(t.seconds),
            "ratio": t.median / ours,
            # Of kept memory nothing can be said: a first call finds what others left.
            "peak_bytes": None if args.keep_memory else first[name][0],
        }
        for name, t in times.items()
    ]
    return {"title": work.title, "work": asdict(work), "contenders": rows, "skipped": skipped}


def scaling(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Ours with 1 .. all threads."""
    most = torch.get_num_threads()
    rows = []
    shapes = [(512, 1024)] if args.quick else [(2048, 4096)]
    for tokens, d in shapes:
        for work in (
            Work("mhc sublayer", tokens, d),
            Work("mhc sublayer", tokens, d, 0, True),
            Work("block_attn_res", tokens, d, 9),
            Work("block_attn_res", tokens, d, 9, True),
        ):
            call = contenders(work, compiled=False)["anabranch"]
            for threads in sorted({1, 2, most, *(2**k for k in range(10) if 2**k < most)}):
                if threads > most:
                    continue
                torch.set_num_threads(threads)
                call()
                times = side_by_side({"anabranch": call}, args.seconds / 4, args.rounds)
                median = times["anabranch"].median
                rows.append({"title": work.title, "threads": threads, "median": median})
    torch.set_num_threads(most)
    return rows


def against_tokens(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The operators from 512 tokens on, doubled, and the straight line through the times.

    By the C++ program: PyTorch's allocator takes large outputs from the system anew for each call,
    and from some size on the page faults would be most of what is measured.
    """
    path = folder / "tokens.json"
    last = 4096 if args.quick else 65536
    command = [args.program, "bench", "mhc_pre_sinkhorn", "mhc_post", "block_attn_res"]
    command += ["--shape", f"T=512..{last},D=1024,n=4,L=9", "--repeat", "5", "--json", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    families: dict[str, list[tuple[int, float]]] = {}
    for record in json.loads(path.read_text(encoding="utf-8")):
        title = f"{record['op']} {record['pass']} D={record['D']}"
        families.setdefault(title, []).append((record["T"], record["seconds_median"]))
    return [
        {"title": title, "points": points, **asdict(fit_line(points))}
        for title, points in families.items()
    ]


def roofs(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The operators against this machine's roofs, by the C++ program."""
    path = folder / "roofs.json"
    command = [args.program, "bench", "--json", str(path)]
    subprocess.run([*command, "--quick"] if args.quick else command, check=True)
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def write(path: Path, text: str) -> None:
    """All of it or nothing."""
    draft = path.with_suffix(path.suffix + ".draft")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def arguments() -> tuple[argparse.Namespace, list[Work]]:
    """The command line, and the cases that it selects."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few cases, about two minutes")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder of the results")
    parser.add_argument("--only", help="cases whose title contains this text")
    parser.add_argument("--seconds", type=float, help="time for the calls of a case")
    parser.add_argument("--rounds", type=int, default=5, help="fewest rounds of a case")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--keep-memory", action="store_true", help="no page faults for outputs")
    parser.add_argument("--resume", action="store_true", help="keep the cases that --out has")
    parser.add_argument("--program", help="the program `anabranch`, for the roofs")
    args = parser.parse_args()
    args.seconds = args.seconds or (3.0 if args.quick else 4.0)
    works = [w for w in (QUICK if args.quick else full_works()) if (args.only or "") in w.title]
    if not works:
        parser.error(f"--only is {args.only!r}, expected part of a title such as T=2048 forward")
    return args, works


def earlier(args: argparse.Namespace, works: list[Work]) -> list[dict[str, Any]]:
    """What an interrupted run of the same cases left in the output folder."""
    path = args.out / "results.json"
    if not args.resume or not path.exists():
        return []
    data = json.loads(path.read_text(encoding="utf-8"))
    if (data["machine"], data["kept_memory"]) != (machine(), args.keep_memory):
        raise SystemExit(
            f"suite.py: {path} is of {data['machine']}, kept memory: {data['kept_memory']}; "
            f"expected {machine()}, {args.keep_memory}. Choose another --out or leave --resume out"
        )
    wanted = [asdict(work) for work in works]
    results: list[dict[str, Any]] = [r for r in data["results"] if r["work"] in wanted]
    return results


def main() -> int:
    args, works = arguments()
    if args.keep_memory and not KEEP_MEMORY.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEEP_MEMORY)
    args.out.mkdir(parents=True, exist_ok=True)
    command = "python bench/suite.py " + " ".join(sys.argv[1:])
    results = earlier(args, works)
    data: dict[str, Any] = {
        "machine": machine(),
        "command": command,
        "kept_memory": args.keep_memory,
        "results": results,
    }
    done = [result["work"] for result in results]
    bar = tqdm([work for work in works if asdict(work) not in done], unit="case")
    for work in bar:
        bar.set_description(work.title)
        results.append(measure(work, args))
        # Written after every case: an interrupted run leaves what it has.
        write(args.out / "table.md", markdown(results, machine(), command))
        write(args.out / "results.json", json.dumps(data, indent=1) + "\n")
        torch.compiler.reset()
    print("threads ...", flush=True)
    threads = scaling(args)
    lines = []
    if args.program:
        print("tokens ...", flush=True)
        lines = against_tokens(args, args.out)
    table = markdown(results, machine(), command) + lines_text(lines) + scaling_text(threads)
    write(args.out / "table.md", table)
    data |= {"scaling": threads, "tokens": lines}
    files = plots(results, threads, lines, args.out)
    if args.program:
        data["roofs"] = roofs(args, args.out)
        files += roofline(data["roofs"], args.out)
    write(args.out / "results.json", json.dumps(data, indent=1) + "\n")
    print((args.out / "table.md").read_text(encoding="utf-8"))
    print("\n".join(f"plot: {path}" for path in files))
    return 0


if __name__ == "__main__":
    sys.exit(main())
