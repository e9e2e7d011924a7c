#!/usr/bin/env python3
"""Writes expressions.json: templates of one expression or a few, and what transformers renders.

    pip install transformers jinja2
    python3 tests/golden/chat/expressions.py

Each row is a template over one context. Its `text` is what the sandbox of transformers' chat templates
gives; a row where that raises has `error` in the place of a text.
"""

import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils import chat_template_utils

CONTEXT = {
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "documents": None,
    "empty": [],
    "eos_token": "</s>",
    "escapes": "a<b>&'\"\n\t\\ \u00e9\u4e2d\U0001f600\x07",
    "flag": True,
    "grid": [[3, 1], [2, 2], [1, 3]],
    "half": 0.5,
    "items": {"a": 1, "items": "own", "keys": 3},
    "lines": "one\n  two\n\nfour\r\nfive\n",
    "messages": [
        {"content": "  Hi there ", "role": "system"},
        {"content": "What is 2 + 2?", "role": "user"},
        {"content": "<think>\nadd\n</think>\n\n4.", "role": "assistant"},
        {"content": "Thanks", "name": "Ann", "role": "user"},
    ],
    "mixed": ["b", "A", "c", "B", "a"],
    "nothing": None,
    "number": -7,
    "numbers": [3, 1, 2, 3, 10],
    "people": [
        {"age": 30, "city": {"name": "Oslo"}, "name": "Bo"},
        {"age": 25, "city": {"name": "Rome"}, "name": "ann"},
        {"age": 30, "city": {"name": "oslo"}, "name": "Cy"},
    ],
    "pi": 3.14159,
    "text": "Hello, World",
    "tools": None,
    "tool": {
        "function": {
            "description": "Adds \"numbers\" <b>",
            "name": "add",
            "parameters": {
                "properties": {"x": {"type": "number"}, "y": {"enum": [1, 2.5, None, True]}},
                "required": ["x"],
                "type": "object",
            },
        },
        "type": "function",
    },
    "unicode": "\u00c4rger \u00df \u0130 \u4e2d\u6587 \U0001f600",
    "words": "the quick  brown\tfox",
}

VALUES = """
none | None | true | 1 | -1 | 1.0 | 1e20 | 1e16 | 123456789012345678 | 1e-5 | 0.0001 | 1.5e300 | 0.1 + 0.2 | 100.0 | -0.0 | 2 ** 100 | 1_000 | 0x1f | 0b101 | 0o17
'a' | "a'b" | 'a"b' | 'a\\nb' | '\\u00e9\\x41\\101\\q' | 'a' 'b' "c"
[] | [1, 'a', none, true, 1.5] | () | (1,) | (1, 2) | {} | {'a': 1, 2: none, (1, 2): [3]} | 1, 2 | [1, 2,] | ["it's", 'say "x"', "both ' and \\""]
undefined_name | [undefined_name] | undefined_name.x | undefined_name[0] | undefined_name + 'a' | undefined_name ~ 'a' | undefined_name == none | undefined_name == other_name | undefined_name() | undefined_name < 1 | -undefined_name
tools is none | tools is not none | tools | documents is none | tools is defined | not tools | tools == none | tools or 'x' | tools.x | nothing.foo | nothing[0] | nothing|length
escapes | [escapes] | unicode | [unicode] | tool | people | items
"""

OPERATORS = """
1 + 2 | 1 + 2.5 | 'a' + 'b' | [1] + [2] | (1,) + (2,) | 'a' + 1 | 1 + 'a' | [1] + (2,) | none + 1 | true + true
7 - 2 | 7 - 2.5 | 'a' - 'b' | 3 * 4 | 'ab' * 3 | 3 * 'ab' | 'ab' * -1 | [1, 2] * 2 | (1,) * 3 | 'a' * 1.5 | 'a' * 'b'
7 / 2 | 6 / 2 | -7 // 2 | 7 // -2 | 7.5 // 2 | -7.5 // 2 | 7 % 3 | -7 % 3 | 7 % -3 | -7.5 % 2 | 7.5 % -2 | 1 / 0 | 1 // 0 | 1 % 0 | 1.0 / 0
2 ** 10 | 2 ** -1 | 2 ** 0.5 | (-2) ** 2 | -2 ** 2 | 2 ** 3 ** 2 | 0 ** 0 | 10 ** 30 | 2.0 ** 3
1 ~ 2 | none ~ true | 'a' ~ [1] ~ 1.0 | 1 ~ undefined_name
-5 | +5 | -true | +'a' | -'a' | --5 | not 1 | not '' | not not 'a'
1 == 1.0 | true == 1 | 'a' == 'a' | [1] == [1.0] | [1] == (1,) | {'a': 1} == {'a': 1.0} | 'a' != 'b' | none == false | 1 < 2 | 'a' < 'b' | 'B' < 'a' | [1, 2] < [1, 3] | (1,) < (1, 2) | 1 < 'a' | none < 1 | 1 < 2 < 3 | 1 < 3 < 2 | 3 > 2 > 1 | 1 <= 1.0 | true < 2 | 9007199254740993 == 9007199254740992.0
'a' in 'abc' | 'x' in 'abc' | 1 in [1, 2] | 'a' in {'a': 1} | 1 in {'a': 1} | 'a' not in 'abc' | 1 in 'abc' | 2 in range(3) | 1.0 in range(3) | 'x' in undefined_name | [1] in {'a': 1} | none in [none] | 'role' in messages[0] | 1 in 5
1 and 2 | 0 and 2 | 1 or 2 | 0 or '' | none or 'x' | 1 and 0 or 3 | not 1 or 2 | 'a' if flag else 'b' | 'a' if not flag | ('a' if not flag) is defined | 'a' if 0 else 'b' if 0 else 'c' | 1 if true else 2 if false
(1, 2)[0] | [1, 2][-1] | [1, 2][5] | [1, 2]['a'] | 'abc'[1] | 'abc'[-1] | 'abc'[10] | {'a': 1}['a'] | {'a': 1}.a | {'a': 1}['b'] | {'a': 1}.b.c | [1, 2].0 | [[1, 2], [3]].0.1 | {1: 'x'}[1] | {1: 'x'}[true] | [1, 2][true] | [1, 2][1.0] | 'abc'['upper']() | {'a': 1}['items'] is callable
items.items() | items['items'] | items.keys is callable | items['keys'] | items.a | items | list | tool.function.name | tool['function']['parameters']['required'][0]
text[:5] | text[7:] | text[-5:] | text[::2] | text[::-1] | text[1:8:3] | text[8:1:-2] | text[100:] | text[:-100] | numbers[1:3] | numbers[::-1] | numbers[-2:] | (1, 2, 3)[1:] | range(10)[2:8:2]|list | {'a': 1}[1:] | none[1:] | text[none:3] | text['a':] | text[::0] | unicode[1:8]
messages[0].role | messages[-1].content | messages[0]['content'] | messages[1:]|length | messages.0.role | messages | messages[9] is defined | messages.role is defined
"""

FORMATTING = """
'%s:%s' % (messages[0].role, messages[1].content) | '%s' % 'a' | '%d' % 3 | '%d' % 3.9 | '%5d|%-5d|%05d' % (1, 2, 3) | '%+d % d' % (1, 2) | '%x %X %o %#x %#o' % (255, 255, 8, 255, 8) | '%e' % 12345.678 | '%.2f' % pi | '%g %g %g' % (1e10, 0.0001, 123456789.0) | '%G' % 1e-10 | '%r' % 'a' | '%r' % [1] | '%a' % unicode | '%c%c' % ('a', 98) | '%%' % () | '%s' % [1, 2] | '%s %s' % (1,) | '%s' % (1, 2) | '%(a)s' % {'a': 1} | '%(a)s %(b)03d' % {'a': 1, 'b': 2} | '%*d' % (5, 1) | '%.3s' % text | '%10.3s|' % text | '%-10s|' % text | '%s' % none | '%s' % undefined_name | '%i' % true | '%d' % 'a' | '%q' % 1 | '%' % 1 | 'a' % 1 | 'a' % {'a': 1} | 'a' % [1] | '%.0f %.0f %.0f' % (0.5, 1.5, 2.5) | '%f' % 1e15 | '%5.1f|%-8.3f|%08.2f|%+.1f' % (pi, pi, pi, pi) | '%s %%d' % 1 | '%s' % (('a', 'b'),) | '%#.3g' % 1 | '%.10d' % 42 | '%u' % 5 | '%ld' % 5
'%s-%s'|format('a', 1) | '%(x)s'|format(x=1) | '%s'|format('a', x=1) | 'a'|format | '%d%%'|format(50) | '%s'|format
'{}'.format(1) | '{} {}'.format('a', none) | '{0} {1} {0}'.format('a', 'b') | '{a} {b}'.format(a=1, b=[2]) | '{0.role} {0[content]}'.format(messages[0]) | '{a[b][0]}'.format(a={'b': [5]}) | '{{}} {}'.format(1) | '{:>5}|{:<5}|{:^5}|{:*^7}'.format(1, 2, 3, 'x') | '{:05d} {:+d} {: d}'.format(1, 2, 3) | '{:,} {:_}'.format(1234567, 1234567) | '{:,.2f}'.format(1234567.891) | '{:.3f} {:.1%} {:e} {:g}'.format(pi, half, pi, pi) | '{:x} {:X} {:o} {:b} {:#x} {:#b}'.format(255, 255, 8, 5, 255, 5) | '{:c}'.format(65) | '{!r} {!s} {!a}'.format('a', 'b', unicode) | '{:{}}|'.format('a', 5) | '{:{w}.{p}f}'.format(pi, w=8, p=2) | '{}'.format() | '{0} {}'.format(1) | '{x}'.format() | '{'.format() | '}'.format() | '{:d}'.format('a') | '{:s}'.format(1) | '{:.2}'.format('abc') | '{:.2}'.format(pi) | '{:.3}'.format(1234.5) | '{:.3}'.format(12345.0) | '{:.1}'.format(0.0) | '{:10}|{:10}|'.format('a', 1) | '{:5}'.format(true) | '{}'.format(true) | '{:>10}'.format(none) | '{0.__class__}'.format(1) | '{:=+8d}|{:<08d}|{:08.3f}'.format(5, 5, pi) | '{:n}'.format(1000) | '{:%}'.format(0.25) | '{:G}'.format(1e20) | '{:.0f}'.format(2.5) | '{:#.0f}'.format(2.0) | '{:z}'.format(1) | '{:é^5}'.format('x') | '{a}'.format_map({'a': 1}) | '{:,}'.format(-1234) | '{:_x}'.format(1048576) | '{:,x}'.format(5) | '{:.2d}'.format(5)
text.format | 'a'.format is callable
"""

FILTERS = """
-5|abs | -5.5|abs | 'a'|abs | true|abs | text|attr('upper') is callable | items|attr('a') | tool|attr('x') is defined | 'abc'|attr('__class__') is defined
numbers|batch(2)|list | numbers|batch(2, 0)|list | numbers|batch(3, 'x')|list | numbers|batch(0)|list | 'abcde'|batch(2)|list | []|batch(2)|list
'hELLO wORLD'|capitalize | 5|capitalize | ''|capitalize | unicode|capitalize | 'a'|center(5) ~ '|' | 'ab'|center(5) ~ '|' | 'ab'|center(4) ~ '|' | 'abc'|center(2) | 5|center(4) ~ '|' | 'x'|center|length
numbers|count | text|length | items|length | none|length | 5|length | undefined_name|length | unicode|length | range(5)|length | (numbers|map('string'))|length | items.items()|length
undefined_name|d('x') | none|default('x') | none|default('x', true) | ''|default('x', boolean=true) | 0|d(1) | undefined_name|default | items.zz|default(5)
{'b': 1, 'A': 2, 'c': 0}|dictsort | {'b': 1, 'A': 2}|dictsort(true) | {'b': 1, 'A': 2}|dictsort(false, 'value') | {'b': 1, 'A': 2}|dictsort(reverse=true) | {'b': 1}|dictsort(by='x') | [1]|dictsort | {'a': 1, 1: 2}|dictsort
'<a href="x">&\\'</a>'|e | '<b>'|escape|escape | '<b>'|escape|forceescape | '<b>'|safe|escape | 5|escape | '<'|escape|length | ['<'|escape] | 'a'|escape ~ '<'
100|filesizeformat | 1|filesizeformat | 1000|filesizeformat | 1234567|filesizeformat | 1234567|filesizeformat(true) | '2000'|filesizeformat | 0|filesizeformat
numbers|first | []|first | 'abc'|first | items|first | []|first is defined | (numbers|map('string'))|first | 5|first | none|first | undefined_name|first
'1.5'|float | 'x'|float | 'x'|float(2.5) | none|float | 3|float | ' 1e3 '|float | 'inf'|float | '1_0'|float | true|float | [1]|float | undefined_name|float | 'nan'|float
people|groupby('age') | people|groupby('city.name')|length | people|groupby('city.name', case_sensitive=true)|length | people|groupby('zip', default='none')|length | people|groupby('name')|map(attribute='grouper')|join
lines|indent | lines|indent(2) | lines|indent(2, true) | lines|indent(2, true, true) | lines|indent('> ') | 'a'|indent | ''|indent(first=true) | 5|indent | lines|indent(blank=true) | 'a\\n'|indent | undefined_name|indent
'42'|int | '42.9'|int | 'x'|int | 'x'|int(7) | '0x1f'|int(base=16) | '1f'|int(0, 16) | '101'|int(base=2) | 3.9|int | -3.9|int | none|int | true|int | ' 12 '|int | '1_000'|int | '0x1f'|int(base=0) | '-5'|int | '1e3'|int | [1]|int | undefined_name|int | '٣'|int | '010'|int
{'a': 1}|items|list | undefined_name|items|list | [1]|items|list | none|items|list | {'a': 1}|items is iterable
[1, 'a', none]|join | [1, 2]|join(', ') | people|join(', ', attribute='name') | 'abc'|join('-') | items|join | []|join('x') | undefined_name|join | [1]|join(2) | people|join(',', 'city.name') | none|join | ['<'|escape, '<']|join('&')
numbers|last | []|last is defined | 'abc'|last | items|last | (numbers|map('string'))|last | 'abc'|list | items|list | 5|list | none|list | range(3)|list | (1, 2)|list | undefined_name|list
'ABC'|lower | 5|lower | unicode|lower | none|lower | ['A', 'B']|map('lower')|list | people|map(attribute='name')|list | people|map(attribute='city.name')|list | people|map(attribute='zip', default='?')|list | [1, 2]|map('string')|join('+') | grid|map('sum')|list | grid|map(attribute=0)|list | grid|map(attribute='1')|list | [1]|map|list | [1]|map('nope')|list | [' a ']|map('trim')|first | ['a-b']|map('replace', '-', '+')|list | numbers|map('string') is iterable
numbers|max | mixed|max | mixed|max(true) | []|max is defined | people|max(attribute='age') | numbers|min | mixed|min | ['b', 1]|min | people|min(attribute='name')|string | 'hello'|max | {'a': 1, 'b': 0}|max
[1, 0, 2]|reject|list | [1, 2, 3]|reject('odd')|list | people|rejectattr('age', 'eq', 30)|map(attribute='name')|list | people|rejectattr('zip')|list|length | [1, 2, 3]|select('gt', 1)|list | [1, 'a']|select('string')|list | [1, 0]|select|list | people|selectattr('age', '>', 26)|map(attribute='name')|list | messages|selectattr('role', 'equalto', 'user')|list|length | messages|selectattr('name', 'defined')|list|length | people|selectattr|list | [1]|select('nope')|list | numbers|select('in', [1, 2])|list | numbers|select('divisibleby', 2)|list | messages|rejectattr('role', 'in', ['system', 'tool'])|list|length | (messages|selectattr('role', 'eq', 'user')|list)[-1].content
'aXbX'|replace('X', '-') | 'aXbX'|replace('X', '-', 1) | 'abc'|replace('', '-') | 5|replace('5', 'x') | 'a1'|replace(1, 2) | none|replace('N', 'x') | 'aa'|replace('a', 'b', count=1)
'abc'|reverse | [1, 2]|reverse|list | (1, 2)|reverse|list | items|reverse|list | 5|reverse | ''|reverse | range(3)|reverse|list
3.14159|round | 3.14159|round(2) | 2.5|round | 3.5|round | 42|round | 42|round(2) | 2.1|round(0, 'ceil') | 2.9|round(method='floor') | 2.345|round(2, 'ceil') | 42|round(0, 'floor') | 'a'|round | 1.005|round(2) | -2.5|round | 1|round(method='x') | 1e20|round(1) | true|round
'<b>'|safe | ('<b>'|safe)|upper | numbers|slice(2)|list | numbers|slice(3, 'x')|list | numbers|slice(7)|list | numbers|slice(0)|list
numbers|sort | numbers|sort(true) | mixed|sort | mixed|sort(case_sensitive=true) | people|sort(attribute='age')|map(attribute='name')|list | people|sort(attribute='age,name')|map(attribute='name')|list | people|sort(reverse=true, attribute='age')|map(attribute='name')|list | [1, 'a']|sort | 'hello'|sort | items|sort | grid|sort(attribute=1) | [none, 1]|sort | [[2, 'b'], [1, 'c'], [2, 'A']]|sort
none|string | 1.0|string | [1]|string | true|string|length | {'a': none}|string | undefined_name|string
numbers|sum | []|sum | people|sum(attribute='age') | [1.5, 2]|sum | [[1], [2]]|sum(start=[]) | ['a']|sum | numbers|sum(start=10) | ['a']|sum(start='') | [0.1, 0.2, 0.3]|sum
'hello wORLD foo-bar (x) [y] <z'|title | "it's"|title | 5|title | unicode|title
tool|tojson | tool|tojson(indent=2) | [1, 'a', none, true, 1.5]|tojson | escapes|tojson | escapes|tojson(ensure_ascii=true) | {'b': 1, 'a': [1, {'c': 2}]}|tojson(sort_keys=true) | {'b': 1}|tojson(separators=(',', ':')) | {'a': [1]}|tojson(indent='--') | undefined_name|tojson | (1, 2)|tojson | {1: 2, none: 3, true: 4, 1.5: 5}|tojson | 1e20|tojson | [[], {}]|tojson(indent=1) | range(3)|tojson | [1]|tojson(indent=0) | tool|tojson(indent=4, separators=(', ', ': ')) | {'a': 'x'}|tojson|length | ('<'|escape)|tojson | [nothing]|tojson(true) | {(1, 2): 3}|tojson | 'a'|tojson(foo=1) | {'a': 1, 2: 3}|tojson(sort_keys=true)
'  a '|trim | 'xxaxx'|trim('x') | 5|trim | '\\n\\ta'|trim | messages[0].content|trim | none|trim | 'abcba'|trim('ab')
text|truncate(9) | text|truncate(9, true) | 'foo bar baz qux'|truncate(9) | 'foo bar baz qux'|truncate(11, false, '..') | 'foo bar baz qux'|truncate(9, leeway=0) | 'foo bar baz qux'|truncate(9, true, leeway=0) | 'foo'|truncate(2) | 'foo bar'|truncate(3, leeway=0, end='') | text|truncate(2) | 5|truncate
mixed|unique|list | mixed|unique(true)|list | numbers|unique|list | people|unique(attribute='age')|map(attribute='name')|list | [1, 1.0, true, '1']|unique|list | [[1]]|unique|list
'abc'|upper | 5|upper | unicode|upper | 'a b&c/é'|urlencode | {'a b': 1, 'c': 'd/e'}|urlencode | [['a', 1]]|urlencode | 5|urlencode | 'the quick-brown fox_1'|wordcount | ''|wordcount | words|wordcount | unicode|wordcount
text|nope | text|upper|lower|title | text|lower|replace('o', '0')|length | (text|lower).upper() | -5|abs|string|length | text|upper() | text|length(1) | text|default(1, 2, 3) | text|replace('a') | text|join(d='-') | 'x'|center(width=3)
"""

TESTS = """
1 is odd | 2 is even | 2.0 is even | 'a' is odd | -1 is odd | 6 is divisibleby 3 | 6 is divisibleby(4) | 5 is divisibleby 0 | text is defined | zzz is defined | zzz is undefined | zzz is not defined | 'upper' is filter | 'nope' is filter | 'odd' is test | none is none | zzz is none | true is boolean | 1 is boolean | false is false | 0 is false | true is true | 1 is true | 1 is integer | true is integer | 1.0 is integer | 1.0 is float | 1 is float
'abc' is lower | 'aBc' is lower | '123' is lower | 5 is lower | 'ABC' is upper | 'A1' is upper | 'a' is string | 1 is string | ('a'|escape) is string | {} is mapping | [] is mapping | zzz is mapping | 1 is number | true is number | 'a' is number | 1.5 is number
'abc' is sequence | [] is sequence | () is sequence | {} is sequence | 5 is sequence | none is sequence | zzz is sequence | range(3) is sequence | items.items() is sequence | (numbers|map('string')) is sequence | 'abc' is iterable | 5 is iterable | none is iterable | zzz is iterable | {} is iterable | range is iterable | items.items() is iterable
range is callable | text is callable | text.upper is callable | zzz is callable | namespace() is callable | dict is callable | raise_exception is callable | none is sameas none | true is sameas true | true is sameas 1 | 'a' is sameas 'a' | ('<'|escape) is escaped | '<' is escaped | 1 is in [1] | 'a' is in 'abc' | 3 is in([1, 2]) | 1 is not in [1, 2]
1 is eq 1 | 1 is == 1 | 1 is equalto(1.0) | 1 is ne 2 | 2 is gt 1 | 2 is greaterthan 1 | 2 is ge 2 | 1 is lt 2 | 1 is lessthan 0 | 1 is le 1 | 'a' is gt 1 | 1 is nope | not 1 is odd | 1 is odd and 2 is even | 1 is not odd or 2 is odd | 1 + 1 is even | (1 is odd) == true | text is string and text is not mapping | 'x' is eq('x') | [1] is eq [1] | 1 is odd is even
"""

METHODS = """
'hello wORLD'.capitalize() | 'ABC'.casefold() | 'a'.center(5) ~ '|' | 'ab'.center(5, '*') | 'a'.center(5, 'xy') | 'banana'.count('a') | 'banana'.count('a', 2) | 'banana'.count('an', 0, 4) | 'abc'.count('') | 'abc'.encode() | text.endswith('World') | text.endswith(('x', 'ld')) | text.endswith('lo', 0, 5) | 'a\\tb'.expandtabs(4)
text.find('o') | text.find('o', 5) | text.find('zz') | text.rfind('o') | text.index('W') | text.index('zz') | text.rindex('l') | unicode.find('中') | text.find('') | text.find('o', -5)
'abc'.isalnum() | 'a b'.isalnum() | 'abc'.isalpha() | ''.isalpha() | unicode.isascii() | '12'.isdecimal() | '12'.isdigit() | 'a1'.isidentifier() | '1a'.isidentifier() | 'abc'.islower() | '12'.isnumeric() | 'a\\n'.isprintable() | ' \\t'.isspace() | ''.isspace() | 'Ab Cd'.istitle() | 'AB'.isupper() | 'Ärger'.isalpha() | '1'.isupper()
', '.join(['a', 'b']) | ''.join(['a', 1]) | '-'.join('abc') | ','.join(items) | 'x'.join([]) | ','.join(mixed|sort) | ','.join(messages|map(attribute='role'))
'a'.ljust(3) ~ '|' | 'a'.rjust(3, '0') | '42'.zfill(5) | '-42'.zfill(5) | '+4'.zfill(4) | 'ABC'.lower() | unicode.lower() | '  a '.lstrip() ~ '|' | 'xxa'.lstrip('x') | 'axx'.rstrip('x') | ' a '.rstrip() ~ '|' | '\\n\\n a \\n'.strip() | 'abcab'.strip('ba') | text.strip(none)
'a=b=c'.partition('=') | 'abc'.partition('=') | 'a=b=c'.rpartition('=') | 'abc'.rpartition('=') | 'abc'.partition('') | 'abc'.removeprefix('a') | 'abc'.removeprefix('x') | 'abc'.removesuffix('bc') | 'abc'.removesuffix('')
'aXbX'.replace('X', '-') | 'aXbX'.replace('X', '-', 1) | 'ab'.replace('', '.') | 'ab'.replace('a', 1) | 'aXb'.replace('X', '', 0)
words.split() | words.split(' ') | words.split(none, 1) | words.split(maxsplit=1) | 'a,b,c'.split(',', 1) | 'a,b,c'.split(sep=',') | 'a,b,c'.rsplit(',', 1) | 'a b c'.rsplit(none, 1) | ''.split() | ''.split(',') | 'abc'.split('') | ' a  b '.split() | 'a,b'.split(',')[-1] | ' a  b c '.rsplit(maxsplit=1) | ' a  b c '.split(maxsplit=0) | messages[2].content.split('</think>')[-1].lstrip('\\n')
lines.splitlines() | lines.splitlines(true) | ''.splitlines() | 'a\\r\\nb\\x0bc'.splitlines() | 'a\\n\\n'.splitlines() | text.startswith('Hello') | text.startswith(('x', 'He')) | text.startswith('W', 7) | text.startswith('') | text.startswith(1) | text.startswith(('a', 1))
'aBc'.swapcase() | "they're bill's".title() | 'abc def'.title() | 'x1y'.title() | 'abc'.translate({}) | 'abc'.upper() | unicode.upper() | 'ß'.upper() | 'ǆ'.capitalize() | 'abc'.nope() | 'abc'.upper(1) | 'abc'.__class__ | 'abc'.__class__.__mro__ | 'abc'.upper.__self__ is defined
items.get('a') | items.get('zz') | items.get('zz', 5) | items.get('zz', default=5) | items.keys()|list | {'a': 1}.keys() | {'a': 1}.values() | {'a': 1}.items() | {'a': 1}.values()|list | {'a': 1}.copy() | {'a': 1}.pop('a') | {'a': 1}.update({'b': 2}) | {'a': 1}.setdefault('b', 2) | {'a': 1}.clear is defined | {}.fromkeys([1]) | {'a': 1}.items()[0] | items.get([1])
[1, 2, 1].count(1) | [1, 2].index(2) | [1, 2].index(3) | [1].append(2) | [1].append is defined | [1].extend([2]) | [2, 1].sort() | [1].copy() | (1, 2, 1).count(1) | (1, 2).index(2) | [1].insert(0, 1) | [1].pop() | [1, 2].reverse()
5 .real | 5 .bit_length() | 1.5.is_integer() | 2.0.is_integer() | (5).numerator | 5.0.hex() | true.real | (3).nope is defined
range(3) | range(1, 10, 3)|list | range(5, 0, -2)|list | range(0)|list | range(3).start | range(1, 2, 0) | range('a') | range(1.5) | range(10)[3] | range(10)[-1] | range(3) == range(0, 3) | range(200000) | range(5)|sum | range(2, 5)|join(',')
dict(a=1, b='x') | dict([['a', 1]]) | dict({'a': 1}, b=2) | dict() | dict([1]) | dict(**{'a': 1}) | namespace(a=1).a | namespace(a=1)['a'] | namespace().b is defined | namespace({'a': 2}).a | namespace(_x=1) | joiner()() | cycler('a', 'b').next() | cycler() | lipsum is defined
raise_exception('no') | raise_exception() | strftime_now is callable | strftime_now() | strftime_now('x') | strftime_now('%Y')|length | strftime_now('%Z')|length
"""

BLOCKS = [
    "{% for x in numbers %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in numbers %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}{{ loop.previtem is defined }};{% endfor %}",
    "{% for x in numbers %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }};{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}",
    "{% for x in undefined_name %}x{% else %}none{% endfor %}",
    "{% for x in none %}x{% endfor %}",
    "{% for x in 5 %}x{% endfor %}",
    "{% for c in 'a\u00e9' %}[{{ c }}]{% endfor %}",
    "{% for k in items %}{{ k }}{% endfor %}",
    "{% for k, v in items.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in items|items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in items|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in grid %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, b, c in grid %}{{ a }}{% endfor %}",
    "{% for (a, b) in grid %}{{ a }}{{ b }}{% endfor %}",
    "{% for x in numbers if x > 1 %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for x in numbers if x is odd %}{{ loop.index }}{% endfor %}",
    "{% for x in numbers if x > 100 %}x{% else %}none{% endfor %}",
    "{% for x in numbers %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in numbers %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in numbers %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% set x = 1 %}{% for y in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=1) %}{% for y in [1, 2] %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}",
    "{% set x.y = 1 %}",
    "{% set d = {} %}{% set d.y = 1 %}",
    "{% set ns = namespace(a=1, b=2) %}{% set ns.a, ns.b = ns.b, ns.a %}{{ ns.a }}{{ ns.b }}",
    "{% set a, b = 1, 2 %}{{ b }}{{ a }}",
    "{% set a, b = [1] %}{{ b }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | replace('a', 'b') | upper %}abc{% endset %}{{ x }}",
    "{% if x is defined %}{% set y = 1 %}{% else %}{% set y = 2 %}{% endif %}{{ y }}",
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}",
    "{% if 0 %}a{% elif '' %}b{% else %}c{% endif %}",
    "{% filter upper %}abc{{ text }}{% endfilter %}",
    "{% filter replace('a', 'b')|title %}abc{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=1, a=2) }} {{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, z=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs|join(',') }}{% endmacro %}{{ m(1, *[2, 3]) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(1, **{'b': 5}) }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1], b=2) }}{{ m(*(1, 2), **{}) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}inner{% endcall %}",
    "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(a, b) m() %}{{ a }}+{{ b }}{% endcall %}",
    "{% macro m() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ 1 }}{% endmacro %}{% call m() %}x{% endcall %}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% set x = 1 %}{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(4) }}",
    "{% macro m(a=x) %}{{ a }}{% endmacro %}{% set x = 3 %}{{ m() }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}  x  {% endmacro %}{{ m()|trim }}{{ m() is string }}{{ m.name }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% for x in [1] %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% generation %}a{{ 1 }}{% endgeneration %}b",
    "{% generation %}{% set q = 1 %}{{ q }}{% endgeneration %}{{ q }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}b",
    "a {%- raw -%} {{ x }} {%- endraw -%} b",
    "a{# comment {{ x }} #}b",
    "a {#- c -#} b",
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true %}\n  b\n  {%- endif -%}\n\nc\n\n",
    "a\n  {%+ if true %}\nb{% endif +%}\nc",
    "  {% if true %}x{% endif %}  \n  y",
    "  {{ 1 }}  \n  {{- 2 -}}  \n 3",
    "  {# c #}\nx\n  {# d #}  y",
    "{{ 1 }}\n{{ 2 }}\n",
    "a\r\nb\rc\n",
    "{% set x = 'a\r\nb' %}{{ x|length }}",
    "{{ 'a}}b' }}{{ \"%}\" }}",
    "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{%if flag%}x{%endif%}",
    "{%-if flag-%} x {%-endif-%}",
    "{% if flag: %}x{% endif %}",
    "{% print 1, 2 %}",
    "{% do 1 %}",
    "{% nope %}",
    "{% if flag %}",
    "{% endif %}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ 'abc }}",
    "{{ a b }}",
    "{{ }}",
    "{% for x in %}{% endfor %}",
    "{{ x. }}",
    "{{ text|upper",
    "{# x",
    "{{ 1 }} }} %} #}",
    "{{ a ? b }}",
    "{% set true = 1 %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{{ m(1=2) }}",
    "{{ m(a=1, 2) }}",
    "{{ dict(a=1, a=2) }}",
    "{% set j = joiner('|') %}{% for x in numbers %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}",
    "{% set x = numbers|map('string') %}{{ x|join }}|{{ x|join }}",
    "{% set x = numbers|select('odd') %}{% for a in x %}{{ a }}{% endfor %}{% for a in x %}{{ a }}{% endfor %}",
    "{% set x = [1, 2]|reverse %}{{ x|first }}{{ x|list }}",
    "{% for g in people|groupby('age') %}{{ g.grouper }}:{{ g.list|length }}{{ g[0] }};{% endfor %}",
    "{% for k, l in people|groupby('city.name') %}{{ k }}{{ l|map(attribute='name')|join }};{% endfor %}",
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set sys = messages[0].content %}{% else %}{% set rest = messages %}{% endif %}{{ sys }}{{ rest|length }}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}x{% else %}y{% endif %}{% endfor %}",
    "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content.strip() + eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{% set f = text.upper %}{{ f() }}",
    "{% set loop = 5 %}{{ loop }}{% for x in [1] %}{{ loop.index }}{% endfor %}",
    "{% for x in [[1, 2], [3]] %}{% set outer = loop %}{% for y in x %}{{ outer.index }}{{ loop.index }}{% endfor %}{% endfor %}",
    "{% for m in messages if m.role != 'system' %}{{ loop.first }}{{ m.role }}{% endfor %}",
    "{{ messages|map(attribute='role')|list|tojson }}{{ messages|map(attribute='content')|map('length')|sum }}",
    "{%- for tool in [tool] %}{{- tool | tojson(indent=4) }}{{- '\\n' }}{%- endfor %}",
    "{% set x = namespace(l=[]) %}{% for m in messages %}{% set x.l = x.l + [m.role] %}{% endfor %}{{ x.l }}",
    "{% set content = messages[2].content %}{% if '</think>' in content %}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}{% endif %}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
    "{{ self }}", "{{ loop }}", "{{ caller }}", "{{ text.foo.bar }}", "{{ text.foo }}", "{{ nothing.foo }}",
    "{{ loop.index }}", "{% for x in [1] %}{{ loop.nope }}{% endfor %}",
    "{{ ''.join(['a'] * 3) }}", "{{ [text] * 2 }}", "{{ 'a,b'.split(',')|map('upper')|join(';') }}",
    "{{ ['a', 'b'][loop is defined] }}", "{{ [0, 1][flag] }}", "{{ not tools and not documents }}",
    "{{ (text|length) * 2 // 3 }}", "{{ text ~ '!' if flag else '?' }}", "{{ 1 if flag }}{{ 1 if not flag }}",
    "{{ -1 ** 2 }}", "{{ -numbers[0] }}", "{{ -numbers|first }}", "{{ +1|string + 'a' }}", "{{ 2 * 3|string }}",
    "{{ 1 < 2 == true }}", "{{ 1 == 1 in [true] }}", "{{ 'a' 'b' ~ 'c' }}", "{{ not 'a' == 'b' }}",
    "{{ 'x' is string in [true] }}", "{{ [1, 2, 3][1:][0] }}", "{{ (1, 2, 3)|last }}", "{{ {'a': 1}|list }}",
    "{{ 10 // 3 * 3 + 10 % 3 }}", "{{ 7 // 2 ** 2 }}", "{{ 5 - 3 - 1 }}", "{{ 'a' in 'b' or 'a' in 'a' }}",
]


def templates():
    for block in (VALUES, OPERATORS, FORMATTING, FILTERS, TESTS, METHODS):
        for line in filter(None, block.split("\n")):
            for expression in line.split(" | "):
                yield "{{ " + expression.strip() + " }}"
    yield from BLOCKS


def rendered(template):
    try:
        return {"text": chat_template_utils._compile_jinja_template(template).render(**CONTEXT)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def main():
    # A name may shadow one of the context's; the last one wins, as in a dict.
    rows, seen = [], set()
    for template in templates():
        result = rendered(template)
        # What prints where an object is stored has no expected text.
        if " at 0x" in result.get("text", "") or template in seen:
            continue
        seen.add(template)
        rows.append({"template": template, **result})
    made = {"transformers": transformers.__version__, "jinja2": jinja2.__version__, "context": CONTEXT, "rows": rows}
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("expressions.json"))
    out.write_text(json.dumps(made, ensure_ascii=False, indent=0, sort_keys=True) + "\n")
    texts = sum("text" in row for row in rows)
    print(f"{len(rows)} templates, {texts} with a text")


main()
