#!/usr/bin/env python3
"""Renders chat templates of others by transformers, for the test `real_templates_give_what_transformers_gives`.

    pip install transformers jinja2
    git clone https://github.com/chujiezheng/chat_templates
    git clone https://github.com/axolotl-ai-cloud/axolotl
    python3 tests/golden/chat/real.py MODELS/chat_templates.json chat_templates axolotl

MODELS is a folder of WARPLOOM_TEST_MODELS. The templates are not part of this repository: they belong
to the makers of the models.
"""

import datetime
import json
import pathlib
import sys

from transformers.utils import chat_template_utils

NOW = 1753267200


class Fixed(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)


chat_template_utils.datetime = Fixed

CONVERSATIONS = {
    "one": [{"role": "user", "content": "Hello"}],
    "turns": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  What is 1+1? "},
        {"role": "assistant", "content": "<think>\nsum\n</think>\n\n2"},
        {"role": "user", "content": "And \u4e16\u754c \"quoted\"\n\\ next?"},
    ],
    "no system": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ],
    "out of order": [
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c"},
        {"role": "tool", "content": "d"},
    ],
    "answered": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
    ],
}
TOOLS = [{"function": {"description": "Adds", "name": "add", "parameters": {
    "properties": {"x": {"description": "one", "type": "number"}, "y": {"enum": ["a", "b"], "type": "string"}},
    "required": ["x"], "type": "object"}}, "type": "function"}]


def main(out, folders):
    rows, count = [], 0
    for path in sorted(path for folder in folders for path in pathlib.Path(folder).rglob("*.jinja")):
        if "chat_templates" not in str(path):
            continue
        count += 1
        source = path.read_text()
        for name, messages in CONVERSATIONS.items():
            for answer in (True, False):
                for tools in (None, TOOLS):
                    # Keys in order, as the test's reader has them.
                    messages = json.loads(json.dumps(messages, sort_keys=True))
                    context = dict(messages=messages, tools=tools, documents=None, add_generation_prompt=answer,
                                   bos_token="<s>", eos_token="</s>")
                    row = dict(name=f"{path.name}, {name}", template=source, context=context)
                    try:
                        row["text"] = chat_template_utils._compile_jinja_template(source).render(**context)
                    except Exception as error:
                        row["error"] = f"{type(error).__name__}: {error}"[:200]
                    rows.append(row)
    pathlib.Path(out).write_text(json.dumps(dict(now=NOW, rows=rows)))
    print(f"{count} templates, {len(rows)} renders, {sum('text' in row for row in rows)} with a text")


main(sys.argv[1], sys.argv[2:])
