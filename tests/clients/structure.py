"""Samples many answers under varied schemas from `warploom serve` and validates each.

    pip install jsonschema
    python3 tests/clients/structure.py target/debug/warploom [--count 1000] [options of serve]

An answer that ends by itself must be valid; one that was cut by max_tokens is counted apart.
"""

import argparse
import concurrent.futures
import json
import time
import urllib.error
import urllib.request

import jsonschema

from served import served


def schemas():
    """Yields names and schemas, all with bounded answers."""
    text = {"type": "string", "maxLength": 12}
    yield "flat object", {"type": "object", "properties": {"name": text, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "ok": {"type": "boolean"}}, "required": ["name", "age", "ok"], "additionalProperties": False}
    yield "optional keys", {"type": "object", "properties": {"a": text, "b": {"type": "null"}, "c": {"type": "number"}}, "required": ["c"], "additionalProperties": False}
    yield "nested", {"type": "object", "properties": {"in": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}}, "required": ["x", "y"], "additionalProperties": False}}, "required": ["in"], "additionalProperties": False}
    yield "enum", {"enum": ["red", "green", 3, None, {"a": [1]}]}
    yield "const", {"const": {"fixed": [1, "two", None]}}
    yield "array", {"type": "array", "items": {"type": "integer", "minimum": -5, "maximum": 5}, "minItems": 2, "maxItems": 6}
    yield "tuple", {"type": "array", "prefixItems": [text, {"type": "integer"}], "items": False, "minItems": 2}
    yield "any of", {"anyOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"], "additionalProperties": False}, {"type": "object", "properties": {"kind": {"const": "b"}, "s": text}, "required": ["kind", "s"], "additionalProperties": False}]}
    yield "pattern", {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}
    yield "format", {"type": "object", "properties": {"d": {"type": "string", "format": "date"}, "t": {"type": "string", "format": "ipv4"}}, "required": ["d", "t"], "additionalProperties": False}
    yield "definitions", {"$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x", "y"], "additionalProperties": False}}, "type": "array", "items": {"$ref": "#/$defs/point"}, "minItems": 1, "maxItems": 2}
    yield "number range", {"type": "object", "properties": {"p": {"type": "number", "minimum": 0.25, "maximum": 0.75}, "m": {"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100}}, "required": ["p", "m"], "additionalProperties": False}
    yield "map", {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "boolean"}}, "additionalProperties": False, "minProperties": 1, "maxProperties": 2}
    yield "all of", {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}, "b": True}, "required": ["a"], "additionalProperties": False}, {"properties": {"b": {"type": "boolean"}}, "required": ["b"]}]}
    yield "tree", {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}}, "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
    yield "unicode", {"type": "string", "minLength": 1, "maxLength": 5}


PROMPTS = ["Tell me of a fox.", "Once upon a time", "List three colours.", "\u00dcber den Wolken?", "1 2 3"]


def ask(url, model, schema, seed):
    body = {
        "model": model, "seed": seed, "max_tokens": 300, "temperature": [0.3, 0.8, 1.0, 1.5, 2.0][seed % 5],
        "top_k": [0, 40][seed % 2], "top_p": 1, "min_p": 0, "messages": [{"role": "user", "content": PROMPTS[seed % len(PROMPTS)]}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }
    request = urllib.request.Request(url + "/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer = json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{json.dumps(schema)}: {error.read().decode()}")
    choice = answer["choices"][0]
    return choice["message"]["content"], choice["finish_reason"], answer["usage"]["completion_tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--count", type=int, default=1000)
    arguments, options = parser.parse_known_args()
    table = list(schemas())
    checkers = {name: jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()) for name, schema in table}
    with served(arguments.binary, "--parallel", "8", *options) as url:
        with urllib.request.urlopen(url + "/models") as models:
            model = json.load(models)["data"][0]["id"]
        begin, tokens, ended, cut = time.time(), 0, {}, 0
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            jobs = {}
            for seed in range(arguments.count):
                name, schema = table[seed % len(table)]
                jobs[pool.submit(ask, url, model, schema, seed)] = (name, seed)
            for job in concurrent.futures.as_completed(jobs):
                name, seed = jobs[job]
                text, reason, count = job.result()
                tokens += count
                if reason != "stop":
                    cut += 1
                    continue
                try:
                    checkers[name].validate(json.loads(text))
                except Exception as error:
                    raise SystemExit(f"{name}, seed {seed}: {text!r}: {error}")
                ended.setdefault(name, set()).add(text)
        seconds = time.time() - begin
        with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics") as metrics:
            lines = dict(line.rsplit(" ", 1) for line in metrics.read().decode().splitlines() if line[0] != "#")
        masks, masking = (float(lines[f"warploom:constraint_{name}"]) for name in ("masks_total", "seconds_total"))
    for name, texts in ended.items():
        print(f"{name}: {len(texts)} different answers, such as {min(texts, key=len)[:60]}")
    missing = [name for name, _ in table if name not in ended]
    assert not missing, f"no answer ended by itself: {missing}"
    print(f"{masks:.0f} masks of {1e6 * masking / masks:.0f} us, {100 * masking / seconds:.1f} % of the time; {tokens - masks:.0f} tokens were forced")
    print(f"{arguments.count - cut} answers ended and are valid, {cut} were cut; {tokens} tokens in {seconds:.0f} s")


if __name__ == "__main__":
    main()
