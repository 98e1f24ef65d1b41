"""openai_client.py - OpenAI's own Python client as a client of Muster.

    openai_client.py http://127.0.0.1:8080

Exits 77 when the package is missing, so that no check needs it. Run by t_client.
"""

import json
import sys
import typing

try:
    import openai
    import pydantic
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

SAY = [{"role": "user", "content": "Tell me a story."}]


def models(client):
    names = [m.id for m in client.models.list().data]
    assert names == ["muster-tiny"], names
    return names[0]


def whole_answers(client, model):
    chat = client.chat.completions.create(model=model, messages=SAY, max_tokens=8, temperature=0)
    assert chat.object == "chat.completion" and chat.model == model
    choice = chat.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = chat.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 1 <= usage.completion_tokens <= 8
    text = client.completions.create(model=model, prompt="Once", max_tokens=8, temperature=0)
    assert text.object == "text_completion" and isinstance(text.choices[0].text, str)
    return choice.message.content


def streams(client, model, whole):
    said, finish, usage = "", None, None
    for chunk in client.chat.completions.create(
        model=model,
        messages=SAY,
        max_tokens=8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            said += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert said == whole, (said, whole)
    assert finish in ("stop", "length") and usage.completion_tokens >= 1
    with client.chat.completions.create(model=model, messages=SAY, stream=True) as left:
        next(iter(left))  # and leaves


def errors(client, model):
    def refused(kind, **what):
        try:
            client.chat.completions.create(**{"model": model, "messages": SAY, **what})
        except kind as e:
            assert e.body["message"] and e.body["type"], e.body
            return e
        raise AssertionError(f"{what} was not refused with {kind.__name__}")

    refused(openai.NotFoundError, model="nobody")
    assert refused(openai.BadRequestError, temperature=9).param == "temperature"
    refused(openai.BadRequestError, messages=[])
    long = [{"role": "user", "content": "word " * 20000}]
    assert refused(openai.BadRequestError, messages=long).code == "context_length_exceeded"


def formats(client, model):
    """response_format, whole, streamed and by the client's own parser of pydantic models."""
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    what = {"model": model, "messages": SAY, "max_tokens": 200, "seed": 3}
    choice = client.chat.completions.create(**what, response_format=wanted).choices[0]
    person = json.loads(choice.message.content)
    assert choice.finish_reason == "stop" and set(person) == {"name", "age"} and 0 <= person["age"] <= 99, choice
    said = ""
    for chunk in client.chat.completions.create(**what, response_format=wanted, stream=True):
        said += "".join(c.delta.content or "" for c in chunk.choices)
    assert said == choice.message.content, (said, choice)
    words = client.completions.create(model=model, prompt="Is it so?", max_tokens=9, extra_body={"guided_choice": ["yes", "no"]})
    assert words.choices[0].text in ("yes", "no"), words

    class Plate(pydantic.BaseModel):
        country: typing.Literal["NL", "BE", "LU"]
        digits: typing.List[bool]
        owner: typing.Optional[int] = None

    parsed = client.chat.completions.parse(**what, response_format=Plate).choices[0]
    if parsed.finish_reason == "stop":
        assert isinstance(parsed.message.parsed, Plate), parsed
    try:
        client.chat.completions.create(**what, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"not": {}}}})
    except openai.BadRequestError as e:
        assert "#/not" in e.body["message"] and e.body["code"] == "unsupported_parameter", e.body
    else:
        raise AssertionError("an unknown keyword was not refused")


def main():
    client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=60)
    model = models(client)
    whole = whole_answers(client, model)
    streams(client, model, whole)
    errors(client, model)
    formats(client, model)
    print(f"openai {openai.__version__}: models, chat, completions, streams, errors, formats")


if __name__ == "__main__":
    main()
