# SPDX-License-Identifier: Apache-2.0
"""quant_vectors.py - what the package `gguf` makes of blocks of every tensor type, and of floats.

Blocks of random bits, then blocks with scales that are zero, subnormal, largest, infinite and NaN.
Floats: normal ones, small and large ones, ties, a block of zeros, of equals, of one spike.

    pip install gguf
    python quant_vectors.py --out ../vectors/quant

With --ggml LIBRARY (libggml-base.so, as llama-cpp-python builds it) it writes instead which error ggml's own rounding
leaves in other floats: ggml.bin has rows of them and a weight for each column, ggml.txt a line for each type.
"""
import argparse
import ctypes
import struct
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.quants import GGML_QUANT_SIZES, dequantize, quantize

READ = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
        "Q6_K", "IQ4_NL", "MXFP4"]
WRITTEN = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
# Where the F16 scales of a block lie.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}
SCALES = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c00, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfe01]


def blocks_of(name, rng):
    elements, size = GGML_QUANT_SIZES[T[name]]
    if elements == 1:
        values = np.concatenate([np.arange(0, 65536, 257), np.array(SCALES)]).astype("<u2")
        return values.view(np.uint8).reshape(-1, size)
    rows = []
    for i in range(2):
        row = rng.integers(0, 256, size, dtype=np.uint8)
        for at in HALVES.get(name, []):
            row[at:at + 2] = np.frombuffer(struct.pack("<e", rng.normal()), np.uint8)
        rows.append(row)
    for i, scale in enumerate(SCALES):
        row = rng.integers(0, 256, size, dtype=np.uint8)
        for j, at in enumerate(HALVES.get(name, [])):
            pick = scale if j == 0 else SCALES[(i + 3) % len(SCALES)]
            row[at:at + 2] = np.frombuffer(struct.pack("<H", pick), np.uint8)
        if name == "MXFP4":
            row[0] = [0, 1, 2, 3, 126, 127, 128, 200, 253, 254, 255][i]
        rows.append(row)
    return np.stack(rows)


def floats(rng):
    rows = [rng.normal(size=32), rng.normal(size=32) * 1e-3, rng.normal(size=32) * 300,
            np.zeros(32), np.full(32, 0.37), np.full(32, -2.0), np.eye(32)[5] * -7,
            np.arange(32) - 15.5, np.arange(32) / 16 - 1, (np.arange(32) % 4) * 0.5 - 0.75,
            np.abs(rng.normal(size=32)) + 3, -np.abs(rng.normal(size=32)) - 3,
            rng.normal(size=32) * 1e-7, rng.uniform(-1, 1, 32)]
    return np.stack(rows).astype("<f4")


SEARCHED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
ROWS, COLS = 8, 512


def errors_of_ggml(library, out):
    """Rows of two kinds: normal, and with the tails that matrices of trained models have."""
    lib = ctypes.CDLL(library)
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                        ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    rng = np.random.default_rng(29)
    x = np.concatenate([rng.normal(size=(ROWS // 2, COLS)), rng.standard_t(5, size=(ROWS // 2, COLS))])
    x = (x * (1 + rng.integers(0, 4, size=(ROWS, COLS // 32)).repeat(32, axis=1)) * 0.02).astype("<f4")
    w = np.exp(1.5 * rng.normal(size=COLS)).astype("<f4")
    lines = []
    for name in SEARCHED:
        elements, size = GGML_QUANT_SIZES[T[name]]
        errors = []
        for weights in (None, w):
            raw = np.zeros((ROWS, COLS // elements * size), np.uint8)
            lib.ggml_quantize_chunk(int(T[name]), x.ctypes.data, raw.ctypes.data, 0, ROWS, COLS,
                                    None if weights is None else weights.ctypes.data)
            back, each = dequantize(raw, T[name]).astype("f8"), 1.0 if weights is None else w.astype("f8")
            errors.append(np.sqrt((each * (back - x) ** 2).sum() / (each * x.astype("f8") ** 2).sum()))
        lines.append(f"{name} {errors[0]:.6f} {errors[1]:.6f}")
    (out / "ggml.bin").write_bytes(x.tobytes() + w.tobytes())
    (out / "ggml.txt").write_text("".join(line + "\n" for line in lines), encoding="ascii")


def main():
    p = argparse.ArgumentParser(description="vectors of tensor types")
    p.add_argument("--out", required=True)
    p.add_argument("--ggml")
    asked = p.parse_args()
    out = Path(asked.out)
    if asked.ggml:
        errors_of_ggml(asked.ggml, out)
        return
    rng = np.random.default_rng(17)
    data, lines = bytearray(), []
    for name in READ:
        raw = blocks_of(name, rng)
        with np.errstate(all="ignore"):
            values = dequantize(raw, T[name]).astype("<f4")
        lines.append(f"read {name} {len(raw)} {len(data)} {len(data) + raw.nbytes}")
        data += raw.tobytes() + values.tobytes()
    x = floats(rng)
    lines.append(f"floats - {x.size} {len(data)} {len(data)}")
    start = len(data)
    data += x.tobytes()
    for name in WRITTEN:
        raw = np.ascontiguousarray(quantize(x, T[name])).view(np.uint8)
        lines.append(f"write {name} {x.size} {start} {len(data)}")
        data += raw.tobytes()
    (out / "quant.bin").write_bytes(data)
    (out / "quant.txt").write_text("".join(line + "\n" for line in lines), encoding="ascii")


if __name__ == "__main__":
    main()
