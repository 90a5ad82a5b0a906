"""``python -m anabranch.demo``: trains, measures, reports; continues what was interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import textwrap
from pathlib import Path

import torch

try:
    from anabranch.demo import report
except ImportError as error:
    raise SystemExit(f"demo: {error}; install it with: pip install matplotlib tqdm") from None

from anabranch.demo.checkpoint import CheckpointError
from anabranch.demo.data import TextError, read_text
from anabranch.demo.measure import measure
from anabranch.demo.model import ModelConfig
from anabranch.demo.train import Interrupt, TrainConfig, Trainer


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected an integer >= 1")
    return value


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    model, train = ModelConfig(), TrainConfig()
    parser = argparse.ArgumentParser(prog="python -m anabranch.demo", description=__doc__)
    add = parser.add_argument
    add("--steps", type=_positive, default=train.steps, help="default %(default)s")
    add("--out", type=Path, help="folder of the result, default out/demo/steps-N")
    add("--fresh", action="store_true", help="start anew where there is a checkpoint")
    add("--text", type=Path, help="folder of Python sources, default the standard library's")
    add("--seed", type=int, default=train.seed, help="default %(default)s")
    add("--threads", type=_positive, help="default: what PyTorch takes")
    add("--batch", type=_positive, default=train.batch, help="sequences, default %(default)s")
    for name in ("dim", "layers", "context"):
        add(f"--{name}", type=_positive, default=getattr(model, name), help="default %(default)s")
    add("--rounds", type=_positive, default=8, help="of time measurement, default %(default)s")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """The exit code: 0, or 128 + the signal that stopped it."""
    if options.threads:
        torch.set_num_threads(options.threads)
    model = ModelConfig(dim=options.dim, layers=options.layers, context=options.context)
    config = TrainConfig(model, steps=options.steps, batch=options.batch, seed=options.seed)
    folder: Path = options.out or Path("out", "demo", f"steps-{config.steps}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "checkpoint.bin"
    if options.fresh:
        path.unlink(missing_ok=True)
    with Interrupt() as interrupt:
        text = read_text(model.context, options.text)
        print(
            f"text: {text.files} files, {text.train.numel() + text.held_out.numel():,} bytes",
            flush=True,
        )
        trainer = Trainer(config, text, path)
        if trainer.done == config.steps:
            print(f"trained before, {trainer.done} steps ({path})")
        elif trainer.done:
            print(f"continues after step {trainer.done} of {config.steps} ({path})")
        timings = None
        if trainer.run(lambda: bool(interrupt)):
            timings = measure(trainer, options.rounds, lambda: bool(interrupt))
        if timings is None:
            assert interrupt.signal is not None
            name = signal.Signals(interrupt.signal).name
            print(f"{name}: stopped after step {trainer.done}, kept in {path}; the same command "
                  "continues")  # fmt: skip
            return 128 + interrupt.signal
        result = report.collect(trainer, timings)
        written = report.write(result, folder)
    legend = textwrap.fill(report.LEGEND, 80)
    print(f"\n{report.as_text(report.table(result))}\n\n{legend}\n\nreport: {written}")
    return 0


def main() -> int:
    try:
        return run(parse())
    except CheckpointError as error:
        print(f"demo: {error}. To start anew: --fresh (make demo FRESH=1)", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: stopped at once; the last checkpoint is kept", file=sys.stderr)
        return 128 + signal.SIGINT
    except (TextError, ValueError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
