"""The result: one HTML file with its pictures inside, the same table as text, and as JSON."""

from __future__ import annotations

import base64
import html
import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

import anabranch
from anabranch.demo import plots, probe
from anabranch.demo.checkpoint import write_whole
from anabranch.demo.measure import Timing
from anabranch.demo.streams import KINDS
from anabranch.demo.train import Trainer

HEADINGS = ["", *KINDS.values()]
LEGEND = (
    "Losses are bits per byte: training over the last tenth of the steps, held out on text that is "
    "not trained on. Times are medians of training steps: forward, backward, optimizer. Eager: the "
    "same model with the residual operators composed of plain PyTorch."
)


@dataclass(frozen=True)
class Result:
    """What a finished run found."""

    trainer: Trainer
    timings: dict[tuple[str, bool], Timing]
    mixing: Tensor  # [sublayers, n, n]
    attention: list[tuple[list[float], float | None]]

    @property
    def sublayers(self) -> list[str]:
        layers = range(1, self.trainer.config.model.layers + 1)
        return [f"{layer} {part}" for layer in layers for part in ("attention", "MLP")]

    def training_loss(self, kind: str) -> float:
        losses = self.trainer.history.train[kind]
        last = losses[-max(1, len(losses) // 10) :]
        return sum(last) / len(last)


def collect(trainer: Trainer, timings: dict[tuple[str, bool], Timing]) -> Result:
    """Looks into the trained models."""
    sizes = (trainer.config.held_out, trainer.config.model.context)
    mixing = probe.mixing_matrices(trainer.models["mhc"], trainer.text, *sizes)
    attention = probe.block_attention(trainer.models["attn_res"], trainer.text, *sizes)
    return Result(trainer, timings, mixing, attention)


def table(result: Result) -> list[list[str]]:
    """The rows under HEADINGS: what it is, then a value for each stream."""
    trainer = result.trainer
    fused = [result.timings[kind, False] for kind in KINDS]
    eager = [result.timings.get((kind, True)) for kind in KINDS]
    tokens = trainer.config.batch * trainer.config.model.context

    def against(show: Callable[[Timing, Timing], str]) -> list[str]:
        return [show(f, e) if e else "-" for f, e in zip(fused, eager, strict=True)]

    sizes = [sum(p.numel() for p in model.parameters()) for model in trainer.models.values()]
    return [
        ["parameters, millions", *(f"{size / 1e6:.2f}" for size in sizes)],
        ["training loss, bits/byte", *(f"{result.training_loss(kind):.3f}" for kind in KINDS)],
        [
            "held-out loss, bits/byte",
            *(f"{trainer.history.held_out[kind][-1][1]:.3f}" for kind in KINDS),
        ],
        ["tokens/s", *(f"{tokens / t.step:,.0f}" for t in fused)],
        ["step, ms", *(f"{t.step * 1e3:.0f}" for t in fused)],
        ["  eager", *against(lambda _, e: f"{e.step * 1e3:.0f}")],
        ["residual operators, ms", *(f"{t.residual * 1e3:.1f}" for t in fused)],
        ["  eager", *against(lambda _, e: f"{e.residual * 1e3:.1f}")],
        ["  share of the step", *(f"{t.share:.1%}" for t in fused)],
        ["  share, eager", *against(lambda _, e: f"{e.share:.1%}")],
        ["  faster than eager", *against(lambda f, e: f"{e.residual / f.residual:.1f} x")],
    ]


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """The table for a terminal."""
    widths = [max(len(row[i]) for row in (HEADINGS, *rows)) for i in range(len(HEADINGS))]

    def line(cells: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join((first, *rest)).rstrip()

    return "\n".join([line(HEADINGS), line(["-" * w for w in widths]), *map(line, rows)])


def as_json(result: Result) -> str:
    """Everything the report shows, for programs."""
    trainer = result.trainer
    timings = [
        {"kind": kind, "eager": eager, **asdict(timing)}
        for (kind, eager), timing in result.timings.items()
    ]
    content = {
        "configuration": trainer.config.identity(trainer.text),
        "machine": machine(),
        "history": asdict(trainer.history),
        "timings": timings,
        "h_res": result.mixing.tolist(),
        "block_attention": [
            {"blocks": blocks, "unfinished": partial} for blocks, partial in result.attention
        ],
    }
    return json.dumps(content, indent=1) + "\n"


def machine() -> dict[str, str]:
    """What the times belong to."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "processor": model,
        "threads": str(torch.get_num_threads()),
        "PyTorch": torch.__version__,
        "anabranch": anabranch.__version__,
        "Python": platform.python_version(),
    }


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left; white-space: pre }
figure { margin: 1.5rem 0; overflow-x: auto } img { max-width: 100% }
figcaption, .note { color: #555; font-size: .9rem }
"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

    parts = [cells("th", head)] if head else []
    return "\n".join(["<table>", *parts, *(cells("td", row) for row in rows), "</table>"])


def _picture(figure: Figure, name: str, caption: str) -> str:
    data = base64.b64encode(plots.svg(figure).encode()).decode()
    return (
        f'<figure id="{name}"><img alt="{html.escape(caption)}" '
        f'src="data:image/svg+xml;base64,{data}"><figcaption>{html.escape(caption)}</figcaption>'
        "</figure>"
    )


def as_html(result: Result) -> str:
    """The report: no other file, no network."""
    trainer = result.trainer
    names = result.sublayers
    shown = _a_few(len(names))
    pictures = [
        _picture(
            plots.loss_curves(trainer.history),
            "loss",
            "Loss. Lines: training, smoothed; dots: the same held-out text every time. Below: the "
            "difference to the plain stream on the same bytes; less than 0 is better.",
        ),
        _picture(
            plots.step_times(result.timings),
            "time",
            "Time of a training step and the share of the residual operators in it, against the "
            "same model with the operators composed of plain PyTorch. Hatched: eager.",
        ),
        _picture(
            plots.mixing(result.mixing, shown, names),
            "mixing",
            "mHC: the mixing matrix h_res of some sublayers, mean over held-out tokens. Rows and "
            "columns add up to 1; training starts near the identity.",
        ),
        _picture(
            plots.attention(result.attention, [*names, "output"]),
            "attention",
            "Block Attention Residuals: what each sublayer's input is made of, mean over "
            "held-out tokens. Training starts with equal weights in each row.",
        ),
    ]
    configuration = trainer.config.identity(trainer.text)
    facts = [[k, str(v)] for k, v in {**machine(), **configuration}.items()]
    text = trainer.text
    introduction = (
        f"Three byte-level Transformers, equal but for the residual stream, trained for "
        f"{trainer.done} steps on {text.train.numel() / 1e6:.1f} MB of Python ({text.folder}); "
        f"{text.held_out.numel() / 1e6:.1f} MB are held out. All see the same batches and start "
        "from the same weights. One seed and a small model: the losses show that each trains, "
        "not which is the better one."
    )
    return "\n".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>anabranch: three residual streams</title><style>{_STYLE}</style></head><body>",
        f"<h1>Three residual streams</h1><p>{html.escape(introduction)}</p>",
        _table(HEADINGS, table(result)),
        f'<p class="note">{html.escape(LEGEND)}</p>',
        *pictures,
        "<h2>This run</h2>",
        _table([], facts),
        "</body></html>\n",
    ])  # fmt: skip


def _a_few(depth: int) -> list[int]:
    """All sublayers, or eight spread evenly."""
    return sorted({round(i * (depth - 1) / 7) for i in range(8)}) if depth > 8 else [*range(depth)]


def write(result: Result, folder: Path) -> Path:
    """Writes report.html and results.json; the path of the former."""
    write_whole(folder / "results.json", as_json(result).encode())
    path = folder / "report.html"
    write_whole(path, as_html(result).encode())
    return path
