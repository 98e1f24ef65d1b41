#!/usr/bin/env python3
"""make.py - the words that each pre-tokenizer rule makes of some texts, by a regex engine.

The expressions are those that the models publish (in the notation of tokenizers and llama.cpp); the
engine is Python's `regex` package. Several expressions work one behind the other: each on the pieces
that the one before left, matches and gaps.

    python3 tests/vectors/tokenizer/make.py > tests/vectors/tokenizer/words.ndjson
"""
import json
import random

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
             r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HEAD, TAIL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LED, SHORT = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = rf"{LED}{HEAD}*{TAIL}+{SHORT}?|{LED}{HEAD}+{TAIL}*{SHORT}?|\p{{N}}{{1,3}}|{REST}"
TEKKEN = rf"{LED}{HEAD}*{TAIL}+|{LED}{HEAD}+{TAIL}*|\p{{N}}|{REST}"
RULES = {
    "gpt-2": [GPT2],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [QWEN35],
    "gpt-4o": [GPT4O],
    "tekken": [TEKKEN],
}
TEXTS = [
    "Hello, y'all! How're you? I'LL say we'Ve 'told. it's 'S",
    "  leading and   inner\t\tblanks  \n\n next\r\n\r\n   end   ",
    "x = 12345678 + 3.14159; // a\tb\n\n\n\treturn `y`;\n",
    "#include <a.h>\n@x !!b ??c ~~d $$ 100% a_b -c --d",
    "Größe naïve café e\u0301 ñ ½ ² Ⅷ ٣٤٥ ١٢٣٤",
    "我想在apple工作1314151天～ こんにちは カタカナ 한국어 텍스트。",
    "🦙🚀 (normal) 😶\u200d🌫️ ✅ \u00a0nbsp\u3000wide\u2028line\u200bzero",
    "नमस्ते दुनिया ภาษาไทย កាន់តែ", "\n", " ", "", "\u0301", "a\u0301\u0302b", "'", "''s", "   \n  x", "\r\n\t ",
]
LETTERS = ["a", "B", "é", "我", "ひ", "1", "23", " ", " ", "\n", "\r", "\t", "'", "'s", "'LL", ".", "!", "$", "<", "`",
           "\u0301", "AB", "ǅ", "ʰ", "/", "\u00a0", "½", "🦙", "_", "\u200d", "한", "~", "^"]


def split(text, expressions):
    pieces = [text]
    for expression in expressions:
        cut = []
        for piece in pieces:
            at = 0
            for m in regex.finditer(expression, piece):
                cut += [piece[at:m.start()], m.group()]
                at = m.end()
            cut.append(piece[at:])
        pieces = [p for p in cut if p]
    return pieces


def main():
    r = random.Random(7)
    texts = TEXTS + ["".join(r.choice(LETTERS) for _ in range(r.randrange(3, 40))) for _ in range(60)]
    for pre, expressions in RULES.items():
        for text in texts:
            print(json.dumps({"pre": pre, "words": split(text, expressions)}, ensure_ascii=False))


if __name__ == "__main__":
    main()
