#!/usr/bin/env python3
"""What the prefix cache of `warploom serve` saves: two measurements against a running server.

    warploom serve -m model.gguf -c 4096 --parallel 4 &
    python3 benches/serve_prefix.py --url http://127.0.0.1:8080

1. Requests that share a long beginning, as an agent's with its instructions and tools do, from several
   clients at once, beside as many that share nothing.
2. Conversations in turn, more of them than there are sequences: the time to the first token of each
   one's second turn, beside that of its first.
Each line has seconds, and the tokens that the server found in its caches.
"""

import argparse
import concurrent.futures
import json
import random
import time
import urllib.request

WORDS = "river stone paper window garden silver morning engine letter market winter yellow".split()


def text(seed, words):
    """Words that no other seed begins with."""
    draw = random.Random(seed)
    return " ".join([f"Number {seed}:"] + [draw.choice(WORDS) for _ in range(words)])


def ask(url, prompt, tokens):
    """Completes a prompt; returns seconds to the first token, the text, prompt and cached tokens."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, "ignore_eos": True}
    request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    begin, first, parts, usage = time.monotonic(), None, [], {}
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                first = first or time.monotonic() - begin
                parts.append(choice["text"])
    cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
    return first, "".join(parts), usage["prompt_tokens"], cached


def shared(url, args):
    """Requests with one beginning, and with none in common."""
    print(f"requests: {args.requests} of {args.words} words and a question, {args.clients} clients")
    times = {}
    for name in ("nothing shared", "one beginning"):
        one = text(0, args.words)

        def run(i):
            start = one if name == "one beginning" else text(1000 + i, args.words)
            return ask(url, f"{start}\n\nQuestion {i}: {text(5000 + i, 6)}?", 1)

        if name == "one beginning":
            run(args.requests)  # Somebody was first.
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
            answers = list(pool.map(run, range(args.requests)))
        times[name] = time.monotonic() - begin
        tokens, cached = (sum(answer[i] for answer in answers) for i in (2, 3))
        print(f"  {name:<15} {times[name]:8.2f} s, {tokens} prompt tokens, {cached} cached")
    print(f"  {times['nothing shared'] / times['one beginning']:.1f} times as fast")


def conversations(url, args):
    """Second turns, after all others' first ones."""
    print(f"conversations: {args.talks} in turn, {args.words} words each")
    histories = [text(9000 + i, args.words) for i in range(args.talks)]
    for turn in ("first turn", "second turn"):
        answers = []
        for i, history in enumerate(histories):
            prompt = f"{history}\n\n{turn}: {text(7000 + i, 6)}?"
            answer = ask(url, prompt, 16)
            answers.append(answer)
            histories[i] = prompt + answer[1]
        firsts = sorted(answer[0] for answer in answers)
        tokens, cached = (sum(answer[i] for answer in answers) for i in (2, 3))
        print(f"  {turn:<12} first token after {firsts[len(firsts) // 2]:.3f} s (median), "
              f"{firsts[-1]:.3f} s (slowest); {tokens} prompt tokens, {cached} cached")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--words", type=int, default=1500, help="words of a beginning (1500)")
    parser.add_argument("--requests", type=int, default=32, help="requests of each kind (32)")
    parser.add_argument("--clients", type=int, default=4, help="requests at once (4)")
    parser.add_argument("--talks", type=int, default=8, help="conversations (8)")
    args = parser.parse_args()
    shared(args.url, args)
    conversations(args.url, args)


if __name__ == "__main__":
    main()
