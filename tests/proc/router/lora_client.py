"""lora_client.py - asks for LoRA adapters through a router with OpenAI's own Python client.

    lora_client.py ROUTER ENGINE_0 ENGINE_1 MERGED FOLDER PID_0 PID_1

Both engines have the adapter tone, the first one sql, too; MERGED serves tone's merged weights. Run by t_lora.
"""

import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request

import openai

ROUTER, *ENGINES = sys.argv[1:4]
MERGED, FOLDER = sys.argv[4:6]
PIDS = [int(p) for p in sys.argv[6:8]]
WAIT_S = 60
PROMPTS = ["Once upon a time there was a king", "List three fruits:", "Tell me of the moon and of the sun. Tell me of "
           "the sea and of the ships that sail on it, and of the long way home that they all take."]


def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


def say(at, model, prompt, tokens=48, **more):
    reply = at.completions.create(model=model, prompt=prompt, max_tokens=tokens, temperature=0,
                                  extra_body={"ignore_eos": True}, **more)
    assert reply.model == model, reply
    return reply.choices[0].text


def post(url, path, body):
    ask = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(ask) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def metric(url, name):
    with urllib.request.urlopen(url + "/metrics") as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
    return 0.0


def until(true, what):
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def names(at):
    return {m.id: getattr(m, "parent", None) for m in at.models.list()}


def outputs_are_those_of_merged_weights(router, merged):
    texts = {}
    for prompt in PROMPTS:
        tone, base, sql = (say(router, m, prompt) for m in ("tone", "base", "sql"))
        assert tone == say(merged, "merged", prompt), prompt
        assert len({tone, base, sql}) == 3, (tone, base, sql)
        assert [say(client(e), "tone", prompt) for e in ENGINES] == [tone, tone]
        texts[prompt] = sql
    chat = [{"role": "user", "content": "Tell me about the garden."}]
    ask = dict(messages=chat, max_tokens=32, temperature=0)
    whole = router.chat.completions.create(model="tone", **ask).choices[0].message.content
    assert whole == merged.chat.completions.create(model="merged", **ask).choices[0].message.content
    several = router.chat.completions.create(model="tone", n=2, **ask).choices
    assert [c.message.content for c in several] == [whole, whole]
    return texts


def requests_go_where_the_adapter_is(router):
    of = 'muster_engine_adapter_requests_total{adapter="%s"}'
    assert metric(ENGINES[0], of % "sql") >= len(PROMPTS) and metric(ENGINES[1], of % "sql") == 0
    prompt = PROMPTS[2]
    say(router, "tone", prompt)
    cached = router.completions.create(model="tone", prompt=prompt, max_tokens=1).usage.prompt_tokens_details.cached_tokens
    assert cached >= 16, cached


def nobody_has_others(router):
    for model, word in (("other", "no engine has an adapter of this name"),):
        try:
            say(router, model, "x")
            raise AssertionError("an unknown adapter was served")
        except openai.NotFoundError as e:
            assert word in str(e), e
    try:
        router.embeddings.create(model="tone", input="x")
        raise AssertionError("an embedding of an adapter was served")
    except openai.NotFoundError as e:
        assert "is an adapter" in str(e), e


def adapters_move_while_the_engines_run(router, texts):
    """sql is loaded at the second engine, unloaded at the first, and unloaded there: in GGUF's form and in PEFT's the
    digests differ, so that the router first sends to the first engine alone."""
    prompt = PROMPTS[0]
    load = lambda path: post(ENGINES[1], "/v1/load_lora_adapter", {"lora_name": "sql", "lora_path": f"{FOLDER}/{path}"})
    unload = lambda at: post(at, "/v1/unload_lora_adapter", {"lora_name": "sql"})
    status, said = load("sql.gguf")
    assert status == 200 and "added successfully" in said, said
    assert say(router, "sql", prompt) == texts[prompt]
    assert unload(ENGINES[0])[0] == 200

    def goes_on():
        try:
            return say(router, "sql", prompt) == texts[prompt]
        except openai.APIStatusError as e: # the list of the router is older than the unloading
            assert e.status_code in (404, 503), e
            return False

    until(goes_on, "sql did not go on at the second engine")
    assert metric(ENGINES[1], 'muster_engine_adapter_requests_total{adapter="sql"}') >= 1
    assert unload(ENGINES[1])[0] == 200
    until(lambda: "sql" not in names(router), "sql stays in the list")
    try:
        say(router, "sql", prompt)
        raise AssertionError("an unloaded adapter was served")
    except openai.NotFoundError:
        pass


def an_output_goes_on_elsewhere_with_its_adapter(router, merged):
    want, text, killed = say(merged, "merged", PROMPTS[0], 400), "", False
    stream = router.completions.create(model="tone", prompt=PROMPTS[0], max_tokens=400, temperature=0, stream=True,
                                       extra_body={"ignore_eos": True})
    for chunk in stream:
        text += chunk.choices[0].text if chunk.choices else ""
        if not killed and len(text) > 60:
            at = [i for i in (0, 1) if metric(ENGINES[i], "muster_engine_requests_running") > 0]
            assert len(at) == 1, at
            os.kill(PIDS[at[0]], signal.SIGKILL)
            killed = True
    assert killed and text == want, (text, want)
    assert metric(ROUTER, "muster_router_continued_total") >= 1


def main():
    router, merged = client(ROUTER), client(MERGED)
    until(lambda: names(router) == {"base": None, "tone": "base", "sql": "base"}, "the router lists no adapters")
    texts = outputs_are_those_of_merged_weights(router, merged)
    requests_go_where_the_adapter_is(router)
    nobody_has_others(router)
    adapters_move_while_the_engines_run(router, texts)
    an_output_goes_on_elsewhere_with_its_adapter(router, merged)
    print("adapters: outputs, places, loads and a lost engine are as they should be")


main()
