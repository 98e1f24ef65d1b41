"""embeddings_client.py - OpenAI's own Python client asks Muster for embeddings.

    embeddings_client.py http://127.0.0.1:8080

Exits 77 when the package is missing, so that no check needs it. Run by t_embeddings against a router and an engine.
"""

import json
import math
import sys
import urllib.request

try:
    import openai
except ImportError:
    print("skipped: the Python package openai is not installed")
    sys.exit(77)

MODEL = "muster-tiny"
TEXTS = ["a cat sat on the mat", "the sun", "ä and ö"]


def length(v):
    return math.sqrt(sum(x * x for x in v))


def close(a, b):
    return len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b))


def post(url, path, body):
    ask = urllib.request.Request(url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(ask) as reply:
        return json.load(reply)


def vectors_are_alike_in_every_form(client):
    default = client.embeddings.create(model=MODEL, input=TEXTS)  # the client asks for base64 and decodes it
    plain = client.embeddings.create(model=MODEL, input=TEXTS, encoding_format="float")
    assert default.object == "list" and default.model == MODEL
    assert [d.index for d in default.data] == [0, 1, 2]
    for a, b in zip(default.data, plain.data):
        assert close(a.embedding, b.embedding) and abs(length(a.embedding) - 1) < 1e-5
    alone = [client.embeddings.create(model=MODEL, input=t) for t in TEXTS]
    assert all(close(a.data[0].embedding, b.embedding) for a, b in zip(alone, plain.data))
    assert sum(a.usage.prompt_tokens for a in alone) == plain.usage.prompt_tokens == plain.usage.total_tokens > 3
    return plain.data


def fewer_dimensions_are_the_first_ones(client, whole):
    cut = client.embeddings.create(model=MODEL, input=TEXTS, dimensions=16, encoding_format="float").data
    for a, b in zip(whole, cut):
        head = a.embedding[:16]
        assert close([x / length(head) for x in head], b.embedding)


def scores_are_the_cosines(url, whole):
    cosine = lambda a, b: sum(x * y for x, y in zip(whole[a].embedding, whole[b].embedding))
    scores = post(url, "/v1/score", {"model": MODEL, "text_1": TEXTS[0], "text_2": TEXTS})["data"]
    for i, s in enumerate(scores):
        assert s["index"] == i and abs(s["score"] - cosine(0, i)) < 1e-6, scores
    ranked = post(url, "/v1/rerank", {"model": MODEL, "query": TEXTS[0], "documents": TEXTS[1:]})["results"]
    want = sorted(((cosine(0, i + 1), i) for i in range(2)), reverse=True)
    assert [r["index"] for r in ranked] == [i for _, i in want], ranked
    assert all(abs(r["relevance_score"] - s) < 1e-6 for r, (s, _) in zip(ranked, want)), ranked


def refusals_are_the_clients_own_errors(client):
    for error, ask in ((openai.NotFoundError, {"model": "other", "input": "a"}),
                       (openai.BadRequestError, {"model": MODEL, "input": []}),
                       (openai.BadRequestError, {"model": MODEL, "input": "a", "dimensions": 100000})):
        try:
            client.embeddings.create(**ask)
            raise AssertionError("served")
        except error as e:
            assert e.body["message"], e.body


def main():
    url = sys.argv[1]
    client = openai.OpenAI(base_url=url + "/v1", api_key="any", max_retries=0)
    whole = vectors_are_alike_in_every_form(client)
    fewer_dimensions_are_the_first_ones(client, whole)
    scores_are_the_cosines(url, whole)
    refusals_are_the_clients_own_errors(client)
    print(f"{url}: openai {openai.__version__} is served")


main()
