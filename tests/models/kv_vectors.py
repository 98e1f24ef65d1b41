# SPDX-License-Identifier: Apache-2.0
"""kv_vectors.py - what numpy makes of K and V in Q8 and Q4, block by block (engine/kernels/kv_code.h).

Heads of several sizes and 16 tokens: normal ones, with an outlier, ties, zeros, very small and very large ones,
infinity and NaN. Prints the error of normal heads.

    pip install numpy
    python kv_vectors.py --out ../vectors/kv
"""
import argparse
from pathlib import Path

import numpy as np

VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
GROUP, BLOCK = 32, 16


def bf16(x):
    """Rounds to nearest, ties to even; returns the 16 bits and the float."""
    bits = np.float32(x).view(np.uint32)
    if np.isnan(x):
        bits = (bits >> np.uint32(16)) | np.uint32(0x40)
    else:
        bits = np.uint32((int(bits) + 0x7fff + (int(bits) >> 16 & 1)) >> 16)
    return np.uint16(bits), (np.uint32(bits) << np.uint32(16)).view(np.float32)


def largest(x):
    """The first element of largest magnitude, NaN above infinity."""
    return x[np.argmax(x.view(np.uint32) & np.uint32(0x7fffffff))]


def scaled(x, scale):
    """x / scale by its inverse; 0 where there is none."""
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / scale
        if not np.isfinite(inverse):
            inverse = np.float32(0)
        return np.where(np.isnan(x * inverse), np.float32(0), x * inverse)


def round_q8(x):
    bits, scale = bf16(np.abs(largest(x)) / np.float32(127))
    return bits, np.clip(np.rint(scaled(x, scale)), -127, 127).astype(np.int8).view(np.uint8), scale


def round_q4(x):
    bits, scale = bf16(largest(x) / np.float32(-127))
    off = np.abs(scaled(x, scale)[:, None].astype(np.float64) - VALUES[None, :])
    return bits, np.argmin(off, axis=1).astype(np.uint8), scale


def block(kind, heads, is_v):
    """Lays out the block of 16 tokens; also returns the squared error and power of what is stored."""
    size = heads.shape[1]
    groups = 1 if kind == "q8" else -(-size // GROUP)
    width = size if kind == "q8" else groups * GROUP
    codes = np.zeros((BLOCK, width), np.uint8)
    scales = np.zeros((groups, BLOCK), np.uint16)
    error = power = 0.0
    for t in range(BLOCK):
        step = size if kind == "q8" else GROUP
        for g in range(groups):
            x = heads[t, g * step:(g + 1) * step]
            scales[g, t], code, scale = (round_q8 if kind == "q8" else round_q4)(x)
            codes[t, g * step:g * step + len(x)] = code
            if not np.isfinite(x).all() or not np.isfinite(scale):
                continue
            value = scale * (code.view(np.int8).astype(np.float32) if kind == "q8" else VALUES[code])
            error += float(((value - x).astype(np.float64) ** 2).sum())
            power += float((x.astype(np.float64) ** 2).sum())
    if kind == "q8":
        data = codes.reshape(BLOCK, -1, 16).transpose(1, 0, 2) if is_v else codes.T
    elif is_v:
        halves = codes.reshape(BLOCK, groups, 2, 16)
        data = (halves[:, :, 0] | halves[:, :, 1] << 4).transpose(1, 0, 2)
    else:
        pairs = codes.reshape(BLOCK, width // 2, 2)
        data = (pairs[:, :, 0] | pairs[:, :, 1] << 4).T.copy()
        data[size // 2:] = 0  # behind the head's end nothing is written
    return np.ascontiguousarray(data).tobytes() + scales.tobytes(), error, power


def heads(rng, size, odd):
    x = rng.normal(size=(BLOCK, size)).astype(np.float32)
    if not odd:
        return x
    x[0] = 0
    x[1] *= 1e-38
    x[2] *= 1e35
    x[3, size // 2] = 90
    x[4] = np.arange(size) % 9 - 4.5
    x[4, 0] = 127
    x[5] = np.where(np.arange(size) % 2, -4.5, -30.0)
    x[5, 1] = -127
    x[6] = -0.25
    x[7, 3] = np.inf
    x[8, 5] = np.nan
    x[9, 1] = -np.inf
    x[10] = np.float32(3.4e38)
    x[11] *= 1e-45
    return x


def main():
    p = argparse.ArgumentParser(description="vectors of K and V in Q8 and Q4")
    p.add_argument("--out", required=True)
    out = Path(p.parse_args().out)
    rng = np.random.default_rng(17)
    data, lines = bytearray(), []
    for kind in ("q8", "q4"):
        for size in (16, 48, 64, 96):
            for odd in (0, 1):
                k, v = heads(rng, size, odd), heads(rng, size, odd)
                lines.append(f"{kind} {size} {len(data)}")
                k_block, ke, kp = block(kind, k, False)
                v_block, ve, vp = block(kind, v, True)
                data += k.tobytes() + v.tobytes() + k_block + v_block
                if not odd:
                    print(f"{kind} heads of {size}: error {np.sqrt((ke + ve) / (kp + vp)):.4f}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "kv.bin").write_bytes(data)
    (out / "kv.txt").write_text("\n".join(lines) + "\n")


main()
