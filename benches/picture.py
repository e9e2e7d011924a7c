#!/usr/bin/env python3
"""Draws measured.json: warploom and llama.cpp for each model, with the memory roofline if it is known.

    pip install matplotlib
    python3 benches/picture.py [--device "NVIDIA H200"] [--compute int8|f32|all] [--output docs/speed-nvidia-h200.svg]

Each panel has its own scale, from zero. A bar is the median; the thin line on it is the spread of the runs, where it
was recorded.
"""

import argparse
import pathlib
import re

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

import record

OURS, THEIRS, ROOF = "#2f6db5", "#b8b8b8", "#c0392b"
# And "decode of N", in the order of N.
WHATS = {"prefill": "prompt of 512", "decode": "decode"}
# Colours and type that can be read on light and on dark pages alike.
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "warploom", "font.family": "sans-serif", "font.size": 9,
    "axes.edgecolor": "#888888", "text.color": "#777777", "axes.labelcolor": "#777777", "ytick.color": "#777777",
    "xtick.color": "#777777",
}


def label(row, several):
    through = {"webgpu": "Vulkan" if row["by"] == "llama.cpp" else "wgpu", "cuda": "CUDA", "opencl": "OpenCL", "cpu": ""}
    compute = {"int8": "Int8", "f32": "F32"}.get(row["compute"], "") if several and row["by"] == "warploom" else ""
    return " ".join(word for word in (row["by"], through.get(row["through"], row["through"]), compute) if word)


def panel(axes, rows, title):
    bars = [row for row in rows if row["by"] != "memory"]
    bars.sort(key=lambda row: (row["by"] != "warploom", row["through"], row["compute"]))
    longest = max(row["median"] for row in bars)
    several = len({row["compute"] for row in bars if row["by"] == "warploom"}) > 1
    for at, row in enumerate(bars):
        axes.barh(at, row["median"], color=OURS if row["by"] == "warploom" else THEIRS, height=0.7)
        if row["least"] is not None and row["most"] > row["least"]:
            axes.hlines(at, row["least"], row["most"], color="#333333", linewidth=1)
        axes.text(max(row["median"], row.get("most") or 0) + longest * 0.02, at, f"{row['median']:,.0f}", va="center")
    for row in rows:
        if row["by"] == "memory" and row["median"] <= 4 * longest:
            axes.axvline(row["median"], color=ROOF, linewidth=1, linestyle="--")
            axes.text(row["median"], -0.75, f"memory allows {row['median']:,.0f} ", color=ROOF, ha="right", va="center")
            longest = max(longest, row["median"])
        elif row["by"] == "memory":
            axes.text(longest * 1.2, -0.75, f"memory allows {row['median']:,.0f} \N{RIGHTWARDS ARROW}", color=ROOF, ha="right", va="center")
    axes.set_yticks(range(len(bars)), [label(row, several) for row in bars])
    axes.set_ylim(len(bars) - 0.4, -1.2)
    axes.set_xlim(0, longest * 1.2)
    axes.set_title(title, loc="left", fontsize=9)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.xaxis.set_visible(False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="NVIDIA H200")
    parser.add_argument("--compute", choices=["int8", "f32", "all"], default="int8", help="warploom's; the default mode is int8")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    docs = pathlib.Path(__file__).parent.parent / "docs"
    output = args.output or docs / f"speed-{re.sub('[^a-z0-9]+', '-', args.device.lower()).strip('-')}.svg"
    drawn = lambda row: row["by"] != "warploom" or args.compute in ("all", row["compute"])
    rows = [row for row in record.load() if row["device"] == args.device and drawn(row)]
    if not rows:
        parser.error(f"nothing of {args.device!r}; there is {sorted({row['device'] for row in record.load()})}")
    # The largest model, whose prompts are slowest, first.
    speed = lambda model: max((row["median"] for row in rows if (row["model"], row["what"]) == (model, "prefill")), default=0)
    models = sorted({row["model"] for row in rows}, key=speed)
    batches = sorted({row["what"] for row in rows} - set(WHATS), key=lambda what: int(what.removeprefix("decode of ")))
    whats = {what: title for what, title in WHATS.items() if any(row["what"] == what for row in rows)}
    whats |= {what: what.removeprefix("decode of ") + " sequences" for what in batches}
    most = max(sum(row["by"] != "memory" for row in rows if (row["model"], row["what"]) == place)
               for place in {(row["model"], row["what"]) for row in rows})
    with pyplot.rc_context(STYLE):
        figure, grid = pyplot.subplots(len(models), len(whats), figsize=(4.2 * len(whats), (0.25 * most + 0.55) * len(models) + 0.3), squeeze=False)
        for model, line in zip(models, grid):
            for what, axes in zip(whats, line):
                here = [row for row in rows if (row["model"], row["what"]) == (model, what)]
                if any(row["by"] != "memory" for row in here):
                    panel(axes, here, f"{model}, {whats[what]}")
                else:
                    axes.set_axis_off()
        # Above the first row by as much, however many rows there are.
        height = figure.get_size_inches()[1]
        figure.suptitle(f"tokens a second on {args.device}; longer is better", fontsize=10, y=1 - 0.05 / height, va="top")
        figure.tight_layout(rect=(0, 0, 1, 1 - 0.02 / height))
        figure.savefig(output, metadata={"Date": None}, transparent=True)
    print(output)


if __name__ == "__main__":
    main()
