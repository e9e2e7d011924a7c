"""Uses `warploom serve` through the unmodified Python package `openai`.

    pip install openai pydantic
    python3 tests/clients/openai_client.py target/debug/warploom [-m model.gguf] [more options]

Each check prints a line; the first one that fails ends the script with its reason. Small models
write nonsense, so the checks are of forms, not of sense.
"""

import json
import math
import sys
from typing import Literal

import openai
import pydantic

from served import served

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
TIME = {
    "type": "function",
    "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
}
QUESTION = [{"role": "user", "content": "What is the weather in Rome?"}]


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=12)
    legs: int = pydantic.Field(ge=0, le=100)
    kind: Literal["bird", "fish", "mammal"]
    tags: list[Literal["big", "small"]] = pydantic.Field(max_length=3)


def check_call(call, names):
    assert call.type == "function" and call.id, call
    assert call.function.name in names, call
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city", "unit"}, arguments
        assert arguments["unit"] in ("celsius", "fahrenheit"), arguments
    else:
        assert arguments == {}, arguments
    return arguments


def chat(client, **more):
    return client.chat.completions.create(**{"model": client.name, "messages": QUESTION, "seed": 1, **more})


def whole_and_streamed(client):
    whole = chat(client, max_tokens=20, temperature=0)
    text = whole.choices[0].message.content
    assert text and whole.usage.completion_tokens <= 20, whole
    stream = chat(client, max_tokens=20, temperature=0, stream=True, stream_options={"include_usage": True})
    parts, usage = [], None
    for chunk in stream:
        usage = chunk.usage or usage
        parts += [choice.delta.content or "" for choice in chunk.choices]
    assert usage.total_tokens == whole.usage.total_tokens, usage
    return f"{len(text)} characters, {len(parts)} chunks"


def several_answers(client):
    answers = chat(client, n=3, max_tokens=8, temperature=1.2).choices
    assert [answer.index for answer in answers] == [0, 1, 2], answers
    texts = ["", "", ""]
    for chunk in chat(client, n=3, max_tokens=8, temperature=1.2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    # Not always the same texts: with int8, the order of sums depends on what runs together.
    assert all(texts) and all(answer.message.content for answer in answers), (texts, answers)
    return f"{len(set(texts))} different texts of 3"


def schema(client):
    legs = []
    for seed in range(4):
        done = client.chat.completions.parse(
            model=client.name, messages=QUESTION, response_format=Animal, max_tokens=300, seed=seed, temperature=1.0
        )
        assert done.choices[0].finish_reason == "stop", done
        animal = done.choices[0].message.parsed
        assert isinstance(animal, Animal), done
        legs.append(animal.legs)
    return f"pydantic parsed 4 answers, legs {legs}"


def json_object(client):
    done = chat(client, response_format={"type": "json_object"}, max_tokens=120, logit_bias={})
    choice = done.choices[0]
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict), choice
    else:
        assert choice.message.content.lstrip().startswith("{"), choice
    return choice.finish_reason


def required_call(client):
    done = chat(client, tools=[WEATHER, TIME], tool_choice="required", parallel_tool_calls=False, max_tokens=200)
    choice = done.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    assert choice.message.content is None and len(choice.message.tool_calls) == 1, choice
    call = choice.message.tool_calls[0]
    check_call(call, {"get_weather", "get_time"})
    # The result goes back, and the model answers.
    messages = [*QUESTION, choice.message, {"role": "tool", "tool_call_id": call.id, "content": "31 degrees"}]
    answer = chat(client, messages=messages, tools=[WEATHER, TIME], tool_choice="none", max_tokens=12)
    assert answer.choices[0].message.content, answer
    assert answer.choices[0].message.tool_calls is None, answer
    return f"{call.function.name}({call.function.arguments})"


def named_call_streamed(client):
    choice = {"type": "function", "function": {"name": "get_weather"}}
    stream = chat(client, tools=[TIME, WEATHER], tool_choice=choice, parallel_tool_calls=False, stream=True, max_tokens=200)
    name, arguments, pieces, reason, ids = "", "", 0, None, []
    for chunk in stream:
        for part in chunk.choices:
            reason = part.finish_reason or reason
            assert not part.delta.content, part
            for call in part.delta.tool_calls or []:
                assert call.index == 0, call
                ids += [call.id] if call.id else []
                name += call.function.name or ""
                arguments += call.function.arguments or ""
                pieces += 1
    assert (name, reason, len(ids)) == ("get_weather", "tool_calls", 1), (name, reason, ids)
    assert set(json.loads(arguments)) == {"city", "unit"}, arguments
    return f"{pieces} pieces"


def free_choice(client):
    reasons = set()
    for seed in range(3):
        done = chat(client, tools=[WEATHER, TIME], seed=seed, max_tokens=60)
        choice = done.choices[0]
        for call in choice.message.tool_calls or []:
            if choice.finish_reason == "tool_calls":
                check_call(call, {"get_weather", "get_time"})
        reasons.add(choice.finish_reason)
    return ", ".join(sorted(reasons))


def log_probabilities(client):
    # The default of the command is a repetition penalty, which the log probabilities do not include.
    plain = {"repetition_penalty": 1}
    done = chat(client, logprobs=True, top_logprobs=3, max_tokens=6, temperature=0, extra_body=plain)
    entries = done.choices[0].logprobs.content
    assert entries and len(entries) <= 6, done
    for entry in entries:
        tops = [top.logprob for top in entry.top_logprobs]
        assert len(tops) == 3 and tops == sorted(tops, reverse=True), entry
        # Greedy: the chosen token is the most probable one.
        assert math.isclose(entry.logprob, tops[0], abs_tol=1e-5) and entry.logprob <= 0, entry
        assert sum(math.exp(value) for value in tops) <= 1.0001, entry
    text = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
    assert text.startswith(done.choices[0].message.content[:3]), (text, done)
    streamed = []
    for chunk in chat(
        client, logprobs=True, top_logprobs=3, max_tokens=6, temperature=0, stream=True, extra_body=plain
    ):
        for choice in chunk.choices:
            streamed += choice.logprobs.content if choice.logprobs else []
    assert [entry.token for entry in streamed] == [entry.token for entry in entries], streamed
    return f"{len(entries)} tokens"


def completions(client):
    done = client.completions.create(
        model=client.name, prompt=["Once upon", "The sun"], max_tokens=4, echo=True, temperature=0
    )
    assert [choice.index for choice in done.choices] == [0, 1], done
    assert done.choices[0].text.startswith("Once upon") and done.choices[1].text.startswith("The sun"), done
    done = client.completions.create(model=client.name, prompt="Once upon", max_tokens=4, logprobs=2, temperature=0)
    found = done.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) <= 4, found
    assert all(len(top) <= 2 for top in found.top_logprobs), found
    return repr(done.choices[0].text)


def biases_and_penalties(client):
    first = chat(client, logprobs=True, max_tokens=1, temperature=0).choices[0]
    token = client.post_json("/tokenize", {"content": first.logprobs.content[0].token, "add_special_tokens": False})
    banned = str(token["tokens"][0])
    other = chat(client, logit_bias={banned: -100}, max_tokens=1, temperature=0).choices[0]
    assert other.message.content != first.message.content, (first, other)
    done = chat(client, frequency_penalty=2, presence_penalty=2, max_tokens=16, temperature=0)
    assert done.usage.completion_tokens <= 16, done
    done = chat(client, extra_body={"ignore_eos": True}, max_tokens=40, temperature=0)
    assert done.usage.completion_tokens == 40, done
    return f"without {first.message.content!r}: {other.message.content!r}"


def refusals(client):
    for fields, words in [
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "uniqueItems"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}], "tool_choice": "required"}, "tools[0].function.parameters"),
        ({"extra_body": {"guided_json": {}}}, "guided_json"),
    ]:
        try:
            chat(client, **fields)
        except openai.BadRequestError as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"not refused: {fields}")
    return "3 named"


def response(client, **more):
    return client.responses.create(**{"model": client.name, "input": "What is the weather in Rome?", **more})


def responses(client):
    whole = response(client, max_output_tokens=20, temperature=0, instructions="Be brief.")
    assert whole.output_text and whole.status in ("completed", "incomplete"), whole
    assert whole.usage.output_tokens <= 20 and whole.instructions == "Be brief.", whole
    text, final = "", None
    with client.responses.stream(
        model=client.name, input="What is the weather in Rome?", max_output_tokens=20, temperature=0
    ) as stream:
        for event in stream:
            text += event.delta if event.type == "response.output_text.delta" else ""
            final = event.response if event.type in ("response.completed", "response.incomplete") else final
    assert text == final.output_text, (text, final)
    done = client.responses.parse(
        model=client.name, input="An animal.", text_format=Animal, max_output_tokens=300, temperature=1.0
    )
    assert isinstance(done.output_parsed, Animal), done
    return f"{len(text)} characters, {done.output_parsed.legs} legs"


def responses_call(client):
    tools = [{"type": "function", "strict": True, **tool["function"]} for tool in (WEATHER, TIME)]
    done = response(client, tools=tools, tool_choice="required", parallel_tool_calls=False, max_output_tokens=200)
    call = done.output[0]
    assert call.type == "function_call" and call.name in ("get_weather", "get_time"), done
    history = [
        {"role": "user", "content": "What is the weather in Rome?"}, *done.output,
        {"type": "function_call_output", "call_id": call.call_id, "output": "31 degrees"},
    ]
    answer = response(client, input=history, tools=tools, tool_choice="none", max_output_tokens=12)
    assert answer.output_text, answer
    try:
        response(client, previous_response_id=done.id)
    except openai.BadRequestError as error:
        assert "previous_response_id" in str(error), error
    else:
        raise AssertionError("previous_response_id is not refused")
    return f"{call.name}({call.arguments})"


CHECKS = [
    whole_and_streamed, several_answers, schema, json_object, required_call, named_call_streamed, free_choice,
    log_probabilities, completions, biases_and_penalties, refusals, responses,
    responses_call,
]


def main():
    binary, *options = sys.argv[1:]
    with served(binary, *options) as url:
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=300)
        client.name = client.models.list().data[0].id
        client.post_json = lambda path, body: client.post(
            url.removesuffix("/v1") + path, cast_to=object, body=body
        )
        for check in CHECKS:
            print(f"{check.__name__}: {check(client)}", flush=True)
    print(f"all {len(CHECKS)} checks passed with openai {openai.__version__}")


if __name__ == "__main__":
    main()
