# SPDX-License-Identifier: Apache-2.0
"""vocabulary.py - train the 4096 tokens: byte-level BPE with the GPT-2 alphabet and pre-tokeniser.

The five control tokens take ids 0..4, the 256 byte symbols follow, then the merges in the order
they were learnt. Dialogues are a small part of the corpus: they repeat themselves, and would
otherwise fill the vocabulary with whole sentences of ours. The held-out tail of each text is left
out here as well.

    python vocabulary.py --text DIR --out tokenizer.json
"""
import argparse
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import dialogues

SPECIALS = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
BEGIN, END, SYSTEM, USER, ASSISTANT = range(5)
VOCAB = 4096
HELD_OUT = 0.02  # of every text, at its end


def prose(directory, held_out=False):
    """All texts of the directory as one string, without (or only) the held-out tails."""
    parts = []
    for path in sorted(Path(directory).glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        cut = int(len(text) * (1 - HELD_OUT))
        parts.append(text[cut:] if held_out else text[:cut])
    if not parts:
        raise SystemExit(f"no *.txt in {directory}")
    return "\n\n".join(parts)


def corpus(directory, seed):
    yield prose(directory)
    r = random.Random(seed)
    for _ in range(1500):
        for message in dialogues.chat(r):
            yield message["content"]
    for _ in range(200):  # so that every number counted with is one token
        yield ", ".join(map(str, range(101)))
        yield "\n".join(map(str, range(101)))


def of_gguf(meta, special=True):
    """The tokenizer in a GGUF's metadata, so that whatever comes after training needs only the
    shipped file. Without `special`, control tokens written in a text are only characters."""
    vocab = {token: i for i, token in enumerate(meta["tokenizer.ggml.tokens"])}
    tok = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in meta["tokenizer.ggml.merges"]]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    if special:
        tok.add_special_tokens(SPECIALS)
        assert [tok.token_to_id(s) for s in SPECIALS] == list(range(len(SPECIALS)))
    return tok


def main():
    p = argparse.ArgumentParser(description="train the byte-level BPE vocabulary")
    p.add_argument("--text", default="../../../shared/data/text", help="directory of *.txt")
    p.add_argument("--out", required=True)
    p.add_argument("--seed", type=int, default=7)
    a = p.parse_args()
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus(a.text, a.seed), trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    assert tok.get_vocab_size() == VOCAB and [tok.token_to_id(s) for s in SPECIALS] == list(range(5))
    tok.save(a.out)
    text = prose(a.text, held_out=True)
    print(f"{VOCAB} tokens; held-out prose: {len(text) / len(tok.encode(text).ids):.2f} characters per token")


if __name__ == "__main__":
    main()
