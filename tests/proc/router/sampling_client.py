"""sampling_client.py - what a client may ask of sampling, asked of an engine and of a router before it.

    sampling_client.py http://ENGINE http://ROUTER

Run by t_sampling from the checkout's root. The reference for log-probabilities are the stored logits of
tests/vectors/model, which float64 arithmetic of another program made (tests/models/reference.py).
"""

import json
import math
import struct
import sys
import urllib.error
import urllib.request


def post(base, path, body):
    """The status and the reply: JSON, or the list of a stream's events."""
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            text = reply.read().decode()
            if not reply.headers["content-type"].startswith("text/event-stream"):
                return reply.status, json.loads(text)
            events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
            assert events[-1] == "[DONE]", events[-1]
            return reply.status, [json.loads(e) for e in events[:-1]]
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def ask(base, path, **body):
    status, reply = post(base, path, body)
    assert status == 200, reply
    return reply


def complete(base, **body):
    return ask(base, "/v1/completions", **body)


def chat(base, **body):
    body.setdefault("messages", [{"role": "user", "content": "Tell me of the sea."}])
    return ask(base, "/v1/chat/completions", **body)


def refused(base, path, param, words, **body):
    if "chat" in path:
        body.setdefault("messages", [{"role": "user", "content": "hi"}])
    status, reply = post(base, path, body)
    assert status == 400, (body, status, reply)
    error = reply["error"]
    assert error["param"] == param and words in error["message"], (body, error)


def pieces(events, index=0):
    """The choices of one index in a stream's events."""
    return [c for e in events for c in e["choices"] if c["index"] == index]


# ---- log-probabilities ----


def vectors():
    """(ids up to a position, logits behind it) of every stored vector."""
    blob = open("tests/vectors/model/logits.bin", "rb").read()
    vocab, ids, found = 0, [], []
    for line in open("tests/vectors/model/logits.txt"):
        word, *rest = line.split()
        if word == "vocab":
            vocab = int(rest[0])
        elif word == "ids":
            ids = [int(i) for i in rest]
        elif word == "logits":
            at, offset = int(rest[0]), int(rest[1])
            found.append((ids[: at + 1], struct.unpack_from(f"<{vocab}f", blob, offset)))
    return found


def log_softmax(logits):
    top = max(logits)
    base = top + math.log(math.fsum(math.exp(x - top) for x in logits))
    return [x - base for x in logits]


def shown(base, ident):
    return ask(base, "/detokenize", tokens=[ident])["prompt"]


def equals_the_reference(bases):
    """The five likeliest tokens behind a prompt and their values, for every stored vector."""
    count, off = 0, 0.0
    for ids, logits in vectors():
        truth = log_softmax(logits)
        best = sorted(range(len(truth)), key=lambda i: (-truth[i], i))[:5]
        bound = 2e-3 * max(abs(x) for x in logits)  # twice t_llama's bound: of the logit, and of the sum
        for base in bases:
            # Sampling parameters change the choice and no value.
            for more in ({"temperature": 0}, {"temperature": 1.7, "seed": 5, "top_p": 0.9, "presence_penalty": 1}):
                reply = complete(base, prompt=ids, max_tokens=1, ignore_eos=True, logprobs=5, **more)
                got = reply["choices"][0]["logprobs"]
                assert len(got["tokens"]) == len(got["token_logprobs"]) == len(got["top_logprobs"]) == 1, got
                values = sorted(got["top_logprobs"][0].values(), reverse=True)[:5]
                for i, value in zip(best, values):
                    off = max(off, abs(value - truth[i]))
                    assert abs(value - truth[i]) <= bound, (ids, i, value, truth[i])
                if more["temperature"] == 0 and truth[best[0]] - truth[best[1]] > 2 * bound:
                    text = shown(base, best[0])
                    if text and "\ufffd" not in text:
                        assert got["tokens"][0] == text, (got, text)
                        count += 1
    assert count >= 10, count
    return f"{len(vectors())} vectors, off by at most {off:.1e}"


def chats_and_streams_agree(bases):
    replies = []
    for base in bases:
        what = {"max_tokens": 24, "seed": 3, "temperature": 0.8, "logprobs": True, "top_logprobs": 20}
        whole = chat(base, **what)["choices"][0]
        content = whole["logprobs"]["content"]
        said = b"".join(bytes(t["bytes"]) for t in content)
        assert said.decode() == whole["message"]["content"], (said, whole)
        for token in content:
            values = [t["logprob"] for t in token["top_logprobs"]]
            assert len(values) == 20 and values == sorted(values, reverse=True), token
            assert all(v <= 0 for v in values) and math.fsum(map(math.exp, values)) <= 1 + 1e-6, token
            same = [t["logprob"] for t in token["top_logprobs"] if t["bytes"] == token["bytes"]]
            assert not same or token["logprob"] in same, token
        events = pieces(chat(base, **what, stream=True))
        streamed = [t for c in events if c["logprobs"] for t in c["logprobs"]["content"]]
        assert streamed == content, (streamed, content)
        replies.append(content)

        what = {"prompt": "Once upon a time", "max_tokens": 24, "seed": 3, "logprobs": 3}
        whole = complete(base, **what)["choices"][0]
        got = whole["logprobs"]
        for token, offset in zip(got["tokens"], got["text_offset"]):
            if not token.startswith("bytes:"):
                assert whole["text"][offset:].startswith(token), (token, offset, whole)
        parts = [c["logprobs"] for c in pieces(complete(base, **what, stream=True)) if c["logprobs"]]
        for key, value in got.items():
            assert [v for p in parts for v in p[key]] == value, key
        replies.append(got)
        assert complete(base, prompt="a", max_tokens=1, logprobs=0)["choices"][0]["logprobs"]["top_logprobs"]
        assert complete(base, prompt="a", max_tokens=1)["choices"][0]["logprobs"] is None
    assert replies[:2] == replies[2:], "the router's differ from the engine's"


def tokens_within_a_character(bases):
    for base in bases:
        said = chat(base, max_tokens=30, logprobs=True, guided_choice=["\u4f60\u597d"])["choices"][0]
        assert said["message"]["content"] == "\u4f60\u597d", said
        tokens = said["logprobs"]["content"]
        assert b"".join(bytes(t["bytes"]) for t in tokens).decode() == "\u4f60\u597d", tokens
        for t in tokens:
            try:
                name = bytes(t["bytes"]).decode()
            except UnicodeDecodeError:
                name = "bytes:" + "".join(f"\\x{b:02x}" for b in t["bytes"])
            assert t["token"] == name, t


def logprobs_refused(bases):
    for base in bases:
        refused(base, "/v1/chat/completions", "top_logprobs", "needs logprobs", top_logprobs=2)
        refused(base, "/v1/chat/completions", "top_logprobs", "0..20", logprobs=True, top_logprobs=21)
        refused(base, "/v1/completions", "logprobs", "0..5", prompt="a", logprobs=6)


# ---- logit_bias, echo, roles ----


def biases(bases):
    for base in bases:
        what = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0, "ignore_eos": True}
        plain = complete(base, **what, logprobs=5)["choices"][0]
        first = plain["logprobs"]["tokens"][0]
        ident = ask(base, "/tokenize", prompt=first, add_special_tokens=False)["tokens"]
        assert len(ident) == 1, (first, ident)
        # Less likely by 100, the likeliest token is not chosen, and its log-probability stays the model's own.
        less = complete(base, **what, logprobs=5, logit_bias={str(ident[0]): -100})["choices"][0]
        assert first not in less["logprobs"]["tokens"], less
        assert less["logprobs"]["top_logprobs"][0][first] == plain["logprobs"]["token_logprobs"][0], less
        assert less["text"] != plain["text"]
        other = ask(base, "/tokenize", prompt=" moon", add_special_tokens=False)["tokens"]
        assert len(other) == 1, other
        said = chat(base, max_tokens=4, ignore_eos=True, seed=1, logit_bias={str(other[0]): 100, "0": -1.5})
        assert said["choices"][0]["message"]["content"].count("moon") == 4, said
        same = complete(base, **what, logit_bias={})["choices"][0]
        assert same["text"] == plain["text"], (same, plain)
        chats = "/v1/chat/completions"
        refused(base, chats, "logit_bias", "the vocabulary has", logit_bias={"70000": 1})
        refused(base, chats, "logit_bias", "-100..100", logit_bias={"7": 101})
        refused(base, chats, "logit_bias", "no token id", logit_bias={"moon": 1})
        refused(base, chats, "logit_bias", "more than 512", logit_bias={str(i): 1 for i in range(513)})
        chat(base, max_tokens=1, logit_bias={str(i): 1 for i in range(512)})


def echoes(bases):
    for base in bases:
        what = {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
        plain = complete(base, **what)
        echo = complete(base, **what, echo=True)
        assert echo["choices"][0]["text"] == what["prompt"] + plain["choices"][0]["text"], echo
        assert echo["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"], echo
        events = pieces(complete(base, **what, echo=True, stream=True))
        assert "".join(c["text"] for c in events) == echo["choices"][0]["text"], events
        ids = ask(base, "/tokenize", prompt=what["prompt"])["tokens"]
        same = complete(base, **{**what, "prompt": ids}, echo=True)
        assert same["choices"][0]["text"] == echo["choices"][0]["text"], (same, echo)
        refused(base, "/v1/completions", "echo", "with logprobs", prompt="a", echo=True, logprobs=1)
        refused(base, "/v1/chat/completions", "echo", "not served", echo=True)
        refused(base, "/v1/chat/completions", "messages", 'messages[0]: the role "narrator"',
                messages=[{"role": "narrator", "content": "hi"}])


CHECKS = [
    equals_the_reference,
    chats_and_streams_agree,
    tokens_within_a_character,
    logprobs_refused,
    biases,
    echoes,
]


def main():
    bases = sys.argv[1:3]
    for check in CHECKS:
        print(check.__name__.replace("_", " "), check(bases) or "")


if __name__ == "__main__":
    main()
