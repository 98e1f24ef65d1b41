"""responses_client.py - OpenAI's own Python client uses Muster's Responses API.

    responses_client.py http://127.0.0.1:8080 [INSTANCE=PID ...]

Exits 77 when the package is missing, so that no check needs it. Run by t_responses against a router and an engine. With the
engines of a router it kills the one that streams a call, which must go on at another one.
"""

import json
import os
import signal
import sys

try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

MODEL = "muster-tiny"
SAY = "Tell me a story."
TOOL = {
    "type": "function",
    "name": "f",
    "description": "Looks something up.",
    "parameters": {
        "type": "object",
        "properties": {"x": {"enum": ["a", "b"]}},
        "required": ["x"],
        "additionalProperties": False,
    },
    "strict": True,
}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}


def streamed(client, ask):
    """-> the events of a stream, after checking their numbers and that the deltas make up what is done."""
    events = list(client.responses.create(**ask, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events))), events
    kinds = [e.type for e in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds
    assert events[0].response.status == "in_progress" and events[0].response.output == []
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds
    open_item, said = None, ""
    for e in events[2:-1]:
        if e.type == "response.output_item.added":
            assert open_item is None and e.item.status == "in_progress"
            open_item, said = e, ""
        elif e.type.endswith(".delta"):
            assert e.item_id == open_item.item.id and e.output_index == open_item.output_index
            said += e.delta
        elif e.type == "response.function_call_arguments.done":
            assert e.arguments == said
        elif e.type in ("response.output_text.done", "response.reasoning_text.done"):
            assert e.text == said
        elif e.type == "response.output_item.done":
            assert e.item.id == open_item.item.id and e.item.status in ("completed", "incomplete")
            assert e.item == events[-1].response.output[e.output_index]
            open_item = None
        else:
            assert e.type.startswith("response.content_part."), e.type
    assert open_item is None
    return events


def whole_and_streamed_are_alike(client):
    ask = dict(model=MODEL, input=SAY, instructions="Be brief.", max_output_tokens=24, temperature=0,
               metadata={"k": "v"})
    whole = client.responses.create(**ask)
    assert whole.id.startswith("resp_") and whole.object == "response" and whole.model == MODEL
    assert whole.output_text and whole.output[0].type == "message" and whole.output[0].role == "assistant"
    assert whole.status in ("completed", "incomplete")
    if whole.status == "incomplete":
        assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.instructions == "Be brief." and whole.metadata == {"k": "v"} and whole.store is False
    assert whole.max_output_tokens == 24 and whole.temperature == 0 and whole.tools == []
    final = streamed(client, ask)[-1].response
    assert final.output_text == whole.output_text and final.status == whole.status
    assert final.usage.input_tokens == whole.usage.input_tokens > 0
    assert final.usage.output_tokens == whole.usage.output_tokens > 0
    assert final.usage.total_tokens == final.usage.input_tokens + final.usage.output_tokens
    chat = client.chat.completions.create(
        model=MODEL, temperature=0, max_tokens=24,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": SAY}])
    assert chat.choices[0].message.content == whole.output_text
    assert chat.usage.prompt_tokens == whole.usage.input_tokens
    items = [{"role": "user", "content": [{"type": "input_text", "text": SAY}]}]
    again = client.responses.create(**{**ask, "input": items})
    assert again.output_text == whole.output_text


def calls_are_made_and_answered(client):
    ask = dict(model=MODEL, input=SAY, tools=[TOOL], max_output_tokens=200, parallel_tool_calls=False)
    for choice in ("required", {"type": "function", "name": "f"}):
        whole = client.responses.create(**ask, tool_choice=choice)
        events = streamed(client, dict(ask, tool_choice=choice))
        assert any(e.type == "response.function_call_arguments.delta" for e in events)
        for response in (whole, events[-1].response):
            assert response.status == "completed", response
            calls = [i for i in response.output if i.type == "function_call"]
            assert len(calls) == 1 and calls[0].name == "f", response
            assert json.loads(calls[0].arguments)["x"] in ("a", "b"), response
    assert response.tools[0].name == "f" and response.parallel_tool_calls is False
    turns = [{"role": "user", "content": SAY}, *[i.model_dump() for i in response.output],
             {"type": "function_call_output", "call_id": calls[0].call_id, "output": "7"}]
    again = client.responses.create(model=MODEL, input=turns, tools=[TOOL], tool_choice="none", max_output_tokens=8)
    assert again.usage.output_tokens > 0


def formats_bind_the_output(client):
    form = {"format": {"type": "json_schema", "name": "out", "schema": SCHEMA, "strict": True}}
    whole = client.responses.create(model=MODEL, input=SAY, text=form, max_output_tokens=100, temperature=1)
    assert json.loads(whole.output_text)["n"] in (1, 2) and whole.status == "completed", whole
    with client.responses.stream(model=MODEL, input=SAY, text=form, max_output_tokens=100, temperature=1) as stream:
        said = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        assert json.loads(said)["n"] in (1, 2) and stream.get_final_response().output_text == said


def refusals_are_the_clients_own_errors(client):
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    for error, said, ask in (
            (openai.NotFoundError, "other", {"model": "other", "input": "a"}),
            (openai.BadRequestError, "not stored", {"model": MODEL, "input": "a", "store": True}),
            (openai.BadRequestError, "not stored", {"model": MODEL, "input": "a", "previous_response_id": "resp_1"}),
            (openai.BadRequestError, "input_image", {"model": MODEL, "input": image}),
            (openai.BadRequestError, "web_search", {"model": MODEL, "input": "a", "tools": [{"type": "web_search"}]}),
            (openai.BadRequestError, "input is missing", {"model": MODEL})):
        try:
            client.responses.create(**ask)
            raise AssertionError("served")
        except error as e:
            assert said in e.body["message"], e.body


def killed(client, pids):
    """A call that one engine began is ended by another; its events are those of an engine that lives."""
    tool = {**TOOL, "parameters": {
        "type": "object", "properties": {"text": {"type": "string", "minLength": 1500, "maxLength": 1600}},
        "required": ["text"], "additionalProperties": False}}
    ask = dict(model=MODEL, input=SAY, tools=[tool], tool_choice="required", parallel_tool_calls=False,
               max_output_tokens=800, temperature=1, extra_body={"seed": 3})
    want = client.responses.create(**ask)
    raw = client.responses.with_raw_response.create(**ask, stream=True)
    events = []
    for event in raw.parse():
        events.append(event)
        if sum(e.type.endswith(".delta") for e in events) == 2 and event.type.endswith(".delta"):
            os.kill(pids[raw.headers["x-muster-instance"]], signal.SIGKILL)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    got = events[-1].response
    assert got.status == want.status == "completed" and len(got.output) == 1, (got, want)
    assert got.output[0].arguments == want.output[0].arguments and got.output[0].name == "f", (got, want)
    assert "".join(e.delta for e in events if e.type.endswith(".delta")) == got.output[0].arguments
    assert got.usage.output_tokens == want.usage.output_tokens


def main():
    url = sys.argv[1]
    client = openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0)
    if len(sys.argv) > 2:
        killed(client, {name: int(pid) for name, pid in (a.split("=") for a in sys.argv[2:])})
        return
    whole_and_streamed_are_alike(client)
    calls_are_made_and_answered(client)
    formats_bind_the_output(client)
    refusals_are_the_clients_own_errors(client)
    print(f"{url}: openai {openai.__version__} is served")


main()
