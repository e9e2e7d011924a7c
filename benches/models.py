#!/usr/bin/env python3
"""Tokens per second of language models on the devices of this machine, alternating, with the spread of the runs.

    cargo build --release
    python3 benches/shaped_gguf.py llama-8b l8b.gguf
    python3 benches/models.py target/release/warploom --device webgpu --device cuda "Llama-8B Q4_K + Q6_K=l8b.gguf"

First `warploom doctor` tests every engine of a device against the reference (--doctor-seconds limits it; skipped engines
are reported). Nothing is timed on a device with a wrong engine. Then `warploom bench` (prompt of 512, 128 tokens after
it, then 8 sequences at once) runs for each model, device and compute mode, in rounds. Rows go to
benches/measured.json, which benches/picture.py draws; --no-record only prints them.
"""

import argparse
import json
import os
import subprocess
import sys

import record


def verify(command, device, seconds):
    """Ends the program where an engine of the device is wrong."""
    words = [command, "doctor", "--device", device, "--seconds", str(seconds), "--first-seconds", str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True)
    print(done.stdout, file=sys.stderr)
    if done.returncode != 0:
        sys.exit(f"{device}: doctor found what is wrong, so nothing is timed\n{done.stdout}{done.stderr}")


def bench(command, path, device, mode, args):
    words = [command, "bench", "-m", path, "-d", device, "--compute", mode, "--json", "--context", str(args.context)]
    words += ["--threads", str(args.threads)] if device.startswith("cpu") else []
    words += ["--prompt-tokens", "512", "--tokens", "128", "--sequences", str(args.sequences)]
    out = subprocess.run(words, capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{out.stderr}")
    out = json.loads(out.stdout)
    rates = {what: out[what]["tokens_per_second"] for what in ("prefill", "decode")}
    if out["decode_each"]:
        rates[f"decode of {args.sequences}"] = out["decode_each"]["tokens_per_second"]
    through = out["device"]["id"].partition(":")[0]
    return (f"{out['device']['name']}, {args.threads} threads" if through == "cpu" else out["device"]["name"]), through, rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warploom", help="the command")
    parser.add_argument("model", nargs="+", help="NAME=FILE")
    parser.add_argument("--device", action="append", help="webgpu, cuda, opencl, cpu (default: auto); repeat for more")
    parser.add_argument("--compute", action="append", choices=["f32", "int8"], help="default: both")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the CPU")
    parser.add_argument("--doctor-seconds", type=int, default=120)
    parser.add_argument("--no-record", action="store_true", help="print, and leave measured.json as it is")
    args = parser.parse_args()
    models = [model.rpartition("=")[::2] for model in args.model]
    if not all(name for name, _ in models):
        parser.error("a model is NAME=FILE")
    devices = args.device or ["auto"]
    for device in devices:
        verify(args.warploom, device, args.doctor_seconds)
    seen = {}
    for turn in range(args.rounds):
        for name, path in models:
            for device in devices:
                for mode in args.compute or ["f32", "int8"]:
                    print(f"round {turn + 1} of {args.rounds}: {name}, {device}, {mode}", file=sys.stderr)
                    card, through, rates = bench(args.warploom, path, device, mode, args)
                    print(", ".join(f"{what} {rate:.0f} tokens/s" for what, rate in rates.items()), file=sys.stderr)
                    for what, rate in rates.items():
                        seen.setdefault((card, through, name, mode, what), []).append(rate)
    rows = [
        record.row("warploom", card, through, name, mode, what, rates)
        for (card, through, name, mode, what), rates in seen.items()
    ]
    for r in rows:
        print(
            f"{r['model']}, {r['through']}, {r['compute']}: {r['what']} {r['median']} tokens/s"
            f" ({r['least']} to {r['most']}, {r['runs']} runs)"
        )
    if not args.no_record:
        record.add(rows)


if __name__ == "__main__":
    main()
