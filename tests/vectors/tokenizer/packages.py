#!/usr/bin/env python3
"""packages.py - compares our tokenizers with the Python packages `tokenizers` and `sentencepiece`.

    python3 tests/vectors/tokenizer/packages.py make             # train small ones, store them with their ids
    python3 tests/vectors/tokenizer/packages.py compare MUSTER   # 10,000 random texts each, with `muster tokenize`

`make` writes packages/NAME.json (a tokenizer.json) and packages/NAME.ndjson (text, ids, what they decode to);
t_tokenizer_json reads both, without Python. `compare` trains the same again and writes GGUF files of
SentencePiece models, too. Where a package is missing it says so and exits with 77. The stored ids are of
tokenizers 0.23.3 and sentencepiece 0.2.3.
"""
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import sentencepiece
    import tokenizers
    from make import DEEPSEEK_LLM, GPT4O, LLAMA3, QWEN2, TEXTS
except ImportError as missing:
    print(f"skipped: {missing}; pip install tokenizers sentencepiece regex")
    sys.exit(77)

COUNT = 10000
HERE = pathlib.Path(__file__).parent
PIECES = ["a", "b", "the ", "token", "Hello", "World", "é", "E\u0301", "ü", "我", "工作", "ひ", "カ", "한국", "1", "23", "4567",
          " ", "  ", "\n", "\t", "\r\n", "'", "'s", "'LL", ".", ",", "!", "?", "$", "<", ">", "`", "\u0301", "\u00a0", "½", "ﬁ",
          "Ａ", "🦙", "_", "\u200d", "~", "^", "-", "x@y", "▁", "##", "[MASK]", "<mark>", "<s>", "word", " word ", "words",
          "\u3000", "\u0085", "\x00", "\x07", "\ufffd", "İ", "ß", "Σ", "ǅ", "नम", "ไทย", "\ufb01", "²", "①", "…", "Ⅷ", "ﷺ"]


def random_texts(count, seed):
    r = random.Random(seed)
    texts = list(TEXTS)
    while len(texts) < count:
        kind = r.randrange(10)
        if kind < 8:
            texts.append("".join(r.choice(PIECES) for _ in range(r.randrange(1, 24))))
        elif kind == 8:
            texts.append("".join(chr(r.choice([r.randrange(32, 127), r.randrange(0xA0, 0x250), r.randrange(0x370, 0x500),
                                               r.randrange(0x4E00, 0x4F00), r.randrange(0x1F300, 0x1F600)]))
                                 for _ in range(r.randrange(1, 30))))
        else:
            texts.append(bytes(r.randrange(256) for _ in range(r.randrange(1, 30))).decode("utf-8", "replace"))
    texts = [t.replace("\u061d", "") for t in texts]  # punctuation since Unicode 14, of which `tokenizers` does not know
    return [t.replace("\x00", "") if i % 2 else t.replace("\x00", " ") for i, t in enumerate(texts)]


def corpus():
    r = random.Random(3)
    words = ("the of and to in a is that it for on with as was be by token tokenizer model word words hello world "
             "größe naïve café straße привет мир 我 在 工作 こんにちは 한국어 return self def class 12 345 6789 Hello World "
             "THE Of And don't we're it's").split()
    lines = [" ".join(r.choice(words) for _ in range(12)) + r.choice(".!?") for _ in range(400)]
    return lines + TEXTS


def hf_models():
    """Returns the trained tokenizers by name: one for each component that we read."""
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                            trainers)
    made = {}

    def train(name, tokenizer, trainer, added=(), post=None):
        tokenizer.train_from_iterator(corpus(), trainer)
        tokenizer.add_tokens(list(added))
        if post:
            tokenizer.post_processor = post(tokenizer)
        made[name] = tokenizer

    def bpe(size, special, alphabet=()):
        return trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=list(alphabet),
                                   show_progress=False)

    bytes256 = pre_tokenizers.ByteLevel.alphabet()
    marks = [AddedToken("[MASK]", lstrip=True, rstrip=True), AddedToken("<mark>", normalized=False),
             AddedToken("word", single_word=True)]

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    train("byte-gpt2", t, bpe(400, ["<|endoftext|>"], bytes256), marks, lambda t: processors.ByteLevel(trim_offsets=True))

    for name, regex, more in (("byte-llama3", LLAMA3, True), ("byte-qwen2", QWEN2, False), ("byte-gpt4o", GPT4O, False)):
        t = Tokenizer(models.BPE(ignore_merges=more))
        if name == "byte-qwen2":
            t.normalizer = normalizers.NFC()
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated"),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        t.decoder = decoders.ByteLevel()
        train(name, t, bpe(420, ["<|begin_of_text|>", "<|eot_id|>"], bytes256), marks,
              lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
                  single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B",
                  special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])]))

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    train("byte-digits", t, bpe(400, ["<|endoftext|>"], bytes256))

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(regex), "isolated") for regex in DEEPSEEK_LLM] +
                                              [pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train("byte-deepseek", t, bpe(420, ["<|begin_of_text|>"], bytes256))

    byte_tokens = [f"<0x{i:02X}>" for i in range(256)]
    for name in ("char-llama2", "char-metaspace"):
        t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
        if name == "char-llama2":
            t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
            t.pre_tokenizer = None
        else:
            t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        trained = Tokenizer(models.BPE(unk_token="<unk>"))
        trained.pre_tokenizer = pre_tokenizers.Metaspace()
        trained.train_from_iterator(corpus(), bpe(700, ["<unk>", "<s>", "</s>"] + byte_tokens, ["▁"]))
        model = json.loads(trained.to_str())["model"]
        t.model = models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], unk_token="<unk>",
                             byte_fallback=True, fuse_unk=True)
        t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<unk>", "<s>", "</s>")])
        t.add_tokens(marks + [AddedToken("  tab", normalized=True)])
        t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                         special_tokens=[("<s>", t.token_to_id("<s>"))])
        made[name] = t

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    train("wordpiece-bert", t, trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False), (),
          lambda t: processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))

    t = Tokenizer(models.WordPiece(unk_token="[UNK]", continuing_subword_prefix="__"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
                                         normalizers.Strip()])
    t.pre_tokenizer = pre_tokenizers.Whitespace()
    t.decoder = decoders.WordPiece(prefix="__", cleanup=False)
    train("wordpiece-other", t, trainers.WordPieceTrainer(vocab_size=450, special_tokens=special, show_progress=False,
                                                          continuing_subword_prefix="__"), marks[1:],
          lambda t: processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2)))

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    train("unigram-metaspace", t, trainers.UnigramTrainer(vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>"],
                                                          unk_token="<unk>", show_progress=False), marks,
          lambda t: processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]))

    spm = sentencepiece_model("unigram", rule="small")
    pieces, charsmap = spm["pieces"], spm["charsmap"]
    t = Tokenizer(models.Unigram([(p, s) for p, s, _ in pieces], unk_id=0, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Strip(False, True),
                                         normalizers.Replace(Regex(" {2,}"), "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    made["unigram-charsmap"] = t

    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"),
                                               pre_tokenizers.Digits()])
    train("wordlevel", t, trainers.WordLevelTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False))

    for behavior in ("removed", "merged_with_previous", "merged_with_next", "contiguous"):
        t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=behavior == "removed"))
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(" ", behavior, invert=behavior == "contiguous"),
                                                   pre_tokenizers.Punctuation(behavior)])
        train("split-" + behavior, t, bpe(300, ["<unk>"]))
    print(f"tokenizers {tokenizers.__version__}", file=sys.stderr)
    return made


def fields(blob):
    """Reads the fields of a protocol buffer: number, value."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = blob[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(blob):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 2:
            size = varint()
            value, at = blob[at:at + size], at + size
        else:
            size = 4 if key & 7 == 5 else 8
            value, at = blob[at:at + size], at + size
        yield key >> 3, value


def sentencepiece_model(kind, rule):
    out = io.BytesIO()
    options = {"normalization_rule_name": "identity" if kind == "bpe" else "nmt_nfkc"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as table:
        if rule == "small":  # a map of a few characters: its bytes are stored
            for a, b in (("Ａ", "A"), ("ﬁ", "fi"), ("½", "1/2"), ("\u00a0", " "), ("E\u0301", "É"), ("²", "2"), ("\t", " "), ("ü", "ue")):
                print(" ".join(f"{ord(c):X}" for c in a), " ".join(f"{ord(c):X}" for c in b), sep="\t", file=table)
            table.flush()
            options = {"normalization_rule_tsv": table.name}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()), model_writer=out, model_type=kind, vocab_size=600, byte_fallback=True,
            remove_extra_whitespaces=kind != "bpe", hard_vocab_limit=False, character_coverage=0.98, minloglevel=2, **options)
    blob = out.getvalue()
    spm = sentencepiece.SentencePieceProcessor(model_proto=blob)
    types = []
    for i in range(spm.get_piece_size()):
        types.append(2 if spm.is_unknown(i) else 3 if spm.is_control(i) else 6 if spm.is_byte(i) else 1)
    pieces = [(spm.id_to_piece(i), spm.get_score(i), types[i]) for i in range(spm.get_piece_size())]
    normalizer = [v for n, v in fields(blob) if n == 3]
    charsmap = next((v for n, v in fields(normalizer[0]) if n == 2), b"") if normalizer else b""
    return {"pieces": pieces, "charsmap": charsmap, "spm": spm}


def write_gguf(path, kind, model):
    def text(s):
        raw = s.encode()
        return struct.pack("<Q", len(raw)) + raw

    def value(kind, data):
        return struct.pack("<I", kind) + data

    pieces = model["pieces"]
    count = struct.pack("<Q", len(pieces))
    keys = {
        "general.architecture": value(8, text("llama")),
        "tokenizer.ggml.model": value(8, text(kind)),
        "tokenizer.ggml.tokens": value(9, struct.pack("<I", 8) + count + b"".join(text(p) for p, _, _ in pieces)),
        "tokenizer.ggml.scores": value(9, struct.pack("<I", 6) + count + b"".join(struct.pack("<f", s) for _, s, _ in pieces)),
        "tokenizer.ggml.token_type": value(9, struct.pack("<I", 5) + count + b"".join(struct.pack("<i", t) for _, _, t in pieces)),
        "tokenizer.ggml.add_space_prefix": value(7, b"\1"),
        "tokenizer.ggml.remove_extra_whitespaces": value(7, b"\1" if kind == "t5" else b"\0"),
        "tokenizer.ggml.unknown_token_id": value(4, struct.pack("<I", 0)),
        "tokenizer.ggml.bos_token_id": value(4, struct.pack("<I", 1)),
        "tokenizer.ggml.eos_token_id": value(4, struct.pack("<I", 2)),
        "tokenizer.ggml.add_eos_token": value(7, b"\0"),
    }
    if model["charsmap"]:
        keys["tokenizer.ggml.precompiled_charsmap"] = value(9, struct.pack("<IQ", 0, len(model["charsmap"])) + model["charsmap"])
    with open(path, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)))
        for name, data in sorted(keys.items()):
            out.write(text(name) + data)
        out.write(b"\0" * (-out.tell() % 32))


def muster(binary, model, flags, data):
    return subprocess.run([binary, "tokenize", str(model), *flags], input=data, stdout=subprocess.PIPE, check=True).stdout


def compare_one(binary, path, name, texts, encode, decode):
    data = b"".join(t.encode("utf-8", "surrogateescape") + b"\0" for t in texts)
    got = [json.loads(line) for line in muster(binary, path, ["-0", "-s", "-p"], data).splitlines()]
    want = [encode(t) for t in texts]
    bad = [i for i in range(len(texts)) if got[i] != want[i]]
    for i in bad[:5]:
        print(f"{name}: {texts[i]!r}\n   want {want[i]}\n   got  {got[i]}")
    lines = "".join(json.dumps(ids) + "\n" for ids in want).encode()
    back = muster(binary, path, ["-0", "-d"], lines).split(b"\0")
    wrong = [i for i in range(len(texts)) if decode and back[i].decode("utf-8", "replace") != decode(want[i])]
    for i in wrong[:5]:
        print(f"{name}: {want[i]} decodes to\n   want {decode(want[i])!r}\n   got  {back[i].decode('utf-8', 'replace')!r}")
    print(f"{name}: {len(texts)} texts, {len(bad)} with other ids, {len(wrong)} with other text")
    return len(bad) + len(wrong)


def invalid(count):
    """Returns texts with bytes that are no UTF-8, and what the packages may be given for them."""
    r = random.Random(11)
    raw = []
    for _ in range(count):
        parts = [r.choice(PIECES).encode() if r.randrange(3) else bytes([r.randrange(128, 256)]) for _ in range(r.randrange(1, 16))]
        raw.append(b"".join(parts).replace(b"\0", b""))
    return raw


def compare(binary, count=COUNT):
    texts = random_texts(count, 1)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, t in hf_models().items():
            path = pathlib.Path(folder) / name
            path.mkdir()
            t.save(str(path / "tokenizer.json"))
            failed += compare_one(binary, path, name, texts, lambda s, t=t: t.encode(s).ids,
                                  lambda ids, t=t: t.decode(ids, skip_special_tokens=True))
            if name.startswith(("wordpiece", "wordlevel", "split", "unigram-metaspace")):  # bad bytes are U+FFFD
                raw = invalid(count // 5)
                data = b"".join(x + b"\0" for x in raw)
                got = [json.loads(line) for line in muster(binary, path, ["-0", "-s", "-p"], data).splitlines()]
                bad = sum(g != t.encode(x.decode("utf-8", "replace")).ids for g, x in zip(got, raw))
                print(f"{name}: {len(raw)} texts of bad UTF-8, {bad} with other ids")
                failed += bad
            else:  # bytes come back as they were, unless a normalizer or a marker changes the text around them
                raw = invalid(count // 5)
                keep = [x for x in raw if name.startswith(("byte-llama3", "byte-gpt4o", "byte-digits", "byte-deepseek")) and b"[MASK]" not in x]
                data = b"".join(x + b"\0" for x in keep)
                back = muster(binary, path, ["-0", "-d"], muster(binary, path, ["-0"], data)).split(b"\0")[:-1]
                bad = sum(b != x for b, x in zip(back, keep)) + (len(back) != len(keep))
                print(f"{name}: {len(keep)} texts of bad UTF-8, {bad} do not come back")
                failed += bad
        for kind, gguf in (("bpe", "llama"), ("unigram", "t5")):
            model = sentencepiece_model(kind, rule="")
            path = pathlib.Path(folder) / f"{gguf}.gguf"
            write_gguf(path, gguf, model)
            spm = model["spm"]
            plain = [s for s in texts if "<s>" not in s and "▁" not in s]
            # Without the frame: SentencePiece adds none by itself.
            data = b"".join(s.encode() + b"\0" for s in plain)
            got = [json.loads(line) for line in muster(binary, path, ["-0"], data).splitlines()]
            want = [spm.encode(s) for s in plain]
            bad = [i for i in range(len(plain)) if got[i] != want[i]]
            for i in bad[:5]:
                print(f"sentencepiece {kind}: {plain[i]!r}\n   want {want[i]}\n   got  {got[i]}")
            print(f"sentencepiece {kind}: {len(plain)} texts, {len(bad)} with other ids")
            failed += len(bad)
    return failed


def make():
    folder = HERE / "packages"
    folder.mkdir(exist_ok=True)
    for name, t in hf_models().items():
        t.save(str(folder / f"{name}.json"), pretty=False)
        with open(folder / f"{name}.ndjson", "w") as out:
            for text in random_texts(110, 5):
                ids = t.encode(text).ids
                print(json.dumps({"text": text, "ids": ids, "back": t.decode(ids, skip_special_tokens=True)}, ensure_ascii=False), file=out)


def main():
    if sys.argv[1:] == ["make"]:
        return make()
    if len(sys.argv) == 3 and sys.argv[1] == "compare":
        return 1 if compare(sys.argv[2]) else 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main())
