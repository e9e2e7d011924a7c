#!/usr/bin/env python3
"""Load test of `warploom serve`: many clients for some minutes, and a report.

    warploom serve --port 8080 &
    python3 benches/serve_load.py --url http://127.0.0.1:8080 --connections 64 --minutes 10 --pid $!

Each client sends a request, reads the whole answer, and repeats; prompts and lengths vary, half of
the answers are streamed, and one in fifty clients disconnects in the middle. The report has answers
and errors, tokens per second, time to the first token, and the memory growth of the process.

    python3 benches/serve_load.py --client --url http://127.0.0.1:8080

checks the server with OpenAI's own client instead (`pip install openai`).
"""

import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

PROMPTS = [
    "Tell me of a fox.",
    "What is the capital of France?",
    "Why is the sky blue?",
    "Tell me a story about a brave mouse and a red ball. " * 4,
    "Who are you?",
    "What is the opposite of hot? And of big? And of slow? " * 8,
]


class Seen:
    """What all clients saw."""

    def __init__(self):
        self.lock = threading.Lock()
        self.answers = 0
        self.left = 0
        self.tokens = 0
        self.first = []
        self.errors = {}

    def error(self, what):
        with self.lock:
            self.errors[what] = self.errors.get(what, 0) + 1


def ask(connection, random_, key):
    """One request; tokens, seconds to the first one (None where not streamed), whether it was left."""
    stream = random_.random() < 0.5
    body = {
        "messages": [{"role": "user", "content": random_.choice(PROMPTS)}],
        "max_tokens": random_.choice([8, 32, 64, 128]),
        "temperature": random_.choice([0, 0.7]),
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    begin = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        answer.read()
        raise RuntimeError(f"status {answer.status}")
    if not stream:
        return json.loads(answer.read())["usage"]["completion_tokens"], None, False
    first = None
    tokens = None
    leave = random_.random() < 0.02
    while True:
        line = answer.readline()
        if not line:
            raise RuntimeError("a stream without an end")
        if not line.startswith(b"data: "):
            continue
        if line.strip() == b"data: [DONE]":
            answer.read()
            if tokens is None:
                raise RuntimeError("a stream without usage")
            return tokens, first, False
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(f"in a stream: {event['error']['code']}")
        if event["choices"] and event["choices"][0]["delta"].get("content"):
            first = first or time.monotonic() - begin
            if leave:
                connection.close()
                return 0, first, True
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]


def client(address, key, end, seed, seen):
    random_ = random.Random(seed)
    connection = http.client.HTTPConnection(*address, timeout=300)
    while time.monotonic() < end:
        try:
            tokens, first, left = ask(connection, random_, key)
        except (OSError, RuntimeError, http.client.HTTPException, ValueError) as error:
            seen.error(f"{type(error).__name__}: {error}")
            connection.close()
            time.sleep(0.2)
            continue
        with seen.lock:
            seen.answers += not left
            seen.left += left
            seen.tokens += tokens
            if first is not None:
                seen.first.append(first)
    connection.close()


def resident(pid):
    """Bytes of a process in memory; none where the system does not say."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def load(args):
    url = urllib.parse.urlsplit(args.url)
    address = (url.hostname, url.port or 80)
    seen = Seen()
    begin = time.monotonic()
    end = begin + 60 * args.minutes
    clients = [
        threading.Thread(target=client, args=(address, args.api_key, end, seed, seen))
        for seed in range(args.connections)
    ]
    for thread in clients:
        thread.start()
    for step in range(1, 11):
        time.sleep(max(0.0, begin + 6 * args.minutes * step - time.monotonic()))
        bytes_ = resident(args.pid) if args.pid else None
        memory = f", {bytes_ / 2**20:.1f} MiB" if bytes_ else ""
        print(f"{time.monotonic() - begin:6.0f} s: {seen.answers} answers{memory}", flush=True)
    for thread in clients:
        thread.join()
    seconds = time.monotonic() - begin
    print(f"{args.connections} connections, {seconds:.0f} s: {seen.answers} answers, {seen.left} left in the middle")
    print(f"errors: {sum(seen.errors.values())} {seen.errors or ''}")
    print(f"{seen.tokens / seconds:.1f} tokens/s in answers that were read to their end")
    print(
        f"first token of {len(seen.first)} streams: p50 {quantile(seen.first, 0.5):.3f} s, "
        f"p99 {quantile(seen.first, 0.99):.3f} s"
    )
    return 1 if seen.errors or not seen.answers else 0


def official(args):
    """OpenAI's client: chat, stream, completion, models, errors."""
    import openai

    api = openai.OpenAI(base_url=f"{args.url}/v1", api_key=args.api_key or "none", max_retries=0)
    model = api.models.list().data[0].id
    assert api.models.retrieve(model).id == model
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    fixed = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 24}
    whole = api.chat.completions.create(**fixed)
    text = whole.choices[0].message.content
    assert text and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    pieces, usage = [], None
    for chunk in api.chat.completions.create(**fixed, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        pieces += [choice.delta.content or "" for choice in chunk.choices]
    assert "".join(pieces) == text, (pieces, text)
    assert usage.completion_tokens == whole.usage.completion_tokens
    written = api.completions.create(model=model, prompt="Once upon a time", max_tokens=12, temperature=0, stop=["."])
    assert written.choices[0].text
    streamed = api.completions.create(
        model=model, prompt="Once upon a time", max_tokens=12, temperature=0, stop=["."], stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in streamed) == written.choices[0].text
    extra = api.chat.completions.create(**fixed, seed=3, extra_body={"top_k": 5, "min_p": 0.1})
    assert extra.choices[0].message.content
    for wrong, error in [
        ({"model": "another"}, openai.NotFoundError),
        ({"n": 2}, openai.BadRequestError),
        ({"logprobs": True}, openai.BadRequestError),
        ({"temperature": 9}, openai.BadRequestError),
        ({"messages": []}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "word " * 50_000}]}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "x" * 2_000_000}]}, openai.APIStatusError),
    ]:
        try:
            api.chat.completions.create(**{**fixed, **wrong})
        except error as told:
            print(f"{type(told).__name__}: {told.status_code} {told.body['message'][:80]}")
        else:
            raise AssertionError(f"{list(wrong)} was taken")
    print(f"openai {openai.__version__}: {text!r}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--api-key")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--pid", type=int, help="of the server, to watch its memory")
    parser.add_argument("--client", action="store_true", help="check with OpenAI's own client")
    args = parser.parse_args()
    sys.exit(official(args) if args.client else load(args))


if __name__ == "__main__":
    main()
