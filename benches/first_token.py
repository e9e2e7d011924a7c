#!/usr/bin/env python3
"""Time from start to the first token, with empty and filled caches, and to the first token after a pause.

    cargo build --release
    python3 benches/first_token.py target/release/warploom -m FILE --device cuda --device webgpu

Starts: `warploom generate` in a new process, until the first byte of text. Cold starts have empty cache folders of
warploom and of the drivers, warm ones those of the previous run. The first process on a machine also reads the drivers
from disk, so one uncounted run comes first. Pause: `warploom serve`, streamed answers to short questions in sequence,
then one after a pause; the time to its first text relative to the median of those before. Your own caches are not
changed.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

# Where warploom and the drivers of NVIDIA and Mesa keep what they compiled.
CACHES = ["XDG_CACHE_HOME", "CUDA_CACHE_PATH", "__GL_SHADER_DISK_CACHE_PATH", "MESA_SHADER_CACHE_DIR"]


def with_caches(folder):
    return {**os.environ, **{name: folder for name in CACHES}}


def model_words(args, device):
    words = ["-m", args.model] if args.model else []
    words += ["--compute", args.compute] if args.compute else []
    return [*words, "-d", device]


def start(args, device, folder):
    """Seconds until the first byte of text."""
    words = [args.warploom, "generate", *model_words(args, device), "-n", "4", "-t", "0", "-q", "Once upon a time"]
    begin = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=with_caches(folder), bufsize=0) as p:
        first = p.stdout.read(1)
        seconds = time.perf_counter() - begin
        _, told = p.communicate()
    if not first or p.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{told.decode(errors='replace')}")
    return seconds


def starts(args, device):
    with tempfile.TemporaryDirectory() as folder:
        start(args, device, folder)
    cold, warm = [], []
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(start(args, device, folder))
            warm.extend(start(args, device, folder) for _ in range(2))
    return {"cold": cold, "warm": warm}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A `warploom serve`, and questions to it."""

    def __init__(self, args, device, folder):
        self.url = f"http://127.0.0.1:{(port := free_port())}/v1"
        words = [args.warploom, "serve", *model_words(args, device), "--port", str(port)]
        words += ["-c", str(args.context)] if args.context else []
        path = os.path.join(folder, "serve.log")
        with open(path, "w") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=with_caches(folder))
        deadline = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/models") as models:
                    self.model = json.load(models)["data"][0]["id"]
                return
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.process.kill()
                    with open(path) as log:
                        sys.exit(f"{' '.join(words)} does not answer\n{log.read()}")
                time.sleep(0.2)

    def first(self, turn):
        """Seconds until the first piece of the answer to a question that was not asked before."""
        # No message, since files of shaped_gguf.py have no template for them.
        question = f"House {turn} by the sea was"
        body = {"model": self.model, "prompt": question, "max_tokens": 64, "temperature": 0, "stream": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/completions", json.dumps(body).encode(), headers)
        begin, seconds = time.perf_counter(), None
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if seconds is None and b'"text"' in line:
                    seconds = time.perf_counter() - begin
        if seconds is None:
            sys.exit(f"the answer of {self.url} to {question!r} has no text")
        return seconds


def pause(args, device):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args, device, folder)
        try:
            turns = iter(range(10_000))
            for _ in range(3):
                server.first(next(turns))
            warm = [server.first(next(turns)) for _ in range(9)]
            time.sleep(args.pause)
            after = server.first(next(turns))
        finally:
            server.process.terminate()
            server.process.wait()
    return {"seconds": args.pause, "warm": warm, "after": after, "ratio": after / statistics.median(warm)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warploom", help="the command")
    parser.add_argument("-m", "--model", help="GGUF file (default: the small model that comes with the command)")
    parser.add_argument("--device", action="append", help="webgpu, cuda, opencl, cpu (default: auto); repeat for more")
    parser.add_argument("--compute", choices=["f32", "int8"])
    parser.add_argument("--context", type=int, help="positions of each answer's context (default: the model's, at most 4096)")
    parser.add_argument("--runs", type=int, default=3, help="cold starts, and half of the warm ones")
    parser.add_argument("--pause", type=float, default=60, help="seconds without a question; 0 leaves the pause out")
    parser.add_argument("--json", action="store_true", help="print one JSON object a device")
    args = parser.parse_args()
    for device in args.device or ["auto"]:
        found = {"device": device, **starts(args, device)}
        found["pause"] = pause(args, device) if args.pause > 0 else None
        if args.json:
            print(json.dumps(found), flush=True)
            continue
        for what in ("cold", "warm"):
            times = found[what]
            print(f"{device}, {what} start to the first text: {statistics.median(times):.3f} s ({min(times):.3f} to {max(times):.3f}, {len(times)} runs)")
        if found["pause"]:
            p = found["pause"]
            print(f"{device}, first text warm: {statistics.median(p['warm']) * 1e3:.1f} ms, after {p['seconds']:g} s: {p['after'] * 1e3:.1f} ms, {p['ratio']:.2f} times", flush=True)


if __name__ == "__main__":
    main()
