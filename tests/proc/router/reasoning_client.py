"""reasoning_client.py - compares the tokens of reasoning that responses count with the tokens themselves.

    reasoning_client.py http://127.0.0.1:8080 [INSTANCE=PID ...]

A bias leaves the model the pieces of <think> and </think> only, so that it writes marks, halves of marks and text by
chance; the bytes of each token come with its log-probability. With the engines of a router it kills the one that streams
amid reasoning. Where OpenAI's client is installed, it reads the fields, too. Run by t_reasoning_tokens.
"""

import http.client
import json
import os
import signal
import sys
import urllib.parse

PIECES = {"32": 100, "19": 98, "3713": 97, "34": 100}  # muster-tiny's <, /, think and >
BEGIN, END = b"<think>", b"</think>"
ASK = {"model": "muster-tiny", "logit_bias": PIECES, "temperature": 2}
SAY = [{"role": "user", "content": "Hi"}]
TOKENS, SEEDS = 300, 12


def post(url, path, body):
    at = urllib.parse.urlsplit(url)
    link = http.client.HTTPConnection(at.hostname, at.port, timeout=120)
    link.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    reply = link.getresponse()
    assert reply.status == 200, reply.read()
    return reply


def whole(url, path, body):
    return json.loads(post(url, path, body).read())


def events(reply):
    for line in reply:
        if line.startswith(b"data: ") and line != b"data: [DONE]\n":
            yield json.loads(line[6:])


def counted(tokens):
    """The tokens with a byte between a mark that begins reasoning and the next one that ends it, or the output's end."""
    text, spans, at = b"".join(tokens), [], 0
    while (at := text.find(BEGIN, at)) >= 0:
        end = text.find(END, at + len(BEGIN))
        spans.append((at + len(BEGIN), end if end >= 0 else len(text)))
        at = end + len(END) if end >= 0 else len(text)
    count = at = 0
    for token in tokens:
        count += any(at < end and at + len(token) > begin for begin, end in spans)
        at += len(token)
    return count


def tokens_of(choices):
    return [bytes(t["bytes"]) for c in choices for t in (c["logprobs"] or {}).get("content") or []]


def one_seed(url, seed):
    ask = {**ASK, "messages": SAY, "max_tokens": TOKENS, "seed": seed, "logprobs": True}
    reply = whole(url, "/v1/chat/completions", ask)
    want = counted(tokens_of(reply["choices"]))
    assert reply["usage"]["completion_tokens"] == TOKENS, reply["usage"]
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": want}, (seed, want, reply["usage"])
    assert bool(reply["choices"][0]["message"].get("reasoning_content")) == (want > 0), reply

    ask["stream"], ask["stream_options"] = True, {"include_usage": True}
    chunks = list(events(post(url, "/v1/chat/completions", ask)))
    assert chunks[-1]["usage"] == {**reply["usage"], "prompt_tokens_details": chunks[-1]["usage"]["prompt_tokens_details"]}

    ask = {**ASK, "input": "Hi", "max_output_tokens": TOKENS, "seed": seed}
    details = {"reasoning_tokens": want}
    assert whole(url, "/v1/responses", ask)["usage"]["output_tokens_details"] == details, seed
    last = list(events(post(url, "/v1/responses", {**ask, "stream": True})))[-1]
    assert last["response"]["usage"]["output_tokens_details"] == details, last
    return want, END in b"".join(tokens_of(reply["choices"])).partition(BEGIN)[2]


def limited(url, seed):
    """A budget changes nothing up to its end, then ends the reasoning: whole, streamed and as a response alike."""
    ask = {**ASK, "messages": SAY, "max_tokens": TOKENS, "seed": seed, "logprobs": True}
    free = tokens_of(whole(url, "/v1/chat/completions", ask)["choices"])
    for budget in (1, 7, 20):
        ask["thinking_token_budget"] = budget
        reply = whole(url, "/v1/chat/completions", ask)
        tokens = tokens_of(reply["choices"])
        want = counted(tokens)
        assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": want}, reply["usage"]
        assert max(budget - 3, 1) <= want <= budget and len(tokens) == TOKENS, (want, budget)
        same = next(i for i, (a, b) in enumerate(zip(free, tokens)) if a != b)
        assert END in b"".join(tokens[same - 3:same + 4]), (same, tokens[same - 3:same + 4])
        stream = {**ask, "stream": True, "stream_options": {"include_usage": True}}
        chunks = list(events(post(url, "/v1/chat/completions", stream)))
        assert [t for c in chunks for t in tokens_of(c["choices"])] == tokens
        response = {**ASK, "input": "Hi", "max_output_tokens": TOKENS, "seed": seed, "thinking_token_budget": budget}
        usage = whole(url, "/v1/responses", response)["usage"]
        assert usage["output_tokens_details"] == {"reasoning_tokens": want}, usage


def limited_before_a_call(url):
    """The grammar of a call that must come lets the budget end the reasoning before it."""
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {}, "additionalProperties": False}}}
    ask = {**ASK, "messages": SAY, "max_tokens": TOKENS, "seed": 1, "thinking_token_budget": 20, "tools": [tool],
           "tool_choice": "required", "parallel_tool_calls": False}
    ask["logit_bias"] = {**PIECES, "3713": 100}
    reply = whole(url, "/v1/chat/completions", ask)
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls", reply
    assert [c["function"]["name"] for c in choice["message"]["tool_calls"]] == ["f"], reply
    assert 17 <= reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= 20, reply
    assert choice["message"]["reasoning_content"] and not choice["message"]["content"], reply


def several(url, by_seed):
    ask = {**ASK, "messages": SAY, "max_tokens": TOKENS, "seed": 0, "n": 3}
    usage = whole(url, "/v1/chat/completions", ask)["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == sum(by_seed[:3]), (usage, by_seed)
    ask = {"model": "muster-tiny", "messages": SAY, "max_tokens": 4,
           "thinking": {"type": "enabled", "budget_tokens": 1024}}
    usage = whole(url, "/v1/messages", ask)["usage"]
    assert usage["output_tokens_details"] == {"thinking_tokens": 0}, usage


def by_the_official_client(url, seed, want):
    try:
        import openai
    except ImportError:
        return
    client = openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0)
    chat = client.chat.completions.create(**ASK, messages=SAY, max_tokens=TOKENS, seed=seed)
    assert chat.usage.completion_tokens_details.reasoning_tokens == want
    response = client.responses.create(model=ASK["model"], temperature=2, input="Hi", max_output_tokens=TOKENS,
                                       extra_body={"seed": seed, "logit_bias": PIECES})
    assert response.usage.output_tokens_details.reasoning_tokens == want


def killed(url, pids):
    """Reasoning that one engine began and another goes on with is counted once, whole, and keeps its budget."""
    for seed in range(4, 100):
        ask = {**ASK, "messages": SAY, "max_tokens": 400, "seed": seed, "logprobs": True}
        reply = whole(url, "/v1/chat/completions", ask)
        want = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
        if want > 200:
            break
    assert want == counted(tokens_of(reply["choices"])) > 200, want
    ask["thinking_token_budget"] = 150
    reply = whole(url, "/v1/chat/completions", ask)
    want = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert 140 < want == counted(tokens_of(reply["choices"])) <= 150, want
    stream = post(url, "/v1/chat/completions", {**ask, "stream": True, "stream_options": {"include_usage": True}})
    tokens, usage, alive = [], None, True
    for chunk in events(stream):
        usage = chunk["usage"]
        tokens += tokens_of(chunk["choices"])
        if alive and counted(tokens) > 20:
            os.kill(pids[stream.headers["x-muster-instance"]], signal.SIGKILL)
            alive = False
    assert not alive and tokens == tokens_of(reply["choices"]), (len(tokens), want)
    assert usage["completion_tokens_details"]["reasoning_tokens"] == want, (usage, want)


def main():
    url = sys.argv[1]
    if len(sys.argv) > 2:
        killed(url, {name: int(pid) for name, pid in (a.split("=") for a in sys.argv[2:])})
        return
    by_seed, ended = zip(*(one_seed(url, seed) for seed in range(SEEDS)))
    assert sum(0 < n < TOKENS for n in by_seed) >= 4 and any(ended), (by_seed, ended)
    several(url, by_seed)
    seed = max(range(SEEDS), key=by_seed.__getitem__)
    limited(url, seed)
    limited_before_a_call(url)
    by_the_official_client(url, seed, by_seed[seed])
    print(f"{url}: of {SEEDS} outputs of {TOKENS} tokens {list(by_seed)} are reasoning, {sum(ended)} end it")


main()
