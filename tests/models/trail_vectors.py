# SPDX-License-Identifier: Apache-2.0
"""trail_vectors.py - what numpy makes of TRAIL's length predictor (policies/predict/trail.c).

A synthetic stream of outputs with hidden states: predictions from the prompt's state, refinements while an output
runs, what ended outputs teach, and a merge of two predictors. Written from the formulas in float64 with matrices and
a gradient that is checked against differences, where trail.c has loops over float32. Prints the error of the
refinement beside that of the paper's (2410.01035): bins of the rest that a matrix shifts after each look.

    pip install numpy
    python trail_vectors.py --out ../vectors/trail
"""
import argparse
from pathlib import Path

import numpy as np

MASK = 2**64 - 1
DIMS, UNITS, BINS, WIDTH = 32, 32, 10, 51.2
SEED = 0x747261696C
GROWTH, EDGES = 1.75, 1.75 ** np.arange(17)  # of the histograms of whole lengths

# ---- chance ----


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def number_at(seed, position):
    golden = 0x9E3779B97F4A7C15
    return mix(mix(seed + golden & MASK) ^ mix(position * golden + 1 & MASK))


class Xoshiro:
    """xoshiro256** seeded by splitmix64."""

    def __init__(self, seed):
        self.s = [mix(seed + (i + 1) * 0x9E3779B97F4A7C15 & MASK) for i in range(4)]

    def next(self):
        def rotate(v, by):
            return (v << by | v >> 64 - by) & MASK

        s = self.s
        result = rotate(s[1] * 5 & MASK, 7) * 9 & MASK
        t = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
        return result

    def uniform(self):
        return (self.next() >> 11) * 2.0**-53

    def normal(self):
        radius = np.sqrt(-2 * np.log1p(-self.uniform()))
        return radius * np.cos(2 * np.pi * self.uniform())


# ---- the classifier ----


class Net:
    """softmax(W2 [relu(W1 [z, 1]), 1]), z = (h - mean) / deviation within 4; AdaGrad on the cross entropy."""

    def __init__(self, rng):
        self.w1 = np.zeros((UNITS, DIMS + 1))
        self.w2 = np.zeros((BINS, UNITS + 1))
        for u in range(UNITS):
            for i in range(DIMS):
                self.w1[u, i] = np.sqrt(2 / (DIMS + 1)) * rng.normal()
        self.g1, self.g2 = np.zeros_like(self.w1), np.zeros_like(self.w2)
        self.mean, self.var = np.zeros(DIMS), np.ones(DIMS)
        self.states, self.known = 0, [None] * 512

    def inputs(self, h):
        z = np.zeros(DIMS) if h is None else (h - self.mean) / np.sqrt(self.var + 1e-9)
        return np.append(np.clip(z, -4, 4), 1)

    def hidden(self, x, w1):
        return np.append(np.maximum(w1 @ x, 0), 1)

    def probabilities(self, h):
        x = self.inputs(h)
        logits = self.w2 @ self.hidden(x, self.w1)
        e = np.exp(logits - logits.max())
        return e / e.sum()

    def loss(self, x, label, w1, w2):
        logits = w2 @ self.hidden(x, w1)
        return np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[label]

    def gradient(self, h, label):
        x = self.inputs(h)
        unit = self.hidden(x, self.w1)
        error = self.probabilities(h) - np.eye(BINS)[label]
        back = (self.w2[:, :UNITS].T @ error) * (unit[:UNITS] > 0)
        return np.outer(back, x), np.outer(error, unit)

    def learn(self, h, label):
        d1, d2 = self.gradient(h, label)
        for w, g, d in ((self.w1, self.g1, d1), (self.w2, self.g2, d2)):
            g += d * d
            w -= 0.05 * d / np.sqrt(g + 1e-3)

    def see(self, h, label):
        """A new state: it moves mean and deviation, is learned, and seven earlier ones again."""
        self.known[self.states % 512] = (h, label)
        self.states += 1
        step = 1 / min(self.states, 1024)
        away = h - self.mean
        self.mean = self.mean + step * away
        self.var = self.var + step * (away * (h - self.mean) - self.var)
        self.learn(h, label)
        for i in range(7):
            self.learn(*self.known[number_at(SEED, self.states * 7 + i) % min(self.states, 512)])


def check_gradient(net, h, label):
    """Compares the gradient with central differences of the loss, for all weights."""
    x, step = net.inputs(h), 1e-6
    for which, d in enumerate(net.gradient(h, label)):
        for at in np.ndindex(d.shape):
            w = [net.w1.copy(), net.w2.copy()]
            w[which][at] += step
            above = net.loss(x, label, *w)
            w[which][at] -= 2 * step
            slope = (above - net.loss(x, label, *w)) / (2 * step)
            assert abs(slope - d[at]) < 1e-7 + 1e-5 * abs(slope), (which, at, slope, d[at])


# ---- lengths ----


class Hist:
    """Lengths in bins of which each begins at 1.75 times the one before; 64 are remembered."""

    def __init__(self):
        self.count, self.mean, self.bin = 0.0, 0.0, np.zeros(16)

    def learn(self, length):
        if self.count >= 64:
            self.count, self.bin = self.count * 63 / 64, self.bin * 63 / 64
        self.count += 1
        self.mean += (length - self.mean) / self.count
        self.bin[min(np.searchsorted(EDGES, length, "right") - 1, 15)] += 1

    def merge(self, other):
        count = self.count + other.count
        if count <= 0:
            return
        keep = min(1, 64 / count)
        self.mean = (self.mean * self.count + other.mean * other.count) / count
        self.count, self.bin = count * keep, (self.bin + other.bin) * keep


def tail(shares, above):
    """P(L > above) and E[L | L > above] where lengths are log-uniform within a bin, at its geometric middle."""
    low, high = np.maximum(EDGES[:-1], above), EDGES[1:]
    part = np.where(high > low, shares * np.log(np.maximum(high, low) / low) / np.log(GROWTH), 0)
    mass = part.sum()
    return mass, (part * np.sqrt(low * high)).sum() / mass if mass > 0 else above


def quantile(shares, q):
    edge = np.cumsum(shares)
    for b in range(16):
        if edge[b] >= q and shares[b] > 0:
            return EDGES[b] * GROWTH ** ((q - edge[b] + shares[b]) / shares[b])
    return EDGES[16]


def bin_of(tokens):
    return min(int(tokens / WIDTH), BINS - 1)


# ---- the predictor ----


class Running:
    """What is believed of an output that runs: p(bin of the whole), and the evidence for bins of the rest."""

    def __init__(self, first):
        self.first, self.evidence, self.looks = first, np.zeros(BINS), 0


class Trail:
    def __init__(self):
        rng = Xoshiro(SEED)
        self.whole, self.left = Net(rng), Net(rng)
        self.finished, self.seen, self.offset = 0, np.zeros(BINS), 0.0
        self.all, self.hist = Hist(), [Hist() for _ in range(BINS)]

    def estimate(self, p):
        prior = np.where(np.arange(16) <= 9, 0.1, 0)  # even up to the bin of 256 tokens
        n = self.all.count
        shares, mean = (self.all.bin + 4 * prior) / (n + 4), (n * self.all.mean + 4 * 128) / (n + 4)
        mine = [(h.bin / h.count, h.mean) if h.count >= 1 else (shares, mean) for h in self.hist]
        return sum(p[c] * mine[c][0] for c in range(BINS)), sum(p[c] * mine[c][1] for c in range(BINS))

    def verdict(self, h, output_max):
        p = self.whole.probabilities(h)
        shares, mean = self.estimate(p)
        p50 = np.clip(quantile(shares, 0.5), 1, output_max)
        p90 = np.clip(quantile(shares, 0.9) * np.exp(self.offset), 1, output_max)
        return p, np.clip(mean, 1, output_max), p50, max(p50, p90)

    def observe(self, h, tokens, censored):
        p, _, p50, p90 = self.verdict(h, 2**32 - 1)
        above = tokens > p90
        if above or not censored:
            self.offset = np.clip(self.offset + 0.02 * (0.9 if above else -0.1), -2, 2)
        length = tokens
        if censored:
            if tokens < p50:
                return
            share, mean = tail(self.estimate(p)[0], tokens)
            length = tokens + max(1, (mean if share >= 1e-6 else tokens * GROWTH) - tokens)
        self.all.learn(length)
        self.hist[bin_of(length)].learn(length)
        self.finished += 1
        if h is not None:
            self.whole.see(h, bin_of(length))

    def observe_look(self, h, at, tokens, censored):
        if tokens <= at:
            return
        left = tokens - at
        if censored:
            left += self.remaining(Running(self.whole.probabilities(None)), tokens, 2**32 - 1)
        self.seen[bin_of(left)] += 1
        self.left.see(h, bin_of(left))

    def look(self, running, h):
        base = (self.seen + 1) / (self.seen + 1).sum()
        now = np.clip(np.log(self.left.probabilities(h) / base + 1e-9), -2, 2)
        running.evidence = now if running.looks == 0 else (running.evidence + now) / 2
        running.looks += 1

    def beyond(self, first, above):
        """P(L > above) and E[L; L > above] by the first state."""
        share = total = 0.0
        for c, h in enumerate(self.hist):
            if h.count < 1:
                continue
            s, mean = (1, h.mean) if c * WIDTH >= above else tail(h.bin / h.count, above)
            share, total = share + first[c] * s, total + first[c] * s * mean
        return share, total

    def remaining(self, running, generated, output_max):
        edges = [self.beyond(running.first, generated + k * WIDTH) for k in range(BINS)] + [(0, 0)]
        edges = np.array(edges)
        parts = np.maximum(edges[:-1] - edges[1:], 0) * np.exp(running.evidence)[:, None]
        mass, total = parts.sum(axis=0)
        length = total / mass if mass > 1e-6 else generated * GROWTH
        return max(1, np.clip(length, 1, output_max) - generated)

    def merge(self, other):
        """The one that has seen more stays and learns the other's states."""
        self.all.merge(other.all)
        for mine, theirs in zip(self.hist, other.hist):
            mine.merge(theirs)
        self.finished += other.finished
        self.seen = self.seen + other.seen
        for mine, theirs in ((self.whole, other.whole), (self.left, other.left)):
            for i in range(theirs.states - min(theirs.states, 512), theirs.states):
                mine.see(*theirs.known[i % 512])


class Shifted:
    """The paper's refinement: q(rest) ~ p(rest | h) * (T q before)(rest), where T moves one step's share of a bin
    to the bin below. The rest is the mean of the bins' middles."""

    def __init__(self, p):
        self.q = p.copy()

    def look(self, p, step):
        moved = self.q * (step / WIDTH)
        moved[0] = 0
        prior = self.q - moved + np.append(moved[1:], 0)
        self.q = prior * p
        self.q /= self.q.sum()

    def rest(self):
        return (self.q * (np.arange(BINS) + 0.5) * WIDTH).sum()


# ---- the stream ----


class Stream:
    """Outputs of four kinds. A state is a direction of the kind, one of the tokens that are left, and noise, in
    sixteenths within a byte."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.kinds = np.random.default_rng(5).normal(size=(5, DIMS))

    def output(self):
        kind = self.rng.integers(4)
        length = int(np.clip(np.exp(self.rng.normal([2.5, 4, 5, 6][kind], 0.4)), 2, 1500))
        return kind, length

    def state(self, kind, left):
        h = self.kinds[kind] + self.kinds[4] * (np.log(left) - 4) + self.rng.normal(size=DIMS)
        return np.clip(np.rint(h * 16), -127, 127).astype(np.int8)


class Writer:
    def __init__(self):
        self.lines, self.states, self.count = [], bytearray(), 0

    def state(self, h):
        self.states += h.tobytes()
        self.count += 1
        return self.count - 1

    def say(self, what, *numbers):
        text = [f"{n:.9g}" if isinstance(n, float) else str(int(n)) for n in numbers]
        self.lines.append(" ".join([what, *text]))


EVERY, OUTPUT_MAX = 32, 800


def number(h):
    return h.astype(np.float64) / 16


def one_output(trail, stream, which, out, errors):
    """An output from its prediction to what it teaches; one in ten has no state at its prompt's end."""
    kind, length = stream.output()
    tokens, censored = min(length, OUTPUT_MAX), length > OUTPUT_MAX
    first = None if stream.rng.random() < 0.1 else stream.state(kind, length)
    at_first = -1 if first is None else out.state(first)
    p, mean, p50, p90 = trail.verdict(None if first is None else number(first), OUTPUT_MAX)
    out.say("decide", which, at_first, OUTPUT_MAX, *map(float, (mean, p50, p90)), *map(float, p))
    running, paper, looks = Running(p), Shifted(p), []
    for at in range(EVERY, min(tokens, 6 * EVERY + 1), EVERY):
        h = stream.state(kind, max(length - at, 1))
        trail.look(running, number(h))
        left = trail.remaining(running, at, OUTPUT_MAX)
        looks.append((h, out.state(h), at))
        out.say("look", which, looks[-1][1], at, OUTPUT_MAX, float(left), *map(float, running.evidence))
        paper.look(trail.left.probabilities(number(h)), EVERY)
        errors.append((abs(left - (tokens - at)), abs(paper.rest() - (tokens - at))))
    out.say("end", which, at_first, tokens, censored)
    trail.observe(None if first is None else number(first), tokens, censored)
    for h, at_state, at in looks:
        out.say("end_look", which, at_state, at, tokens, censored)
        trail.observe_look(number(h), at, tokens, censored)


def main():
    args = argparse.ArgumentParser(description="vectors of TRAIL's length predictor")
    args.add_argument("--out", required=True)
    folder = Path(args.parse_args().out)
    out, errors = Writer(), []
    pair, streams = [Trail(), Trail()], [Stream(1), Stream(2)]
    for which, count in ((0, 160), (1, 40)):
        for i in range(count):
            one_output(pair[which], streams[which], which, out, errors if i >= count // 2 else [])
    for kind in range(4):
        check_gradient(pair[0].whole, number(streams[0].state(kind, 90)), 3)
    out.say("merge", 1, 0)
    pair[0].merge(pair[1])
    pair[1] = pair[0]
    for _ in range(12):
        one_output(pair[1], streams[1], 1, out, errors)
    ours, paper = np.mean(errors, axis=0)
    print(f"{pair[0].whole.states} states of prompts, {pair[0].left.states} of running outputs")
    print(f"mean error of the rest over {len(errors)} looks: {ours:.1f} tokens, by shifted bins {paper:.1f}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trail.txt").write_text("\n".join(out.lines) + "\n")
    (folder / "trail.bin").write_bytes(bytes(out.states))


main()
