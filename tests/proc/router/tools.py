"""tools.py - calls tools through a router with OpenAI's own Python client, and judges the calls with jsonschema.

    tools.py http://127.0.0.1:8080 COUNT
    tools.py http://127.0.0.1:8080 INSTANCE=PID INSTANCE=PID

The engines write calls as Hermes does. The model is small and was never shown a tool, so the grammar alone makes
the calls. The second form kills the engine that answers amid a call, which must go on at the other one. Run by t_tools.
"""

import json
import os
import random
import signal
import sys

import jsonschema
import openai
import schemas

SAY = [{"role": "user", "content": "Tell me about the garden."}]
TOKENS = 400


def tool(name, schema, **more):
    return {"type": "function", "function": {"name": name, "description": "does " + name, "parameters": schema, **more}}


def arguments_schema(seed):
    rng = random.Random(seed)
    names = rng.sample(["city", "days", "k", "name of it"], rng.randint(1, 3))
    return {"type": "object", "properties": {n: schemas.value(rng, 2) for n in names}, "required": names[:1],
            "additionalProperties": False}


def gather(stream):
    """Joins the deltas of a stream to (content, reasoning, calls, finish)."""
    content, calls, finish = "", [], None
    for chunk in stream:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for part in choice.delta.tool_calls or []:
                if part.index == len(calls):
                    assert part.id and part.type == "function" and part.function.name, part
                    calls.append([part.id, part.function.name, ""])
                assert part.index == len(calls) - 1, (part, calls)
                calls[-1][2] += part.function.arguments or ""
    return content, calls, finish


def of_whole(choice):
    calls = [[c.id, c.function.name, c.function.arguments] for c in choice.message.tool_calls or []]
    return choice.message.content or "", calls, choice.finish_reason


def forced(client, model, count):
    """`required` and a named tool: every call that is whole is valid, whole and streamed alike."""
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    called = 0
    for seed in range(count):
        by_name = {"first": arguments_schema(2 * seed), "second_one": arguments_schema(2 * seed + 1)}
        what = {"model": model, "messages": SAY, "max_tokens": TOKENS, "seed": seed, "temperature": 1,
                "tools": [tool(n, s) for n, s in by_name.items()], "parallel_tool_calls": seed % 2 == 0,
                "tool_choice": "required" if seed % 3 else {"type": "function", "function": {"name": "second_one"}}}
        whole = of_whole(client.chat.completions.create(**what).choices[0])
        streamed = gather(client.chat.completions.create(**what, stream=True))
        assert [c[1:] for c in whole[1]] == [c[1:] for c in streamed[1]], (whole, streamed)
        assert whole[0] == streamed[0] and whole[2] == streamed[2], (whole, streamed)
        content, calls, finish = whole
        assert finish in ("tool_calls", "length"), whole
        assert not content or finish == "length", whole  # a call that was cut before its name
        assert len(calls) == 1 or what["parallel_tool_calls"], whole
        for number, (_, name, arguments) in enumerate(calls):
            if finish == "length" and number == len(calls) - 1 and not content:
                break  # cut by max_tokens
            assert seed % 3 or name == "second_one", whole
            jsonschema.Draft202012Validator(by_name[name], format_checker=checker).validate(json.loads(arguments))
            called += 1
    return called


def free(client, model):
    """auto and none, a conversation that goes on behind a call, and what is refused."""
    tools = [tool("get_weather", {"type": "object", "properties": {"city": {"type": "string"}}}, strict=True)]
    what = {"model": model, "messages": SAY, "max_tokens": 20, "seed": 1, "temperature": 0}
    plain = client.chat.completions.create(**what).choices[0].message.content
    for choice in ("auto", "none"):
        got = of_whole(client.chat.completions.create(**what, tools=tools, tool_choice=choice).choices[0])
        assert got[0] == plain and not got[1], (got, plain)  # the template does not show the tools
        assert gather(client.chat.completions.create(**what, tools=tools, tool_choice=choice, stream=True))[0] == plain
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    more = SAY + [{"role": "assistant", "content": "", "tool_calls": [call]},
                  {"role": "tool", "tool_call_id": "abcdefghi", "content": "snow"}]
    assert client.chat.completions.create(**{**what, "messages": more}, tools=tools).choices[0].message.content

    def refused(word, **bad):
        try:
            client.chat.completions.create(**{**what, **bad})
        except openai.BadRequestError as e:
            assert word in e.body["message"], e.body
        else:
            raise AssertionError(f"{bad} was not refused")

    refused("there are no tools", tool_choice="required")
    refused("no tool other", tools=tools, tool_choice={"type": "function", "function": {"name": "other"}})
    refused("#/not", tools=[tool("f", {"type": "object", "not": {}})], tool_choice="required")
    refused("a name has", tools=[tool("a b", {"type": "object"})])
    refused("binds the whole output", tools=tools, response_format={"type": "json_object"})


def structural_tags(client, model):
    """response_format structural_tag: in the form of vLLM, and in xgrammar's."""
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"],
              "additionalProperties": False}
    frame = {"begin": "<f>", "end": "</f>"}
    tag = {"type": "tag", **frame, "content": {"type": "json_schema", "json_schema": schema}}
    for what in (
        {"type": "structural_tag", "format": {"type": "sequence", "elements": [
            {"type": "const_string", "value": "So: "}, tag]}},
        {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f"], "tags": [tag],
                                              "at_least_one": True, "stop_after_first": True}},
    ):
        text = client.chat.completions.create(model=model, messages=SAY, max_tokens=60, temperature=1, seed=5,
                                              extra_body={"response_format": what}).choices[0].message.content
        inside = text.removeprefix("So: ").removeprefix("<f>").removesuffix("</f>")
        assert "<f>" in text and 0 <= json.loads(inside)["n"] <= 9, text
    old = {"type": "structural_tag", "structures": [{**frame, "schema": schema}], "triggers": ["<f"]}
    assert client.chat.completions.create(model=model, messages=SAY, max_tokens=9, extra_body={"response_format": old})


def killed(client, model, pids):
    """A call that was begun by one engine is ended by the other, and is the call of an engine that lives."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1500, "maxLength": 1600}},
              "required": ["text"], "additionalProperties": False}
    what = {"model": model, "messages": SAY, "max_tokens": 800, "seed": 3, "temperature": 1,
            "tools": [tool("write", schema)], "tool_choice": "required", "parallel_tool_calls": False}
    want = of_whole(client.chat.completions.create(**what).choices[0])
    raw = client.chat.completions.with_raw_response.create(**what, stream=True)
    instance = raw.headers["x-muster-instance"]

    def kill_first(stream):
        for number, chunk in enumerate(stream):
            if number == 1:
                os.kill(pids[instance], signal.SIGKILL)
            yield chunk

    got = gather(kill_first(raw.parse()))
    assert [c[1:] for c in got[1]] == [c[1:] for c in want[1]] and got[2] == want[2], (got, want)
    assert want[1][0][1] == "write" and len(want[1]) == 1 and not want[0], want


def main():
    url = sys.argv[1]
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
    model = client.models.list().data[0].id
    if len(sys.argv) > 3:
        killed(client, model, {name: int(pid) for name, pid in (a.split("=") for a in sys.argv[2:])})
        return
    count = int(sys.argv[2])
    called = forced(client, model, count)
    free(client, model)
    structural_tags(client, model)
    print(f"{count} pairs of schemas, {called} calls, all valid")
    assert called >= count * 0.8, called


if __name__ == "__main__":
    main()
