"""schemas.py - asks for outputs under JSON schemas and judges them with the package jsonschema.

    schemas.py http://127.0.0.1:8080 COUNT

COUNT schemas: the hand-written ones, then random ones by seed. Every output that ends with stop must be valid;
the model is small and draws at temperature 1, so its words say nothing of the schema: the grammar alone does.
Run by t_schemas.
"""

import concurrent.futures
import json
import random
import sys
import urllib.error
import urllib.request

import jsonschema

TOKENS = 400
AT_ONCE = 8
STOP_SHARE = 0.95  # of the outputs; the others reach TOKENS inside a long text

BY_HAND = [
    {"type": "object"},
    {"type": "object", "properties": {}, "additionalProperties": False},
    {"type": ["string", "null"]},
    {"const": {"a": [1, 2.5, "x\"y", None, True]}},
    {"enum": ["red", "green", 3, False, {"k": []}]},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": False},
    {"type": "array", "items": {"type": "number", "minimum": -2.5, "exclusiveMaximum": 7}, "minItems": 2,
     "maxItems": 5},
    {"type": "integer", "minimum": -30, "maximum": 1000},
    {"type": "integer", "exclusiveMinimum": 0},
    {"type": "number", "exclusiveMinimum": 0.25, "maximum": 0.5},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "time"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "email"},
    {"type": "string", "pattern": "^[A-Z]{2}\\d{4}(-[a-z]+)?$", "title": "a plate"},
    {"type": "string", "pattern": "^\\S+\\s\"?\\W$"},
    {"type": "string", "minLength": 3, "maxLength": 12},
    {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "null"}, "maxItems": 3}]},
    {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number", "minimum": 0}},
             "required": ["kind", "r"], "additionalProperties": False},
            {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "integer"},
                                              "h": {"type": "integer"}},
             "required": ["kind", "w", "h"], "additionalProperties": False},
        ]
    },
    {
        "allOf": [
            {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
            {"properties": {"id": {"minimum": 1, "maximum": 99}, "name": {"type": "string", "maxLength": 8}},
             "required": ["name"]},
        ]
    },
    {
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
                },
                "required": ["value"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/tree",
    },
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "ab": {"type": "null"}},
        "required": ["a"],
        "additionalProperties": {"type": "boolean"},
    },
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Person",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 30, "description": "in full"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "email": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"enum": ["new", "old", "vip"]}, "maxItems": 4},
        },
        "required": ["name", "age"],
    },
]


def scalar(rng):
    kind = rng.randrange(9)
    if kind == 0:
        low = rng.randint(-200, 200)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 5000)}
    if kind == 1:
        low = rng.randint(-5000, 5000) / 100
        return {"type": "number", rng.choice(["minimum", "exclusiveMinimum"]): low,
                rng.choice(["maximum", "exclusiveMaximum"]): round(low + rng.randint(1, 9999) / 1000, 3)}
    if kind == 2:
        return {"type": "boolean"}
    if kind == 3:
        return {"type": "null"}
    if kind == 4:
        low = rng.randint(0, 6)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 20)}
    if kind == 5:
        return {"enum": rng.sample(["a", "b c", "\u00e9\u00e8", 1, 2.5, None, True, [], {"x": 1}], rng.randint(1, 5))}
    if kind == 6:
        return {"type": "string", "format": rng.choice(["date", "date-time", "uuid", "ipv4", "time"])}
    if kind == 7:
        return {"type": "string", "pattern": rng.choice(["^[a-f0-9]{4,8}$", "^(yes|no)!?$", "^[^x\"]{1,9}$",
                                                         "^\\w+ \\d{1,3}$", "^\\\\[\\D]{2}$"])}
    return {"type": rng.choice(["integer", "number"])}


def value(rng, depth):
    pick = rng.randrange(10)
    if depth == 0 or pick < 4:
        return scalar(rng)
    if pick < 6:
        low = rng.randint(0, 2)
        return {"type": "array", "items": value(rng, depth - 1), "minItems": low, "maxItems": low + rng.randint(0, 3)}
    if pick == 6:
        return {"anyOf": [value(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if pick == 7:
        return {"type": "array", "prefixItems": [value(rng, depth - 1) for _ in range(rng.randint(1, 3))],
                "items": rng.choice([False, {"type": "null"}]), "maxItems": rng.randint(3, 4)}
    names = rng.sample(["id", "name", "na", "name of it", "\u00fcber", "a\"b", "x\\y", "k", "v"], rng.randint(1, 5))
    schema = {
        "type": "object",
        "properties": {n: value(rng, depth - 1) for n in names},
        "required": [n for n in names if rng.random() < 0.6],
    }
    extra = rng.randrange(4)
    if extra < 2:
        schema["additionalProperties"] = False
    elif extra == 2:
        schema["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
    return schema


def schemas(count):
    yield from BY_HAND[:count]
    for seed in range(count - len(BY_HAND)):
        yield value(random.Random(seed), 3)


def ask(url, number, schema):
    """Returns the text and the finish reason; half of the requests are streamed, each in another way of asking."""
    body = {"messages": [{"role": "user", "content": "Tell me about the garden."}], "temperature": 1,
            "max_tokens": TOKENS, "seed": number, "stream": number % 2 == 0}
    if number % 3 == 0:
        body["guided_json"] = schema
    elif number % 3 == 1:
        body["structured_outputs"] = {"json": schema}
    else:
        body["response_format"] = {"type": "json_schema",
                                   "json_schema": {"name": "s", "strict": True, "schema": schema}}
    call = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                  {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(call, timeout=600) as reply:
            if not body["stream"]:
                choice = json.load(reply)["choices"][0]
                return choice["message"]["content"], choice["finish_reason"]
            text, finish = "", None
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
                    finish = choice["finish_reason"] or finish
            return text, finish
    except urllib.error.HTTPError as e:
        raise SystemExit(f"schema {number}: {e.code} {e.read().decode()}\n{json.dumps(schema)}")


def main(url, count):
    asked = list(schemas(count))
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    stopped = wrong = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda n: ask(url, n, asked[n]), range(len(asked))))
    for number, (text, finish) in enumerate(answers):
        if finish != "stop":
            assert finish == "length", finish
            continue
        stopped += 1
        try:
            jsonschema.Draft202012Validator(asked[number], format_checker=checker).validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as e:
            wrong += 1
            print(f"schema {number}: {str(e).splitlines()[0]}\n{json.dumps(asked[number])}\n{text}")
    print(f"{len(asked)} schemas, {stopped} outputs ended with stop, {wrong} of them not valid")
    return wrong > 0 or stopped < STOP_SHARE * len(asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
