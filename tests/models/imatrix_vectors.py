# SPDX-License-Identifier: Apache-2.0
"""imatrix_vectors.py - sums of squares of what each matrix of the shipped model is multiplied with, in numpy float64.

The forward pass is reference.py's; every matrix is wrapped so that it sees the left side of its products. The ids are
those of a prompt of ../vectors/model/logits.txt.

    python imatrix_vectors.py --model ../../models/muster-tiny-q8_0.gguf --out ../vectors/imatrix
"""
import argparse
from pathlib import Path

import numpy as np

from reference import Model

PROMPT = "prose"
COLUMNS = 6  # written of each matrix, beside two sums over all


class Watched:
    """A matrix that adds up the squares of x in x @ matrix.T."""
    __array_ufunc__ = None  # numpy leaves x @ self to __rmatmul__

    def __init__(self, matrix):
        self.matrix, self.sums = matrix, np.zeros(matrix.shape[1])

    @property
    def T(self):
        return self

    def __getitem__(self, ids):
        return self.matrix[ids]

    def __rmatmul__(self, x):
        self.sums += (x * x).sum(axis=0)
        return x @ self.matrix.T


def prompt_ids(path):
    lines = path.read_text(encoding="ascii").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"prompt {PROMPT} "))
    return [int(word) for word in lines[at + 1].split()[1:]]


def main():
    p = argparse.ArgumentParser(description="vectors of importance matrices")
    p.add_argument("--model", required=True)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    out = Path(a.out)
    ids = prompt_ids(out.parent / "model" / "logits.txt")
    model = Model(a.model)
    model.w = {name: Watched(w) if w.ndim == 2 else w for name, w in model.w.items()}
    model.forward(ids)
    lines = ["ids " + " ".join(map(str, ids))]
    for name, w in sorted(model.w.items()):
        if not isinstance(w, Watched):
            continue
        moment = (w.sums * np.arange(1, len(w.sums) + 1)).sum()
        numbers = [w.sums.sum(), moment, *w.sums[:COLUMNS]]
        lines.append(f"sums {name} {len(w.sums)} " + " ".join(f"{x:.9g}" for x in numbers))
    (out / "imatrix.txt").write_text("".join(line + "\n" for line in lines), encoding="ascii")


if __name__ == "__main__":
    main()
