"""Uses `warploom serve` through the unmodified Python package `anthropic`.

    pip install anthropic
    python3 tests/clients/anthropic_client.py target/debug/warploom [-m model.gguf] [more options]

Each check prints a line; the first one that fails ends the script with its reason. Small models
write nonsense, so the checks are of forms, not of sense.
"""

import json
import sys

import anthropic

from served import served

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
TIME = {"name": "get_time", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}
QUESTION = [{"role": "user", "content": "What is the weather in Rome?"}]


# Not a parameter of the package any more.
GREEDY = {"extra_body": {"temperature": 0}}


def create(client, **more):
    return client.messages.create(**{"model": client.name, "messages": QUESTION, "max_tokens": 20, **more})


def whole_and_streamed(client):
    whole = create(client, **GREEDY)
    assert [block.type for block in whole.content] == ["text"] and whole.content[0].text, whole
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.usage.output_tokens <= 20, whole
    with client.messages.stream(model=client.name, messages=QUESTION, max_tokens=20, **GREEDY) as stream:
        parts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(parts) == final.content[0].text, (parts, final)
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens, final
    total = [u.input_tokens + (u.cache_read_input_tokens or 0) for u in (whole.usage, final.usage)]
    assert total[0] == total[1], (whole.usage, final.usage)
    return f"{len(parts)} pieces, {total[0]} tokens of input, {final.usage.cache_read_input_tokens} cached"


def stop_sequence(client):
    text = create(client, **GREEDY).content[0].text
    stop = text[4:8]
    done = create(client, **GREEDY, stop_sequences=["no such text", stop])
    assert (done.stop_reason, done.stop_sequence) == ("stop_sequence", stop), done
    assert stop not in done.content[0].text, done
    return repr(stop)


def system_and_blocks(client):
    done = create(
        client,
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hello."}]}],
        metadata={"user_id": "someone"},
        thinking={"type": "disabled"},
    )
    assert done.content, done
    return done.stop_reason


def tool_round_trip(client):
    choice = {"type": "any", "disable_parallel_tool_use": True}
    done = create(client, tools=[WEATHER, TIME], tool_choice=choice, max_tokens=200)
    assert done.stop_reason == "tool_use" and len(done.content) == 1, done
    call = done.content[0]
    assert call.type == "tool_use" and call.id and call.name in ("get_weather", "get_time"), call
    messages = [
        *QUESTION,
        {"role": "assistant", "content": done.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "31 degrees"}]},
    ]
    answer = create(client, messages=messages, tools=[WEATHER, TIME], tool_choice={"type": "none"})
    assert [block.type for block in answer.content] == ["text"], answer
    return f"{call.name}({json.dumps(call.input)})"


def tool_streamed(client):
    choice = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    kinds = []
    with client.messages.stream(
        model=client.name, messages=QUESTION, max_tokens=200, tools=[TIME, WEATHER], tool_choice=choice
    ) as stream:
        kinds += [event.type for event in stream]
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use", final
    assert set(final.content[0].input) == {"city", "unit"}, final
    return f"{kinds.count('input_json')} pieces"


def counted_tokens(client):
    counted = client.messages.count_tokens(model=client.name, messages=QUESTION).input_tokens
    usage = create(client, max_tokens=1).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage)
    return f"{counted} tokens"


def errors(client):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    for kind, fields, words in [
        (anthropic.BadRequestError, {"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0].type"),
        (anthropic.BadRequestError, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        (anthropic.NotFoundError, {"model": "other"}, "other"),
    ]:
        try:
            create(client, **fields)
        except kind as error:
            assert words in error.body["error"]["message"], error
        else:
            raise AssertionError(f"not refused: {fields}")
    return "3 named"


CHECKS = [
    whole_and_streamed, stop_sequence, system_and_blocks, tool_round_trip, tool_streamed, counted_tokens, errors,
]


def main():
    binary, *options = sys.argv[1:]
    with served(binary, *options) as url:
        client = anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0, timeout=300)
        client.name = client.get("/v1/models", cast_to=object)["data"][0]["id"]
        for check in CHECKS:
            print(f"{check.__name__}: {check(client)}", flush=True)
    print(f"all {len(CHECKS)} checks passed with anthropic {anthropic.__version__}")


if __name__ == "__main__":
    main()
