"""messages_client.py - Anthropic's own Python client as a client of Muster.

    messages_client.py http://127.0.0.1:8080

Exits 77 when the package is missing, so that no check needs it. Run by t_messages against a router and an engine.
"""

import sys

try:
    import anthropic
except ImportError:
    print("skipped: the Python package anthropic is not installed")
    sys.exit(77)

MODEL = "muster-tiny"
SAY = [{"role": "user", "content": "Tell me a story."}]
TOOL = {
    "name": "f",
    "description": "Looks something up.",
    "input_schema": {
        "type": "object",
        "properties": {"x": {"enum": ["a", "b"]}},
        "required": ["x"],
        "additionalProperties": False,
    },
}


def whole_and_streamed_are_alike(client):
    ask = dict(model=MODEL, messages=SAY, system="Be brief.", max_tokens=24, extra_body={"temperature": 0})
    whole = client.messages.create(**ask)
    assert whole.type == "message" and whole.role == "assistant" and whole.model == MODEL
    assert whole.id.startswith("msg_") and whole.content[0].type == "text" and whole.content[0].text
    assert whole.stop_reason in ("end_turn", "max_tokens")
    with client.messages.stream(**ask) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens > 0

    def prompt(usage):
        return usage.input_tokens + usage.cache_read_input_tokens

    count = client.messages.count_tokens(model=MODEL, messages=SAY, system="Be brief.")
    assert prompt(final.usage) == prompt(whole.usage) == count.input_tokens > 0
    return whole.content[0].text


def stop_sequences_are_named(client, text):
    stop = text[3:6]
    ask = dict(model=MODEL, messages=SAY, system="Be brief.", max_tokens=24, stop_sequences=["never there", stop],
               extra_body={"temperature": 0})
    whole = client.messages.create(**ask)
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", stop), whole
    with client.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", stop), final
    said = ["".join(b.text for b in message.content) for message in (whole, final)]
    assert said[0] == said[1] == text[: text.index(stop)], said


def calls_are_forced_and_answered(client):
    ask = dict(model=MODEL, messages=SAY, tools=[TOOL], max_tokens=200)
    one = {"disable_parallel_tool_use": True}
    for choice in ({"type": "any", **one}, {"type": "tool", "name": "f", **one}):
        whole = client.messages.create(**ask, tool_choice=choice)
        with client.messages.stream(**ask, tool_choice=choice) as stream:
            final = stream.get_final_message()
        for message in (whole, final):
            assert message.stop_reason == "tool_use", message
            calls = [b for b in message.content if b.type == "tool_use"]
            assert calls and all(c.name == "f" and c.input["x"] in ("a", "b") for c in calls), message
    result = {"type": "tool_result", "tool_use_id": calls[0].id, "content": "7"}
    turns = SAY + [{"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
    again = client.messages.create(model=MODEL, messages=turns, tools=[TOOL], max_tokens=8)
    assert again.type == "message"


def refusals_are_the_clients_own_errors(client, url):
    try:
        client.messages.create(model="other", messages=SAY, max_tokens=1)
        raise AssertionError("served")
    except anthropic.NotFoundError as e:
        assert e.body["error"]["type"] == "not_found_error", e.body
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    try:
        client.messages.create(model=MODEL, messages=[{"role": "user", "content": [image]}], max_tokens=1)
        raise AssertionError("served")
    except anthropic.BadRequestError as e:
        assert "image" in e.body["error"]["message"], e.body


def main():
    url = sys.argv[1]
    client = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)
    text = whole_and_streamed_are_alike(client)
    stop_sequences_are_named(client, text)
    calls_are_forced_and_answered(client)
    refusals_are_the_clients_own_errors(client, url)
    print(f"{url}: anthropic {anthropic.__version__} is served")


main()
