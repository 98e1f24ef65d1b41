#!/usr/bin/env python3
"""make.py - what jinja2 makes of chat templates, as one JSON record a line.

The environment is the one transformers uses: immutable sandbox, trim_blocks, lstrip_blocks, loop
controls, tojson without HTML escapes, raise_exception, strftime_now, {% generation %}.

    python3 tests/vectors/template/make.py > tests/vectors/template/own.ndjson
    python3 tests/vectors/template/make.py DIR     (the templates of DIR, for t_chat_template)
"""
import datetime
import functools
import glob
import json
import os
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = 1785542400  # 2026-08-01 00:00:00 UTC

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Tell the weather's state in a city.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name of the \"city\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7.5},
        "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["city"]},
    "return": {"type": "object"}}}
TIME = {"type": "function", "function": {
    "name": "get_time", "description": "Now & <here>",
    "parameters": {"type": "object", "properties": {}, "required": []}}}

PLAIN = [{"role": "user", "content": "Hello, who are you?"}]
SYSTEM = [{"role": "system", "content": "You are a helpful assistant.\n"}] + PLAIN
TURNS = SYSTEM + [
    {"role": "assistant", "content": "I am a small model. "},
    {"role": "user", "content": "  Tell me more.\n\n"},
    {"role": "assistant", "content": "<think>\nlet me see\n</think>\n\nMore."},
    {"role": "user", "content": "Thanks!"}]
UNICODE = [
    {"role": "system", "content": "Größe ΑΣ straße 你好 🦙\u2028x\u00a0"},
    {"role": "user", "content": "кто ты? 'quote' \"double\" \\back\\ \t<|im_end|> </s> {{ x }} {% y %}"}]
CALLS = [
    {"role": "user", "content": "What is the weather in Paris?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call_0001", "type": "function", "function": {
            "name": "get_weather", "arguments": {"city": "Paris", "days": 2, "tags": ["a", "b"]}}}]},
    {"role": "tool", "tool_call_id": "call_0001", "name": "get_weather",
     "content": "{\"temperature\": 21.5, \"sky\": \"clear\"}"},
    {"role": "assistant", "content": "21.5 degrees and clear."},
    {"role": "user", "content": "And in Rome?"}]
CALLS_TEXT = [dict(m) for m in CALLS]
CALLS_TEXT[1] = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "abcdefghi", "type": "function", "function": {
        "name": "get_weather", "arguments": "{\"city\": \"Paris\", \"days\": 2}"}}]}
CALLS_TEXT[2] = dict(CALLS[2], tool_call_id="abcdefghi")
PARTS = [
    {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": [{"type": "text", "text": "What is this? "},
                                 {"type": "text", "text": "And that?"}]}]
REASON = [
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "reasoning_content": "Easy.", "content": "4"},
    {"role": "user", "content": "3+3?"}]

INPUTS = {
    "plain": dict(messages=PLAIN),
    "no_prompt": dict(messages=PLAIN, add_generation_prompt=False),
    "system": dict(messages=SYSTEM),
    "turns": dict(messages=TURNS),
    "unicode": dict(messages=UNICODE),
    "ends_with_assistant": dict(messages=TURNS[:5], add_generation_prompt=False),
    "tools": dict(messages=SYSTEM, tools=[WEATHER, TIME]),
    "tool_calls": dict(messages=CALLS, tools=[WEATHER]),
    "tool_calls_text": dict(messages=CALLS_TEXT, tools=[WEATHER]),
    "tool_result_last": dict(messages=CALLS[:3], tools=[WEATHER, TIME]),
    "parts": dict(messages=PARTS),
    "reasoning": dict(messages=REASON),
    "thinking": dict(messages=TURNS, kwargs={"enable_thinking": True, "thinking": True}),
    "no_thinking": dict(messages=TURNS, kwargs={"enable_thinking": False, "thinking": False}),
    "kwargs": dict(messages=TURNS, kwargs={
        "reasoning_effort": "high", "date_string": "26 Jul 2024", "custom_tools": None,
        "functions": [WEATHER, TIME], "datetime": "now", "xml_tools": ["a", "b"], "python_tools": ["c"],
        "builtin_tools": ["brave_search", "code_interpreter"], "documents": [
            {"title": "T1", "text": "one", "contents": "one"}, {"title": "T2", "text": "two", "contents": "two"}]}),
    "empty": dict(messages=[]),
}

# For our own templates only: values that take each kind of Python's.
VALUES = {"n": 42, "f": 2.5, "big": 9007199254740993, "tiny": 1e-7, "huge": 1.5e300, "yes": True, "no": False,
          "nothing": None, "text": "Hello World", "list": [3, 1, 2], "words": ["pear", "Apple", "fig"],
          "nested": {"b": {"c": [1, {"d": "e"}]}, "a": [], "z": {}}, "quotes": "it's \"so\"\n\t\u00e9\u200b",
          "rows": [{"name": "x", "size": 2, "on": True}, {"name": "Y", "size": 1, "on": False},
                   {"name": "z", "size": 2}],
          "lines": "one\ntwo\n\nthree", "spaces": "  a b  c ", "empty": "", "items_key": {"items": [1], "get": 2}}


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None)
    env.globals["strftime_now"] = now.strftime
    return env


@functools.lru_cache(maxsize=4)
def compiled(env, source):
    return env.from_string(source)


def record(env, template, source, name, given):
    r = {"template": template, "input": name, "source": source, "now": NOW,
         "messages": given["messages"], "tools": given.get("tools"), "kwargs": given.get("kwargs", {}),
         "add_generation_prompt": given.get("add_generation_prompt", True),
         "bos_token": "<s>", "eos_token": "</s>"}
    given = json.loads(json.dumps(r))  # templates may not share what they change
    try:
        r["output"] = compiled(env, source).render(
            **{"documents": None, **given["kwargs"], "messages": given["messages"], "tools": given["tools"],
               "add_generation_prompt": r["add_generation_prompt"],
               "bos_token": r["bos_token"], "eos_token": r["eos_token"]})
    except Raised as e:
        r["raised"] = str(e)
    except Exception as e:  # every other way to fail is one: the template does not work on this
        r["failed"] = f"{type(e).__name__}: {e}"
    return r


def put(r):
    print(json.dumps(r, ensure_ascii=False))


def main():
    env = environment()
    here = os.path.dirname(os.path.abspath(__file__))
    own = len(sys.argv) < 2
    for path in sorted(glob.glob(os.path.join(here if own else sys.argv[1], "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as f:
            source = f.read()
        name = os.path.basename(path)[:-len(".jinja")]
        if own and not name.startswith("chat_"):
            put(record(env, name, source, "values", dict(messages=TURNS, tools=[WEATHER], kwargs=VALUES)))
            continue
        for key, given in INPUTS.items():
            put(record(env, name, source, key, given))


if __name__ == "__main__":
    main()
