"""echo_client.py - OpenAI's own Python client asks for the log-probabilities of a prompt, as OpenAI and as vLLM have them.

    echo_client.py http://127.0.0.1:8080

Exits 77 when the package is missing, so that no check needs it. Run by t_sampling against an engine and a router.
"""

import sys

try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

MODEL = "muster-tiny"
PROMPT = "Once upon a time there was a king who had a boat."


def scored(choices):
    """The parallel lists of a completion's choices, joined."""
    rows = [c.logprobs for c in choices if c.logprobs]
    return [(t, p, o) for r in rows for t, p, o in zip(r.tokens, r.token_logprobs, r.text_offset)]


def own(entry):
    """The value of the token itself, which is the first member of its entry."""
    return next(iter(entry.values()))


def prompt_logprobs(client, rows):
    what = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4, "temperature": 0}
    plain = client.completions.create(**what)
    asked = client.completions.create(**what, extra_body={"prompt_logprobs": 3}).choices[0]
    entries = asked.prompt_logprobs
    assert asked.text == plain.choices[0].text and asked.logprobs is None, asked
    assert entries[0] is None and [own(e)["logprob"] for e in entries[1:]] == [p for _, p, _ in rows[1:]], entries
    assert [own(e)["decoded_token"] for e in entries[1:]] == [t for t, _, _ in rows[1:]], entries
    for entry in entries[1:]:
        best = sorted((v["rank"], v["logprob"]) for v in entry.values() if v["rank"] is not None)
        assert [r for r, _ in best] == [1, 2, 3] and [p for _, p in best] == sorted((p for _, p in best), reverse=True), entry
        assert own(entry)["rank"] is not None or own(entry)["logprob"] <= best[-1][1], entry
        assert all(k.isdigit() and v["logprob"] <= 0 for k, v in entry.items()), entry
    both = client.completions.create(**what, logprobs=1, echo=True, n=2, extra_body={"prompt_logprobs": 0}).choices
    for choice in both:
        assert [own(e)["logprob"] for e in choice.prompt_logprobs[1:]] == [p for _, p, _ in rows[1:]], choice
        assert all(len(e) == 1 for e in choice.prompt_logprobs[1:]) and len(choice.logprobs.tokens) == len(rows) + 4, choice
        assert choice.logprobs.text_offset[1] == 0 and all(len(t or {"": 0}) <= 2 for t in choice.logprobs.top_logprobs), choice
    after = client.completions.create(**what, logprobs=1, extra_body={"prompt_logprobs": 3}).choices[0].logprobs
    assert len(after.tokens) == 4 and after.text_offset[0] == 0, after
    assert after.token_logprobs == both[0].logprobs.token_logprobs[len(rows):], after
    messages = [{"role": "user", "content": "Who rules the garden?"}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4, logprobs=True,
                                          extra_body={"prompt_logprobs": 2})
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens and chat.prompt_logprobs[0] is None, chat
    assert 1 <= len(chat.choices[0].logprobs.content) <= 4 and not chat.choices[0].logprobs.content[0].top_logprobs, chat
    for more, says in ({"stream": True}, "not sent in a stream"), ({"extra_body": {"prompt_logprobs": 21}}, "outside 0..20"):
        try:
            client.completions.create(**what, **({"extra_body": {"prompt_logprobs": 1}} | more))
            raise AssertionError("served")
        except openai.BadRequestError as e:
            assert says in e.body["message"], e.body


def main():
    url = sys.argv[1]
    client = openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0)
    what = {"model": MODEL, "prompt": PROMPT, "echo": True, "logprobs": 2, "temperature": 0}
    alone = client.completions.create(**what, max_tokens=0)
    rows = scored(alone.choices)
    assert alone.choices[0].text == PROMPT and alone.usage.completion_tokens == 0, alone
    assert rows[0][1] is None and all(p <= 0 for _, p, _ in rows[1:]), rows
    assert "".join(t for t, _, _ in rows[1:]) == PROMPT, rows  # the first is the mark of the beginning
    assert len(rows) == alone.usage.prompt_tokens
    whole = client.completions.create(**what, max_tokens=8)
    assert scored(whole.choices)[: len(rows)] == rows
    assert len(scored(whole.choices)) == len(rows) + 8
    streamed = [c for e in client.completions.create(**what, max_tokens=8, stream=True) for c in e.choices]
    assert scored(streamed) == scored(whole.choices)
    assert "".join(c.text for c in streamed) == whole.choices[0].text
    try:
        client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=0)
        raise AssertionError("served")
    except openai.BadRequestError as e:
        assert "needs echo" in e.body["message"], e.body
    prompt_logprobs(client, rows)
    print(f"{url}: openai {openai.__version__} is served")


main()
