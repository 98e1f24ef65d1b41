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
        # Activations are rounded to int8, which moves logits by up to half a per cent of the largest; so twice that, for
        # the logit and for the sum.
        bound = 1e-2 * max(abs(x) for x in logits)
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
        refused(base, "/v1/chat/completions", "echo", "not served", echo=True)
        refused(base, "/v1/chat/completions", "messages", 'messages[0]: the role "narrator"',
                messages=[{"role": "narrator", "content": "hi"}])


def echoed_values_equal_the_reference(bases):
    """The stored logits behind a prefix say what a longer prompt's echo says of the token behind it."""
    count, found = 0, vectors()
    for ids, _ in found:
        known = [(p, logits) for p, logits in found if len(p) < len(ids) and ids[: len(p)] == p]
        for base in bases if known else []:
            got = complete(base, prompt=ids, max_tokens=0, echo=True, logprobs=0)["choices"][0]["logprobs"]
            assert len(got["tokens"]) == len(ids) and got["token_logprobs"][0] is None, got
            for prefix, logits in known:
                truth = log_softmax(logits)[ids[len(prefix)]]
                assert abs(got["token_logprobs"][len(prefix)] - truth) <= 1e-2 * max(map(abs, logits)), (ids, truth)
                count += 1
    assert count >= 10, count
    return f"{count} tokens"


def echoes_have_log_probabilities(bases):
    """A generated token has the same values, bit for bit, when it is a token of an echoed prompt."""
    replies = []
    for base in bases:
        what = {"temperature": 0, "logprobs": 3, "ignore_eos": True}
        told = "Once upon a time there was a king. " * 5 + "He had a boat, and one day"
        start = ask(base, "/tokenize", prompt=told)["tokens"]
        first = complete(base, prompt=start, max_tokens=40, **what)["choices"][0]
        text = told + first["text"]
        ids = ask(base, "/tokenize", prompt=text)["tokens"]
        assert ids[: len(start)] == start and len(ids) > len(start) + 20, (ids, start)
        hits = complete(base, prompt=ids, max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert hits > len(start), "the prompt lies in the prefix cache, and is not taken from there:"
        whole = complete(base, prompt=ids, max_tokens=4, echo=True, **what)
        assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, whole["usage"]
        got = whole["choices"][0]["logprobs"]
        assert len(got["tokens"]) == len(ids) + 4, got
        assert got["token_logprobs"][0] is None and got["top_logprobs"][0] is None, got
        same = 0
        for i, token in enumerate(first["logprobs"]["tokens"]):
            if got["tokens"][len(start) : len(start) + i + 1] != first["logprobs"]["tokens"][: i + 1]:
                break  # the text was cut into other tokens than the model had
            for key in ("token_logprobs", "top_logprobs"):
                assert got[key][len(start) + i] == first["logprobs"][key][i], (i, got, first)
            same += 1
        assert same >= 10, (same, got["tokens"], first["logprobs"]["tokens"])
        said = whole["choices"][0]["text"]
        assert said.startswith(text) and got["text_offset"][0] == 0
        for token, offset in list(zip(got["tokens"], got["text_offset"]))[1:]:  # behind the beginning's mark
            assert token.startswith("bytes:") or said.startswith(token, offset), (token, offset, said)
        events = pieces(complete(base, prompt=ids, max_tokens=4, echo=True, stream=True, **what))
        assert "".join(c["text"] for c in events) == said, events
        for key in got:
            assert sum((c["logprobs"][key] for c in events if c["logprobs"]), []) == got[key], key

        alone = complete(base, prompt=ids, max_tokens=0, echo=True, **what)
        assert alone["choices"][0]["finish_reason"] == "length" and alone["choices"][0]["text"] == text, alone
        assert alone["usage"]["completion_tokens"] == 0, alone
        for key in got:
            assert alone["choices"][0]["logprobs"][key] == got[key][: len(ids)], key
        events = pieces(complete(base, prompt=ids, max_tokens=0, echo=True, stream=True, **what))
        assert events[-1]["finish_reason"] == "length" and "".join(c["text"] for c in events) == text, events
        for key in got:
            assert sum((c["logprobs"][key] for c in events if c["logprobs"]), []) == got[key][: len(ids)], key

        for stream in (False, True):  # a prompt of one token; several prompts, several outputs
            one = complete(base, prompt=[ids[0]], max_tokens=0, echo=True, logprobs=1, stream=stream)
            one = pieces(one) if stream else one["choices"]
            assert [c["logprobs"]["token_logprobs"] for c in one if c["logprobs"]] == [[None]], one
        many = complete(base, prompt=[ids, start], n=2, max_tokens=0, echo=True, **what)
        lengths = [len(c["logprobs"]["tokens"]) for c in many["choices"]]
        assert lengths == [len(ids)] * 2 + [len(start)] * 2, lengths
        assert many["choices"][1]["logprobs"] == alone["choices"][0]["logprobs"]
        long = "word " * 700
        got = complete(base, prompt=long, max_tokens=0, echo=True, logprobs=5)["choices"][0]["logprobs"]
        assert len(got["tokens"]) == len(ask(base, "/tokenize", prompt=long)["tokens"]) > 600, len(got["tokens"])
        refused(base, "/v1/completions", "max_tokens", "needs echo", prompt="a", max_tokens=0)
        replies.append(whole["choices"][0]["logprobs"])
    assert replies[0] == replies[1]


def templates(bases):
    """/apply-template renders what a chat computes: its text is the prompt of the chat."""
    for base in bases:
        messages = [{"role": "user", "content": "Tell me of the sea."}]
        prompt = ask(base, "/apply-template", messages=messages)["prompt"]
        assert "Tell me of the sea." in prompt and prompt.rstrip() != messages[0]["content"], prompt
        status, without = post(base, "/apply-template", {"messages": messages, "add_generation_prompt": False})
        assert status == 200 and prompt.startswith(without["prompt"]) and prompt != without["prompt"], without
        plain = ask(base, "/tokenize", messages=messages)["tokens"]
        assert ask(base, "/detokenize", tokens=plain)["prompt"] == prompt
        status, reply = post(base, "/apply-template", {"prompt": "x"})
        assert status == 400 and "messages: missing" in reply["error"]["message"], reply


# ---- several outputs ----

PROMPTS = ["Once upon a time", "Tell me of the moon and of the sun, and of all the ships on the sea.", "A"]


def outputs_are_those_of_single_requests(bases):
    """n outputs with a seed are the outputs of n requests with that seed and the next ones."""
    for base in bases:
        for prompts in (PROMPTS[:1], PROMPTS):
            what = {"max_tokens": 12, "temperature": 0.9, "logprobs": 1, "ignore_eos": True}
            alone = [complete(base, **what, prompt=p, seed=5 + j) for p in prompts for j in range(3)]
            reply = complete(base, **what, prompt=prompts if len(prompts) > 1 else prompts[0], seed=5, n=3)
            assert [c["index"] for c in reply["choices"]] == list(range(len(alone))), reply
            for one, choice in zip(alone, reply["choices"]):
                assert {**one["choices"][0], "index": choice["index"]} == choice, (one, choice)
            usage = reply["usage"]
            assert usage["completion_tokens"] == 12 * len(alone), usage
            assert usage["prompt_tokens"] == sum(a["usage"]["prompt_tokens"] for a in alone[::3]), usage
            events = complete(base, **what, prompt=prompts, seed=5, n=3, stream=True, stream_options={"include_usage": True})
            assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 12 * len(alone), events[-1]
            for choice in reply["choices"]:
                parts = pieces(events, choice["index"])
                assert "".join(p["text"] for p in parts) == choice["text"], (choice, parts)
                assert [p["finish_reason"] for p in parts if p["finish_reason"]] == [choice["finish_reason"]], parts
                tokens = [t for p in parts if p["logprobs"] for t in p["logprobs"]["tokens"]]
                assert tokens == choice["logprobs"]["tokens"], (choice, parts)
        what = {"max_tokens": 8, "seed": 9}
        alone = [chat(base, max_tokens=8, seed=9 + j)["choices"][0]["message"] for j in range(4)]
        assert [c["message"] for c in chat(base, **what, n=4)["choices"]] == alone
        events = chat(base, **what, n=4, stream=True)
        for index, message in enumerate(alone):
            parts = pieces(events, index)
            assert parts[0]["delta"]["role"] == "assistant", parts
            assert "".join(p["delta"].get("content", "") for p in parts) == message["content"], parts
        assert len({c["message"]["content"] for c in chat(base, max_tokens=8, n=4)["choices"]}) > 1  # without a seed


def outputs_come_together(bases):
    """More tokens than an engine keeps unread: a stream of several outputs has pieces of each in turns."""
    for base in bases:
        events = complete(base, max_tokens=300, temperature=0, ignore_eos=True, prompt="Once", n=3, stream=True)
        order = [c["index"] for e in events for c in e["choices"]]
        assert order != sorted(order), "the outputs come one behind the other"


def lists_of_prompts(bases):
    for base in bases:
        what = {"max_tokens": 5, "temperature": 0, "echo": True}
        texts = [complete(base, prompt=p, **what)["choices"][0]["text"] for p in PROMPTS]
        ids = [ask(base, "/tokenize", prompt=p)["tokens"] for p in PROMPTS]
        for prompts in (PROMPTS, ids):
            assert [c["text"] for c in complete(base, prompt=prompts, **what)["choices"]] == texts
            events = complete(base, prompt=prompts, **what, stream=True)
            assert ["".join(p["text"] for p in pieces(events, i)) for i in range(3)] == texts, events
        schema = {"guided_choice": ["yes", "no"], "max_tokens": 9}
        assert all(c["text"] in ("yes", "no") for c in complete(base, prompt=PROMPTS, n=2, **schema)["choices"])
        big = ["word " * 5000, "other " * 2000]  # a text worker's
        assert len(complete(base, prompt=[p[:3000] for p in big] * 5, max_tokens=1)["choices"]) == 10


def the_likeliest_are_sent(bases):
    for base in bases:
        what = {"prompt": PROMPTS[0], "max_tokens": 6, "temperature": 1.2, "logprobs": 0}
        alone = [complete(base, **what, seed=20 + j)["choices"][0] for j in range(6)]
        mean = lambda c: math.fsum(c["logprobs"]["token_logprobs"]) / len(c["logprobs"]["token_logprobs"])
        same = [c for c in alone if c["finish_reason"] == "length"]
        assert len(same) == 6, "an output ended early: its end token counts too"
        best = [c["text"] for c in sorted(alone, key=mean, reverse=True)]
        for n in (1, 2):
            reply = complete(base, **what, seed=20, n=n, best_of=6)
            assert [c["text"] for c in reply["choices"]] == best[:n], (reply, best)
            assert [c["index"] for c in reply["choices"]] == list(range(n))
            assert reply["usage"]["completion_tokens"] == 36, reply["usage"]
        plain = complete(base, **{**what, "logprobs": None}, seed=20, best_of=6)["choices"][0]
        assert plain["text"] == best[0] and plain["logprobs"] is None, plain
        refused(base, "/v1/completions", "best_of", "with stream", prompt="a", best_of=2, stream=True)
        refused(base, "/v1/completions", "n", "more than 64 outputs", prompt=["a"] * 33, n=2)
        refused(base, "/v1/chat/completions", "n", "1..64", n=65)


def samples_share_the_prompt(bases):
    """Four samples of a prompt compute it once: the rest is in the cache but for its last page."""
    for b, base in enumerate(bases):
        for stream in (False, True):
            ids = [20 + (7 * i + 300 * b + 900 * stream) % 4000 for i in range(1024)]
            before = counter(bases[0], "muster_engine_prefix_cache_hits_total")
            complete(base, prompt=ids, n=4, max_tokens=8, ignore_eos=True, stream=stream)
            hits = counter(bases[0], "muster_engine_prefix_cache_hits_total") - before
            assert hits >= 3 * (1024 - 64), hits


def counter(base, name):
    with urllib.request.urlopen(base + "/metrics") as reply:
        for line in reply.read().decode().split("\n"):
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(name)


def clients_may_leave(bases):
    """A client that leaves in the midst of several outputs leaves nothing behind."""
    for base in bases:
        body = {"prompt": PROMPTS, "n": 3, "max_tokens": 2000, "ignore_eos": True, "stream": True}
        for bytes_read in (1, 3000):
            request = urllib.request.Request(base + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
            reply = urllib.request.urlopen(request, timeout=60)
            reply.read(bytes_read)
            reply.close()
        complete(base, prompt="a", max_tokens=1)
    while counter(bases[0], "muster_engine_requests_running") > 0:
        pass


CHECKS = [
    equals_the_reference,
    chats_and_streams_agree,
    tokens_within_a_character,
    logprobs_refused,
    biases,
    echoes,
    echoed_values_equal_the_reference,
    echoes_have_log_probabilities,
    templates,
    outputs_are_those_of_single_requests,
    outputs_come_together,
    lists_of_prompts,
    the_likeliest_are_sent,
    samples_share_the_prompt,
    clients_may_leave,
]


def main():
    bases = sys.argv[1:3]
    for check in CHECKS:
        print(check.__name__.replace("_", " "), check(bases) or "")


if __name__ == "__main__":
    main()
