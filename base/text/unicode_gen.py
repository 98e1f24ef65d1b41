#!/usr/bin/env python3
"""unicode_gen.py - writes unicode_table.c from Python's unicodedata (run it when Python's Unicode moves).

    python3 base/text/unicode_gen.py > base/text/unicode_table.c

Runs of code points with the same class become one row; case pairs that alternate (Latin, Cyrillic)
become one row with a step of 2. A binary search over rows costs about 11 comparisons; ASCII has a
table of its own.
"""
import sys
import textwrap
import unicodedata

CLASSES = {"L": "LETTER", "N": "NUMBER", "M": "MARK", "P": "PUNCTUATION", "S": "SYMBOL"}
# The Unicode property White_Space, which \\s of the reference regex engines means; Python's
# str.isspace adds the four separators 1c..1f.
WHITE = set(range(9, 14)) | {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000} | set(range(0x2000, 0x200B))
LAST = 0x110000


def class_of(cp):
    c = chr(cp)
    category = unicodedata.category(c)
    flags = []
    if category[0] in CLASSES:
        flags.append(CLASSES[category[0]])
    if cp in WHITE:
        flags.append("WHITE")
    if c.isspace():
        flags.append("SPACE")
    if c.isprintable():
        flags.append("PRINTABLE")
    if c.isdigit():
        flags.append("DIGIT")
    return tuple(flags)


def class_rows():
    rows, last = [], None
    for cp in range(LAST):
        now = class_of(cp)
        if now != last:
            rows.append((cp, now))
            last = now
    return rows


def stepped(pairs):
    """[(code point, value)] ascending -> rows (first, last, step, value), steps 1 or 2."""
    rows = []
    for cp, value in pairs:
        if rows:
            first, last, step, v = rows[-1]
            gap = cp - last
            if v == value and gap <= 2 and (step == gap or first == last):
                rows[-1] = (first, cp, gap, v)
                continue
        rows.append((cp, cp, 1, value))
    return rows


def mapping(convert):
    simple, special = [], []
    for cp in range(LAST):
        if 0xD800 <= cp < 0xE000:
            continue
        to = convert(chr(cp))
        if to == chr(cp):
            continue
        if len(to) == 1:
            simple.append((cp, ord(to) - cp))
        else:
            special.append((cp, [ord(c) for c in to]))
    return stepped(simple), special


def put(name, kind, rows, line):
    print(f"const struct {kind} {name}[] = {{")
    text = "   "
    for row in rows:
        item = " " + line(row) + ","
        if len(text) + len(item) > 100:
            print(text)
            text = "   "
        text += item
    print(text)
    print("};")
    print(f"const size_t {name}_count = sizeof {name} / sizeof {name}[0];\n")


SHORT = {"LETTER": "L", "NUMBER": "N", "MARK": "M", "PUNCTUATION": "P", "SYMBOL": "S", "WHITE": "W",
         "SPACE": "B", "PRINTABLE": "V", "DIGIT": "D"}


def main():
    print("/* unicode_table.c - classes and case of code points; written by unicode_gen.py, do not edit.\n"
          " *\n"
          f" * Unicode {unicodedata.unidata_version}. A class row reaches to the start of the next row; a case row is\n"
          " * first, last, step, and the distance to the other case. */")
    print('#include "base/text/unicode.h"\n')
    print("// clang-format off")
    for name, short in SHORT.items():
        print(f"#define {short} UNICODE_{name}")
    print()
    ascii_classes = ", ".join("|".join(SHORT[f] for f in class_of(cp)) or "0" for cp in range(128))
    print("const uint16_t unicode_ascii[128] = {")
    print(textwrap.fill(ascii_classes, 96, initial_indent="    ", subsequent_indent="    "))
    print("};\n")
    put("unicode_class_rows", "unicode_class_row", class_rows(),
        lambda r: f"{{{r[0]:#x},{'|'.join(SHORT[f] for f in r[1]) or '0'}}}")
    for case, convert in (("upper", str.upper), ("lower", str.lower), ("title", str.title)):
        rows, special = mapping(convert)
        put(f"unicode_{case}_rows", "unicode_case_row", rows,
            lambda r: f"{{{r[0]:#x},{r[1]:#x},{r[2]},{r[3]}}}")
        put(f"unicode_{case}_specials", "unicode_case_special", special,
            lambda r: f"{{{r[0]:#x},{{{','.join(f'{c:#x}' for c in r[1])}}}}}")
    lower = [(cp, 0) for cp in range(LAST) if chr(cp).islower()]
    upper = [(cp, 0) for cp in range(LAST) if chr(cp).isupper() or chr(cp).istitle()]
    for case, cps in (("is_lower", lower), ("is_upper", upper)):
        put(f"unicode_{case}_rows", "unicode_case_row", stepped(cps),
            lambda r: f"{{{r[0]:#x},{r[1]:#x},{r[2]},0}}")
    print("// clang-format on")


if __name__ == "__main__":
    sys.exit(main())
