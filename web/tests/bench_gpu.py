#!/usr/bin/env python3
"""Measures models in a Chromium on a real GPU, for machines that have neither Node.js nor a screen.

    python3 web/tests/bench_gpu.py MODEL.gguf .. [--conformance NAME] [--chromium PATH]

Serves web/package/dist and the files on a local port, opens a page in Chromium (headless, WebGPU through
Vulkan), and prints for each model and compute mode: tokens/s of a prompt of 512 tokens and of 256 tokens
after a short prompt, greedy, the best of three rounds after one that compiles. With --conformance it runs the
cases of the conformance table whose name contains NAME ("" for all), and no model.
Needs web/build.sh and `node web/package/build.mjs` before.
"""
import argparse
import http.server
import json
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading

DIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "package", "dist")
TYPES = {".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm"}
FLAGS = [
    "--headless=new", "--no-sandbox", "--no-first-run", "--disable-background-networking",
    "--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-angle=vulkan", "--disable-vulkan-surface",
    "--ignore-gpu-blocklist",
]
PAGE = """<!doctype html><meta charset=utf-8><title>bench</title><script type=module>
const say = (row) => fetch("/say", { method: "POST", body: JSON.stringify(row) });
const { models, conformance } = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const sentence = "The river ran past the old mill, where a miller and his three daughters lived. ";
const rate = async (model, prompt, maxTokens) => {
  const begin = performance.now();
  const { promptTokens, tokens } = await model.generate(prompt, { maxTokens, temperature: 0 }).result;
  return { seconds: (performance.now() - begin) / 1000, promptTokens, tokens };
};
try {
  const { open } = await import("/package/index.js");
  if (conformance !== null) {
    const engine = await open({ device: "webgpu", full: true });
    await say({ conformance: await engine.conformance({ device: "webgpu", cases: conformance }) });
  }
  for (const model of models) for (const compute of ["f32", "int8"]) {
    const engine = await open({ device: "webgpu" });
    const loaded = await engine.load(`/models/${model}`, { context: 2048, compute });
    const rows = [];
    for (let round = 0; round < 4; round += 1) {
      const one = await rate(loaded, `${round}. ${sentence.repeat(60)}`.slice(0, 512), 1);
      const short = await rate(loaded, `${round}nce`, 1);
      const many = await rate(loaded, `${round}wice`, 257);
      rows.push([one.promptTokens / one.seconds, (many.tokens - 1) / (many.seconds - short.seconds)]);
    }
    const [prompt, decode] = [0, 1].map((i) => rows.slice(1).map((row) => row[i]));
    await say({ model, compute, prompt, decode });
    await engine.close();
  }
  await say({ done: true });
} catch (error) {
  await say({ error: `${error?.kind ?? ""} ${error?.message ?? error}` });
}
</script>
"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files, said = {}, queue.Queue()

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.said.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/":
            return self.answer(200, "text/html", len(PAGE), [PAGE.encode()])
        name = os.path.normpath(path.removeprefix("/package/"))
        file = self.files.get(path) or os.path.join(DIST, name)
        known = path in self.files or path.startswith("/package/") and not name.startswith("..")
        if not known or not os.path.isfile(file):
            return self.answer(404, "text/plain", 0, [])
        kind = TYPES.get(os.path.splitext(file)[1], "application/octet-stream")
        size = os.path.getsize(file)
        range_ = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("range") or "")
        start = int(range_[1]) if range_ else 0
        end = min(size, int(range_[2]) + 1) if range_ and range_[2] else size
        headers = {"etag": '"1"', "accept-ranges": "bytes"}
        if range_:
            headers["content-range"] = f"bytes {start}-{end - 1}/{size}"
        self.answer(206 if range_ else 200, kind, end - start, pieces(file, start, end), headers)

    def answer(self, status, kind, length, body, headers=None):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        for piece in body:
            self.wfile.write(piece)


def pieces(path, start, end):
    with open(path, "rb") as file:
        file.seek(start)
        while start < end:
            piece = file.read(min(end - start, 1 << 22))
            start += len(piece)
            yield piece


def show(row):
    if "conformance" in row:
        report = row["conformance"]
        print(f"conformance: {report['passed']} passed, {len(report['failed'])} failed, "
              f"{len(report['unsupported'])} unsupported")
        for case in report["failed"]:
            print(f"  {case['case']} {case['sizes']}: {case['why']}")
    else:
        best = {name: max(row[name]) for name in ("prompt", "decode")}
        each = ", ".join(f"{value:.0f}" for value in row["decode"])
        print(f"{row['model']} {row['compute']}: prompt {best['prompt']:.0f}, decode {best['decode']:.0f} "
              f"tokens/s (each round {each})")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--conformance", metavar="NAME")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--timeout", type=float, default=300, help="seconds until the next result")
    args = parser.parse_args()
    names = [os.path.basename(path) for path in args.models]
    Handler.files = {f"/models/{name}": path for name, path in zip(names, args.models)}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked = json.dumps({"models": names if args.conformance is None else [], "conformance": args.conformance})
    quoted = "".join(f"%{byte:02x}" for byte in asked.encode())
    url = f"http://127.0.0.1:{server.server_port}/#{quoted}"
    # Chromium's children may still write after it ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [args.chromium, *FLAGS, f"--user-data-dir={profile}", url]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while True:
                row = Handler.said.get(timeout=args.timeout)
                if "error" in row:
                    sys.exit(f"error: {row['error']}")
                if "done" in row:
                    return
                show(row)
        except queue.Empty:
            sys.exit(f"error: no result within {args.timeout:.0f} s")
        finally:
            browser.kill()
            browser.wait()


if __name__ == "__main__":
    main()
