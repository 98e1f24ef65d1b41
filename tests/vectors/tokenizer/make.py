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
# Cased letters as DeepSeek lists them, without some scripts' small ones, and its punctuation.
CASED = ("A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373"
         "\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481"
         "\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B"
         "\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B"
         "\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB"
         "\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"
         "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
         "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
         "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
         "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
         "\U0001E900-\U0001E943")
MARKED = "!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002"
DEEPSEEK_LLM = [r"[\r\n]", rf"\s?[{CASED}]+", rf"\s?[{MARKED}]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
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
    "deepseek-llm": DEEPSEEK_LLM + [r"\p{N}+"],
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
