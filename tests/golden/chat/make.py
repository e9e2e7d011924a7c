#!/usr/bin/env python3
"""Writes cases.json: what Jinja2, set up as Hugging Face's library sets it up, makes of templates.

The templates use what those of Llama 3, Qwen 2.5 and 3, Gemma, Mistral, Phi-3, Zephyr, DeepSeek,
Command R and SmolLM use, one construct or family each. Needs jinja2 3.1.
"""

import datetime
import json
import pathlib

from jinja2 import ext
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

TEMPLATES = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "default system": "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "headers": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    "turns": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}{% set loop_messages = messages[1:] %}{% else %}{% set first = '' %}{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}{% if message['content'] is string %}{{ message['content'] | trim }}{% elif message['content'] is iterable %}{{ 'parts' }}{% endif %}{{ '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    "instructions": "{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content'] %}\n    {%- set loop_messages = messages[1:] %}\n{%- else %}\n    {%- set loop_messages = messages %}\n{%- endif %}\n{{- bos_token }}\n{%- for message in loop_messages %}\n    {%- if message['role'] == 'user' %}\n        {%- if loop.last and system_message is defined %}\n            {{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}\n        {%- else %}\n            {{- '[INST] ' + message['content'] + '[/INST]' }}\n        {%- endif %}\n    {%- elif message['role'] == 'assistant' %}\n        {{- ' ' + message['content'] + eos_token}}\n    {%- else %}\n        {{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}\n    {%- endif %}\n{%- endfor %}\n",
    "lines": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}\n",
    "thoughts": "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n    {%- if ns.multi_step_tool and message.role == \"user\" and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n{%- for message in messages %}\n    {%- set content = message.content if message.content is string else '' %}\n    {%- if message.role == \"assistant\" %}\n        {%- set reasoning_content = '' %}\n        {%- if message.reasoning_content is string %}\n            {%- set reasoning_content = message.reasoning_content %}\n        {%- elif '</think>' in content %}\n            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}\n        {%- endif %}\n        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}\n            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}\n        {%- else %}\n            {{- '<|im_start|>' + message.role + '\\n' + content }}\n        {%- endif %}\n        {{- '<|im_end|>\\n' }}\n    {%- else %}\n        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false %}\n        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n{%- endif %}",
    "macros": "{%- macro head(role, extra='') -%}<{{ role|upper }}{{ extra }}>{%- endmacro -%}{%- macro render(m) -%}{{ head(m.role, extra='!') if m.role == 'user' else head(m.role) }}{{ m['content'] }}{%- endmacro -%}{%- for m in messages -%}{{ render(m) }}|{%- endfor -%}{% macro wrap(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) wrap('q') %}{{ y }}!{% endcall %}",
    "json": "{{ messages | tojson }}|{{ messages | tojson(indent=2) }}|{{ {'a': 1, 'b': [true, none, 1.5], 'c': '<\u00e9\"\\n>'} | tojson }}|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}|{{ [] | tojson }}|{{ [[], {}] | tojson(indent=4) }}",
    "values": "{{ none }} {{ true }} {{ 1.0 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ 2 ** 5 }} {{ 3 * 4 }} {{ 2 * 1.5 }} {{ 'ab' * 3 }} {{ 1 + 2 * 3 - 4 }} {{ 'a' ~ 1 ~ none }} {{ [1, 'b'] }} {{ (1, 2)[1] }} {{ 'x' if false }} {{ not (1 == 1 and 2 != 2 or 3 in [3]) }} {{ 1 < 2 <= 2 }} {{ -3 }} {{ messages[-1].role }} {{ missing is defined }} {{ missing | default('d') }} {{ 'abc'[1:] }} {{ 'abc'[::-1] }} {{ [1,2,3,4][1:3] }}",
    "filters": "{{ ' a b ' | trim }}.{{ 'Ab' | lower }}.{{ 'Ab' | upper }}.{{ 'ab cd' | title }}.{{ 'aB' | capitalize }}.{{ 'abab' | replace('a', 'xx') }}.{{ [1, 2, 3] | join('-') }}.{{ messages | map(attribute='role') | join(',') }}.{{ messages | selectattr('role', 'equalto', 'user') | list | length }}.{{ messages | rejectattr('role', 'equalto', 'user') | list | length }}.{{ [3, 1, 2] | sort | join }}.{{ [1, 1, 2] | unique | list }}.{{ [1, 2] | first }}{{ [1, 2] | last }}.{{ 'a\nb\n\nc' | indent(2) }}.{{ 'a\nb' | indent(2, true) }}.{{ '7' | int + 1 }}.{{ '1.5' | float }}.{{ 3.7 | round | int }}.{{ {'b': 1, 'a': 2} | dictsort }}.{{ {'b': 1}.items() | list }}.{{ {'b': 1, 'c': 2}.keys() | list }}.{{ {'b': 1}.get('z', 'no') }}.{{ 'abc' | list }}.{{ [1, 2] | reverse | list }}.{{ range(3) | list }}.{{ 5 | string ~ 'x' }}.{{ 'x' | safe }}.{{ -2 | abs }}",
    "methods": "{{ ' a '.strip() }}.{{ 'xxaxx'.strip('x') }}.{{ 'a,b,c'.split(',') | join('+') }}.{{ 'a,b,c'.split(',', 1)[1] }}.{{ 'a,b,c'.rsplit(',', 1)[0] }}.{{ 'a b'.split() | length }}.{{ 'abc'.startswith('ab') }}.{{ 'abc'.endswith(('x', 'c')) }}.{{ 'abc'.find('c') }}.{{ 'aXa'.replace('a', 'b') }}.{{ ','.join(['a', 'b']) }}.{{ 'ab'.upper() }}.{{ 'AB'.lower() }}.{{ 'ab cd'.title() }}.{{ 'a\nb'.splitlines() | length }}.{{ 'abc'.removeprefix('a') }}.{{ 'aba'.count('a') }}.{{ 'abc'.removesuffix('c') }}",
    "loops": "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}{{ loop.first }}{{ loop.last }}{{ loop.revindex }}{% if loop.previtem is defined %}<{{ loop.previtem.role }}{% endif %}{% if not loop.last %}>{{ loop.nextitem.role }}{% endif %};{% else %}none{% endfor %}{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }},{% endfor %}{% for x in [] %}{% else %}empty{% endfor %}{% set x, y = 1, 2 %}{{ x + y }}{% with a = 3, b = 4 %}{{ a * b }}{% endwith %}",
    "blocks": "{% set block %}a{{ 1 + 1 }}{% for m in messages %}{{ m.role[0] }}{% endfor %}{% endset %}[{{ block }}]{# a comment #}{% raw %}{{ raw }} {% no %}{% endraw %}\n  {% if true %}\n  kept\n  {% endif %}\n{%+ if true %} plus{% endif %}\n{{- ' minus ' -}}\n \"quotes\" \\ 'and' {{ \"double \\\" quote\" }} {{ 'tab\\tend' }}\n",
    "training": "{% for m in messages %}{%- if m.role == 'assistant' -%}{% generation %}{{ m.content }}<e>{% endgeneration %}{%- else -%}{{ m.role }}:{{ m.content }};{%- endif -%}{% endfor %}",
    "date": "{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}Today: {{ date_string }}",
    "chains": "{{ 'a' + 'b' + 'c' ~ 1 + 2 ~ 'd' }}{% if 1 and 0 or 1 and not 0 %}yes{% endif %}{% if false %}1{% elif false %}2{% elif true %}3{% else %}4{% endif %}{{ (1 if true else 2) + (3 if false else 4) }}{{ messages[0]['content'][-1] | upper | lower }}{{ ['a', 'b', 'c'][loop_index | default(1)] }}",
}

CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello"}],
    "turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  What is 1+1? "},
        {"role": "assistant", "content": "<think>\nsum\n</think>\n\n2"},
        {"role": "user", "content": "And \u4e16\u754c \"quoted\"\n\\ next?"},
    ],
    "out of order": [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "tool", "content": "d"},
    ],
}


class Generation(ext.Extension):
    """`{% generation %}` as a block without an effect."""

    tags = {"generation"}

    def parse(self, parser):
        from jinja2 import nodes

        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def main():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime.datetime(2024, 7, 26, 13, 5, 9)
    env.globals["strftime_now"] = now.strftime
    cases = []
    for name, source in TEMPLATES.items():
        template = env.from_string(source)
        for conversation, messages in CONVERSATIONS.items():
            for answer in (True, False):
                case = {"template": name, "conversation": conversation, "answer": answer}
                try:
                    case["text"] = template.render(
                        messages=messages,
                        add_generation_prompt=answer,
                        bos_token="<s>",
                        eos_token="</s>",
                    )
                except TemplateError as error:
                    case["raises"] = error.message
                cases.append(case)
    out = {"now": 1721999109, "templates": TEMPLATES, "conversations": CONVERSATIONS, "cases": cases}
    path = pathlib.Path(__file__).parent / "cases.json"
    path.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
