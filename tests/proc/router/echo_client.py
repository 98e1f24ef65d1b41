"""echo_client.py - OpenAI's own Python client asks for the log-probabilities of a prompt.

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
    print(f"{url}: openai {openai.__version__} is served")


main()
