# SPDX-License-Identifier: Apache-2.0
"""quant_vectors.py - what the package `gguf` makes of blocks of every tensor type, and of floats.

Blocks of random bits, then blocks with scales that are zero, subnormal, largest, infinite and NaN.
Floats: normal ones, small and large ones, ties, a block of zeros, of equals, of one spike.

    pip install gguf
    python quant_vectors.py --out ../vectors/quant
"""
import argparse
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


def main():
    p = argparse.ArgumentParser(description="vectors of tensor types")
    p.add_argument("--out", required=True)
    out = Path(p.parse_args().out)
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
