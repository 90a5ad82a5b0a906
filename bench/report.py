"""The suite's results as a Markdown table and as plots."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any


def _mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:.0f} MiB"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def markdown(results: list[dict[str, Any]], machine: str, command: str) -> str:
    """One row a case and contender; `x` is how many times as long as anabranch it takes."""
    lines = [
        f"Machine: {machine}. Command: `{command}`.",
        "",
        "| work | contender | median | spread | x anabranch | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        title = result["title"]
        for row in result["contenders"]:
            lines.append(
                f"| {title} | {row['name']} | {_time(row['median'])} | {row['spread']:.0%} "
                f"| {row['ratio']:.2f} | {_mib(row['peak_bytes'])} |"
            )
            title = ""
        for name, why in result["skipped"].items():
            lines.append(f"| {title} | {name} | {why} | | | |")
            title = ""
    return "\n".join(lines) + "\n"


def lines_text(lines: list[dict[str, Any]]) -> str:
    """anabranch's time against tokens: the fitted line and how far the points are from it."""
    if not lines:
        return ""
    text = [
        "",
        "| time against tokens | from .. to | us a token | at no tokens | farthest from the line |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        first, last = line["points"][0][0], line["points"][-1][0]
        text.append(
            f"| {line['title']} | {first} .. {last} | {line['slope'] * 1e6:.3g} "
            f"| {_time(line['start'])} | {line['worst']:.0%} |"
        )
    return "\n".join(text) + "\n"


def scaling_text(scaling: list[dict[str, Any]]) -> str:
    """anabranch's time by threads, and how many times as fast as one."""
    text = ["", "| threads | " + " | ".join(dict.fromkeys(s["title"] for s in scaling)) + " |"]
    text.append("|---" * (text[-1].count("|") - 1) + "|")
    one = {s["title"]: s["median"] for s in scaling if s["threads"] == 1}
    for threads in dict.fromkeys(s["threads"] for s in scaling):
        row = [s for s in scaling if s["threads"] == threads]
        cells = [f"{_time(s['median'])} ({one[s['title']] / s['median']:.2f}x)" for s in row]
        text.append(f"| {threads} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def _ratio_bars(family: list[dict[str, Any]]) -> Any:
    """One operator: a panel a pass, a group of bars a shape, a colour a contender."""
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    ways = list(dict.fromkeys(result["work"]["backward"] for result in family))
    names = list(dict.fromkeys(row["name"] for r in family for row in r["contenders"]))[1:]
    colours = dict(zip(names, plt.get_cmap("tab10").colors, strict=False))
    shapes = max(sum(r["work"]["backward"] == way for r in family) for way in ways)
    figure, panels = plt.subplots(
        1,
        len(ways),
        figsize=(6.5 * len(ways), 0.16 * shapes * (len(names) + 1) + 1.5),
        squeeze=False,
        layout="constrained",
    )
    for axes, way in zip(panels[0], ways, strict=True):
        results = [result for result in family if result["work"]["backward"] == way]
        height = 1 / (len(names) + 1)
        for k, name in enumerate(names):
            bars = {
                at + (k + 0.5 - len(names) / 2) * height: row["ratio"] - 1
                for at, result in enumerate(results)
                for row in result["contenders"]
                if row["name"] == name
            }
            # From the line of our own time to either side.
            axes.barh(list(bars), list(bars.values()), height, 1, color=colours[name], label=name)
        titles = [
            r["title"].removeprefix(r["work"]["op"]).rsplit(" forward", 1)[0] for r in results
        ]
        axes.set_yticks(range(len(results)), titles)
        axes.set(xscale="log", xlabel="times as long as the anabranch functions")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_title(f"{family[0]['work']['op']} {'forward + backward' if way else 'forward'}")
        axes.axvline(1, color="black", linewidth=0.8)
        axes.grid(axis="x", which="both", linewidth=0.3)
        axes.set_ylim(len(results) - 0.5, -0.5)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names), fontsize="small")
    return figure


def plots(
    results: list[dict[str, Any]],
    scaling: list[dict[str, Any]],
    lines: list[dict[str, Any]],
    folder: Path,
) -> list[Path]:
    """Ratio bars, time against tokens, scaling over threads. Returns the files."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    files = []

    def save(figure: Any, name: str) -> None:
        path = folder / name
        figure.savefig(path, dpi=120, bbox_inches="tight")
        plt.close(figure)
        files.append(path)

    for op in dict.fromkeys(result["work"]["op"] for result in results):
        family = [result for result in results if result["work"]["op"] == op]
        save(_ratio_bars(family), f"ratios_{op.replace(' ', '_')}.png")

    families: dict[tuple[str, int, int, bool], list[dict[str, Any]]] = {}
    for result in results:
        work = result["work"]
        key = (work["op"], work["d"], work["sources"], work["backward"])
        families.setdefault(key, []).append(result)
    for (op, d, sources, backward), family in families.items():
        if len(family) < 2:
            continue
        figure, axes = plt.subplots(figsize=(6, 4))
        names = dict.fromkeys(row["name"] for r in family for row in r["contenders"])
        for name in names:
            points = [
                (r["work"]["tokens"], row["median"])
                for r in family
                for row in r["contenders"]
                if row["name"] == name
            ]
            axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
        way = "forward + backward" if backward else "forward"
        axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="seconds")
        axes.set_title(f"{op}{f' L={sources}' if sources else ''} D={d} {way}")
        axes.legend(fontsize="small")
        slug = f"{op.replace(' ', '_')}_L{sources}_D{d}_{'both' if backward else 'forward'}"
        save(figure, f"tokens_{slug}.png")

    if lines:
        figure, axes = plt.subplots(figsize=(6, 4))
        for line in lines:
            tokens, seconds = zip(*line["points"], strict=True)
            (drawn,) = axes.plot(tokens, seconds, "o", label=line["title"])
            fitted = [line["start"] + line["slope"] * t for t in tokens]
            axes.plot(tokens, fitted, color=drawn.get_color(), linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel="seconds")
        axes.set_title("anabranch, with fitted lines")
        axes.legend(fontsize="small")
        save(figure, "tokens.png")

    if scaling:
        figure, axes = plt.subplots(figsize=(6, 4))
        for name in dict.fromkeys(s["title"] for s in scaling):
            points = sorted((s["threads"], s["median"]) for s in scaling if s["title"] == name)
            gains = [points[0][1] / p[1] for p in points]
            axes.plot([p[0] for p in points], gains, "o-", label=name)
        most = max(s["threads"] for s in scaling)
        axes.plot([1, most], [1, most], "k:", linewidth=0.8)
        axes.set(xlabel="threads", ylabel="times as fast as one thread")
        axes.legend(fontsize="small")
        save(figure, "threads.png")
    return files


def roofline(rows: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Fractions of the roofs, and rates against work per byte, from `anabranch bench --json`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.3 * len(rows) + 1))
    labels = [f"{r['op']} {r['pass']} T={r['T']} D={r['D']} ({r['roof']})" for r in rows]
    axes.barh(labels, [r["fraction"] for r in rows])
    axes.set(xlim=(0, 1.05), xlabel="fraction of the roof measured in the same run")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.margins(y=0.01)
    axes.invert_yaxis()
    bars = folder / "roofs.png"
    figure.savefig(bars, dpi=120, bbox_inches="tight")
    plt.close(figure)

    figure, axes = plt.subplots(figsize=(10, 5.5), layout="constrained")
    large = [r for r in rows if r["T"] >= 256]
    names = list(dict.fromkeys((r["op"], r["pass"]) for r in large))
    colours = plt.get_cmap("tab10").colors
    ops = list(dict.fromkeys(op for op, _ in names))
    for op, way in names:
        points = [r for r in large if (r["op"], r["pass"]) == (op, way)]
        axes.plot(
            [r["flops"] / r["bytes"] for r in points],
            [r["flops"] / r["seconds_median"] / 1e9 for r in points],
            "o" if way == "forward" else "s",
            color=colours[ops.index(op) % len(colours)],
            fillstyle="full" if way == "forward" else "none",
            label=f"{op} {way}",
        )
    peak = statistics.median([r["roof_value"] for r in large if r["roof"] == "fma"]) / 1e9
    stream = statistics.median([r["roof_value"] for r in large if r["roof"] != "fma"]) / 1e9
    low = min(r["flops"] / r["bytes"] for r in large) / 2
    high = max(r["flops"] / r["bytes"] for r in large) * 2
    axes.plot([low, peak / stream, max(high, peak / stream)], [low * stream, peak, peak], "k")
    axes.set(xscale="log", yscale="log", xlabel="flops a byte", ylabel="GF/s")
    axes.set_title(f"roofs (medians): {peak:.0f} GF/s, {stream:.0f} GB/s; T >= 256")
    figure.legend(fontsize="x-small", loc="outside right upper")
    picture = folder / "roofline.png"
    figure.savefig(picture, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return [bars, picture]
