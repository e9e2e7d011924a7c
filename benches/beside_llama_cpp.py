#!/usr/bin/env python3
"""Compares CPU decode and prefill with llama.cpp: alternating runs, same file, threads and lengths.

    pip install llama-cpp-python==0.3.36
    cargo build --release
    python3 benches/beside_llama_cpp.py target/release/warploom model.gguf [--threads 2] [--rounds 5] [--record NAME]

Both read a prompt of 512 tokens and then generate 128 greedy tokens. llama.cpp runs through its C API, one
`llama_decode` per token with its greedy sampler, like `llama-bench`; warploom by `warploom bench --device cpu`.
--record writes the figures to benches/measured.json under this model name.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import time

import record

PROMPT, WRITTEN = 512, 128


class LlamaCpp:
    """The model in this process."""

    def __init__(self, path, threads):
        import llama_cpp

        self.lib = llama_cpp
        # Silence: the log goes to nobody.
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = PROMPT + WRITTEN, PROMPT, PROMPT
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.greedy = llama_cpp.llama_sampler_init_greedy()
        vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.ids = [i * 2_654_435_761 % 2**32 % vocabulary for i in range(PROMPT)]

    def run(self, ids):
        # The batch only points at them.
        tokens = (self.lib.llama_token * len(ids))(*ids)
        batch = self.lib.llama_batch_get_one(tokens, len(ids))
        if self.lib.llama_decode(self.context, batch) != 0:
            raise SystemExit("llama_decode failed")
        return self.lib.llama_sampler_sample(self.greedy, self.context, -1)

    def measure(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        begin = time.perf_counter()
        token = self.run(self.ids)
        prefill = time.perf_counter() - begin
        begin = time.perf_counter()
        for _ in range(WRITTEN):
            token = self.run([token])
        return PROMPT / prefill, WRITTEN / (time.perf_counter() - begin)


def warploom(command, path, threads, mode):
    words = [command, "bench", "-m", path, "-d", "cpu", "--threads", str(threads), "--compute", mode, "--json"]
    words += ["--prompt-tokens", str(PROMPT), "--tokens", str(WRITTEN), "--context", str(PROMPT + WRITTEN)]
    out = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return out["device"]["name"], (out["prefill"]["tokens_per_second"], out["decode"]["tokens_per_second"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("warploom")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", metavar="NAME", help="keep the figures, under this name of the model")
    args = parser.parse_args()
    peer = LlamaCpp(args.model, args.threads)
    peer.measure()
    seen = {"llama.cpp": [], "warploom int8": [], "warploom f32": []}
    for _ in range(args.rounds):
        seen["llama.cpp"].append(peer.measure())
        for mode in ("int8", "f32"):
            device, rates = warploom(args.warploom, args.model, args.threads, mode)
            seen[f"warploom {mode}"].append(rates)
    base = [statistics.median(runs) for runs in zip(*seen["llama.cpp"])]
    for name, runs in seen.items():
        for what, values, peer_rate in zip(("prefill", "decode"), zip(*runs), base):
            rate = statistics.median(values)
            print(
                f"{name:14} {what:8} {rate:8.1f} tokens/s ({min(values):.1f} to {max(values):.1f}),"
                f" {rate / peer_rate:.2f} of llama.cpp"
            )
            if args.record:
                by, _, compute = name.partition(" ")
                device_name = f"{device}, {args.threads} threads"
                record.add([record.row(by, device_name, "cpu", args.record, compute, what, values)])


if __name__ == "__main__":
    main()
