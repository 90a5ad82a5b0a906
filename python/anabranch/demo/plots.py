"""The report's pictures, as SVG text."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from torch import Tensor

from anabranch.demo.measure import VARIANTS, Timing
from anabranch.demo.streams import KINDS
from anabranch.demo.train import History

COLOURS = {"plain": "#555555", "mhc": "#0072b2", "attn_res": "#d55e00"}


def _figure(
    width: float, height: float, columns: int = 1, rows: int = 1
) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def svg(figure: Figure) -> str:
    """The figure without anything that differs from one run to another."""
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "anabranch"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def smoothed(values: Sequence[float], span: int) -> list[float]:
    """The mean of the last `span` values at each place."""
    parts = (values[max(0, i - span + 1) : i + 1] for i in range(len(values)))
    return [sum(part) / len(part) for part in parts]


def loss_curves(history: History) -> Figure:
    """Losses, and their differences to the plain stream: all see the same bytes."""
    figure, (axes, below) = _figure(8, 6.5, rows=2)
    plain = history.train["plain"]
    for kind, name in KINDS.items():
        losses, colour = history.train[kind], COLOURS[kind]
        span = max(1, len(losses) // 30)
        smooth = smoothed(losses, span)
        steps = range(1, len(losses) + 1)
        axes.plot(steps, losses, color=colour, alpha=0.15, linewidth=0.8)
        axes.plot(steps, smooth, color=colour, linewidth=1.2, label=f"{name}, training")
        done, held_out = zip(*history.held_out[kind], strict=True)
        style: dict[str, Any] = {"color": colour, "markersize": 4, "linewidth": 0.8}
        axes.plot(done, held_out, "o--", label=f"{name}, held out", **style)
        apart = [loss - base for loss, base in zip(losses, plain, strict=True)]
        below.plot(steps, smoothed(apart, span), color=colour, linewidth=1.2)
        pairs = zip(history.held_out[kind], history.held_out["plain"], strict=True)
        below.plot(done, [own[1] - base[1] for own, base in pairs], "o--", **style)
    axes.set(ylabel="bits per byte")
    below.set(xlabel="step", ylabel="difference to plain")
    for place in (axes, below):
        place.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=3)
    # From where the first twentieth of the run has led: before it all curves fall alike.
    early = history.train["plain"][len(plain) // 20 :]
    axes.set_ylim(min(map(min, history.train.values())) - 0.2, max(early) + 0.8)
    return figure


def step_times(timings: dict[tuple[str, bool], Timing]) -> Figure:
    figure, (axes,) = _figure(8, 3)
    names = []
    for place, (kind, is_eager) in enumerate(VARIANTS):
        timing = timings[kind, is_eager]
        rest, residual = (timing.step - timing.residual) * 1e3, timing.residual * 1e3
        axes.barh(place, rest, color="#cccccc", label="everything else" if place == 0 else None)
        axes.barh(place, residual, left=rest, color=COLOURS[kind], hatch="//" if is_eager else None)
        label = f"  {timing.step * 1e3:.0f} ms, {timing.share:.1%} residual"
        axes.text(rest + residual, place, label, va="center")
        names.append(f"{KINDS[kind]}\n{'eager composition' if is_eager else 'anabranch'}")
    names[0] = KINDS["plain"]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(right=1.5 * max(timing.step for timing in timings.values()) * 1e3)
    axes.set_xlabel("milliseconds a step; coloured: residual operators, forward and backward")
    return figure


def _heat(axes: Axes, matrix: Sequence[Sequence[float | None]]) -> None:
    """Cells of 0..1 with their numbers; None is no cell. The colours of small ones differ most."""
    cells = [[float("nan") if v is None else v for v in row] for row in matrix]
    axes.imshow(cells, cmap="Blues", norm=PowerNorm(0.5, 0.0, 1.0), aspect="auto")
    for y, row in enumerate(matrix):
        for x, value in enumerate(row):
            if value is not None:
                colour = "white" if value > 0.4 else "black"
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)


def mixing(matrices: Tensor, sublayers: Sequence[int], names: Sequence[str]) -> Figure:
    """h_res of some sublayers: mean over tokens."""
    columns = min(4, len(sublayers))
    rows = -(-len(sublayers) // columns)
    figure, axes = _figure(2.2 * columns, 2.3 * rows, columns, rows)
    lanes = [str(i + 1) for i in range(matrices.shape[-1])]
    for unused in axes[len(sublayers) :]:
        unused.set_axis_off()
    for place, index in zip(axes, sublayers, strict=False):
        _heat(place, matrices[index].tolist())
        place.set_title(names[index], fontsize="small")
        place.set_xticks(range(len(lanes)), lanes)
        place.set_yticks(range(len(lanes)), lanes)
        place.set(xlabel="to lane", ylabel="from lane")
    return figure


def attention(weights: Sequence[tuple[list[float], float | None]], names: Sequence[str]) -> Figure:
    """Weights of the blocks by depth: mean over tokens."""
    most = max(len(blocks) for blocks, _ in weights)
    sources = ["embedding", *(f"block {i}" for i in range(1, most)), "unfinished"]
    matrix = [[*blocks, *[None] * (most - len(blocks)), current] for blocks, current in weights]
    figure, (axes,) = _figure(1.6 + 0.95 * len(sources), 1.2 + 0.33 * len(names))
    _heat(axes, matrix)
    axes.set_xticks(range(len(sources)), sources)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="source", ylabel="input of")
    return figure
