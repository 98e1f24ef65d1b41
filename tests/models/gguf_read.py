# SPDX-License-Identifier: Apache-2.0
"""gguf_read.py - read a GGUF file into a dict and float64 matrices; shares nothing with the writer.

Knows F32, F16 and Q8_0. Used by reference.py and answers.py, so that both see the shipped bytes.
"""
import numpy as np

SCALAR = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8",
          11: "<i8", 12: "<f8"}
STRING, ARRAY = 8, 9


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def number(self, dtype, count=None):
        got = np.frombuffer(self.raw, dtype, count or 1, self.at)
        self.at += got.nbytes
        return got if count is not None else got[0].item()

    def string(self):
        size = self.number("<u8")
        self.at += size
        return self.raw[self.at - size:self.at].decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, count = self.number("<u4"), self.number("<u8")
            return [self.value(of) for _ in range(count)]
        return self.number(SCALAR[kind])


def matrix(raw, offset, kind, shape):
    count = int(np.prod(shape))
    if kind == 0:
        flat = np.frombuffer(raw, "<f4", count, offset)
    elif kind == 1:
        flat = np.frombuffer(raw, "<f2", count, offset)
    elif kind == 8:
        block = np.dtype([("d", "<f2"), ("q", "i1", 32)])
        b = np.frombuffer(raw, block, count // 32, offset)
        flat = b["d"].astype(np.float64)[:, None] * b["q"]
    else:
        raise ValueError(f"tensor type {kind}")
    return flat.astype(np.float64).reshape(shape)


def load(path):
    """-> (metadata dict, {name: float64 array, rows first})"""
    with open(path, "rb") as f:
        raw = f.read()
    r = Reader(raw)
    if r.number("<u4") != 0x46554747 or r.number("<u4") != 3:
        raise ValueError("not a GGUF v3 file")
    tensor_count, meta_count = r.number("<u8"), r.number("<u8")
    meta = {}
    for _ in range(meta_count):
        key = r.string()
        meta[key] = r.value(r.number("<u4"))
    table = []
    for _ in range(tensor_count):
        name, rank = r.string(), r.number("<u4")
        dims = r.number("<u8", rank).tolist()
        table.append((name, r.number("<u4"), r.number("<u8"), dims[::-1]))
    alignment = meta.get("general.alignment", 32)
    data = (r.at + alignment - 1) // alignment * alignment
    return meta, {name: matrix(raw, data + offset, kind, shape) for name, kind, offset, shape in table}
