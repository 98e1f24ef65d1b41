/* roofline.c - computes step time in closed form from the bytes to read, the arithmetic to do, and the
 * overhead of each layer's small kernels.
 *
 *     step  = L [ M + f + s T + attn_s + A_d + A_p + 2 C ] + head + H
 *     M     = sqrt(t_m^2 + t_m t_c / 2 + t_c^2)
 *     t_m   = bytes(weights touched) / (eff_bytes BW)      t_c = 2 w T / (eff_flops P)
 *     s     = bytes of a token's activations / (eff_rows BW)
 *     A_d   = decode: (KV tokens + attn_seq sessions) bytes / (0.88 BW), times attn_mixed beside a
 *             chunk; a token at least as long as a pair of A_p
 *     A_p   = prefill: 4 heads d (pairs + attn_spare T) / (eff_attn P), times attn_tile / chunk for
 *             chunks shorter than that
 *     C     = link_s + 2 (n-1)/n bytes / (eff_link link)             tp > 1 only
 *     head  = M of the output matrix, read with 0.8 BW, for the sequences of the step
 *     H     = host_s + seq_s (sequences)
 *     watts = idle + (limit - idle) min(1, [0.35 memory + (0.2 step + 0.6 arithmetic) clock^3] / step)
 *             memory: seconds of t_m, s T, A_d and of reading the head; arithmetic: seconds of t_c,
 *             A_p and the head's arithmetic
 *
 * M lies between the sum of both times (no overlap: t_m t_c with a factor of 2) and the larger
 * of them (perfect overlap); the half was the best of 0, 0.5, 0.75, 1, 1.25 and 2 over three
 * devices. A hard maximum errs most where the two are equal, which is where chunked prefill runs on
 * purpose. Attention kernels have tiles: a short chunk leaves most of a device idle, and when a session
 * decodes in the same launch as a chunk, fewer of the device's cores read its KV.
 *
 * A mixture's weights are read by the expected number of distinct experts that T tokens choose,
 * N (1 - ((N - k) / N)^T), with a uniform router: real routers are skewed and read fewer.
 *
 * Sources: roofline (Williams, Waterman and Patterson 2009); operators and their tables as in
 * Vidur (MLSys 2024) and LLMServingSim; constants are ours, fitted by `muster perf fit`. */
#include "base/perf/roofline.h"

#include "base/core/bits.h"
#include "base/core/err.h"

#include <math.h>
#include <string.h>

#define OVERLAP 0.5          /* see M */
#define ATTENTION_BYTES 0.88 /* share of bandwidth that decode attention gets */
#define HEAD_BYTES 0.8       /* share of bandwidth that reading the output matrix gets */
#define MEM_SHARE 0.9        /* share of the memory that a server plans with */
#define MEM_RUNTIME 0.15e9   /* bytes kept by the runtime; below, with the buffers of its peers */
#define MEM_RUNTIME_TP 0.6e9
#define ACTIVATION_MOE (8.0 / 5.5) /* factor for models with experts, which need more */
/* These are shares of the power between idle and a device's limit, not fitted to a table: decode steps
 * of large models draw about half of it, prompts nearly all, and running at four fifths of the clock
 * takes a fifth off a decode step's watts (POLCA, ASPLOS 2024). */
#define WATTS_MEMORY 0.35 /* while memory is read; its clock stays */
#define WATTS_ACTIVE 0.20 /* while anything runs */
#define WATTS_ARITHMETIC 0.60
#define CLOCK_POWER 3.0 /* the latter two follow this power of the clock: f V^2 */

static void init_memory(struct roofline *r, const struct hardware *h, const struct model_spec *m)
{
    double activation = h->activation_bytes * (m->experts ? ACTIVATION_MOE : 1);
    double runtime = r->tp > 1 ? MEM_RUNTIME_TP : MEM_RUNTIME;
    r->weight_bytes = model_spec_weights(m) * m->weight_bytes;
    /* With fewer KV heads than devices each device keeps one head, so heads are stored twice or more. */
    r->kv_token_bytes = model_spec_kv_token_bytes(m) * fmax(1, r->tp / m->kv_heads);
    r->kv_room_bytes = r->tp * (MEM_SHARE * h->mem_bytes - activation - runtime) - r->weight_bytes;
}

/* Returns the bytes of one token's activations that a layer's small kernels move, 16 bits each: two
 * norms and two sums over the hidden width, rotation over queries and keys, the feed-forward's activation. */
static double row_bytes(const struct model_spec *m, double tp)
{
    double whole = 2.0 * m->hidden * (2 + 3);
    double shared = 2.0 * m->head_dim * (m->heads + m->kv_heads) +
                    (m->gated ? 3.0 : 2.0) * m->ffn * (m->experts ? m->experts_active : 1);
    return 2 * (whole + shared / tp);
}

bool roofline_init(struct roofline *r, const struct hardware *h, const struct model_spec *m,
                   uint32_t tp)
{
    must(tp >= 1);
    memset(r, 0, sizeof *r); /* padding too: states are compared as bytes */
    if (m->heads % tp || (tp > 1 && h->link_bytes_s <= 0)) return false;

    double read_s = 1 / (h->eff_bytes * h->bytes_s), flop_s = 1 / (h->eff_flops * h->flops);
    double attention = model_spec_attention_weights(m) / tp, ffn = model_spec_ffn_weights(m) / tp;
    double kv_heads = fmax(1, (double)m->kv_heads / tp); /* each device keeps at least one */
    r->layers = m->layers;
    r->tp = tp;
    r->weights_s = (attention + (m->experts ? 0 : ffn)) * m->weight_bytes * read_s;
    r->expert_s = m->experts ? ffn * m->weight_bytes * read_s : 0;
    r->experts = m->experts;
    r->expert_miss = m->experts ? 1 - (double)m->experts_active / m->experts : 0;
    r->token_flop_s = 2 * (attention + ffn * (m->experts ? m->experts_active : 1)) * flop_s;
    r->token_row_s = row_bytes(m, tp) / (h->eff_rows * h->bytes_s);
    r->layer_s = h->layer_s;
    r->pair_s = 4.0 * m->heads / tp * m->head_dim / (h->eff_attn * h->flops);
    /* Memory bounds this on an accelerator; on a CPU, arithmetic does, as its caches are faster. */
    double kv_read_s =
        2 * kv_heads * m->head_dim * m->kv_element_bytes / (ATTENTION_BYTES * h->bytes_s);
    r->kv_token_s = fmax(kv_read_s, r->pair_s);
    r->attn_s = h->attn_s;
    r->attn_tile = h->attn_tile;
    r->attn_spare = h->attn_spare;
    r->attn_seq = h->attn_seq;
    r->attn_mixed = h->attn_mixed;

    r->head_s = (double)m->vocab * m->hidden / tp * m->weight_bytes / (HEAD_BYTES * h->bytes_s);
    r->head_token_s = 2.0 * m->vocab * m->hidden / tp * flop_s;
    if (tp > 1) {
        r->reduce_s = h->link_s;
        r->reduce_token_s = 2.0 * (tp - 1) / tp * 2 * m->hidden / (h->eff_link * h->link_bytes_s);
    }
    r->host_s = h->host_s;
    r->seq_s = h->seq_s;
    init_memory(r, h, m);
    r->watts_idle = tp * h->watts_idle;
    r->watts_max = tp * h->watts_max;
    r->tokens_validated_max = h->tokens_validated_max;
    /* The measured tables are of dense models only. */
    r->validated =
        h->validated && h->attn_validated && !m->experts && (tp == 1 || h->link_validated);
    return true;
}

/* Returns the time of a kernel that reads while it computes: above the larger time, below the sum. */
static inline double overlap_s(double read_s, double flop_s)
{
    return sqrt(read_s * read_s + OVERLAP * read_s * flop_s + flop_s * flop_s);
}

static inline double read_s(const struct roofline *r, double tokens)
{
    double s = r->weights_s;
    if (r->expert_s > 0) s += r->expert_s * r->experts * (1 - pow(r->expert_miss, tokens));
    return s;
}

/* These give the attention time of one layer: reading for decoding sessions, arithmetic for chunks. */
static inline double attend_read_s(const struct roofline *r, const struct perf_shape *s)
{
    if (s->decoding_seqs == 0) return 0;
    double tokens = (double)s->kv_tokens_decoding + r->attn_seq * s->decoding_seqs;
    return r->kv_token_s * tokens * (s->prefill_chunks ? r->attn_mixed : 1);
}

static inline double attend_flop_s(const struct roofline *r, const struct perf_shape *s)
{
    if (s->prefill_chunks == 0) return 0;
    double pairs = (double)(s->kv_tokens_read - s->kv_tokens_decoding);
    double tile = r->attn_tile * s->prefill_chunks, tokens = s->prefill_tokens;
    return r->pair_s * (pairs + r->attn_spare * tokens) * fmax(1, tile / tokens);
}

static inline double reduce_s(const struct roofline *r, double tokens)
{
    return r->reduce_s + r->reduce_token_s * tokens;
}

double roofline_layer_s(const struct roofline *r, uint32_t tokens)
{
    return overlap_s(read_s(r, tokens), r->token_flop_s * tokens) + r->layer_s +
           r->token_row_s * tokens;
}

double roofline_attention_s(const struct roofline *r, const struct perf_shape *shape)
{
    return r->attn_s + attend_read_s(r, shape) + attend_flop_s(r, shape);
}

double roofline_reduce_s(const struct roofline *r, uint32_t tokens)
{
    return reduce_s(r, tokens);
}

/* The seconds of one step, and of them those of memory and arithmetic. */
struct step_parts {
    double total_s, memory_s, compute_s;
};

static inline struct step_parts step_parts(const struct roofline *r, const struct perf_shape *s,
                                           double clock)
{
    double tokens = (double)s->prefill_tokens + s->decoding_seqs;
    double seqs = (double)s->decoding_seqs + s->prefill_chunks;
    double weights_s = read_s(r, tokens), flop_s = r->token_flop_s * tokens / clock;
    double rows_s = r->token_row_s * tokens;
    double cached_s = attend_read_s(r, s), pairs_s = attend_flop_s(r, s) / clock;
    double head_flop_s = r->head_token_s * seqs / clock;
    double layer_s = overlap_s(weights_s, flop_s) + r->layer_s + rows_s + r->attn_s + cached_s +
                     pairs_s + 2 * reduce_s(r, tokens);
    return (struct step_parts){
        .total_s =
            r->layers * layer_s + overlap_s(r->head_s, head_flop_s) + r->host_s + r->seq_s * seqs,
        .memory_s = r->layers * (weights_s + rows_s + cached_s) + r->head_s,
        .compute_s = r->layers * (flop_s + pairs_s) + head_flop_s,
    };
}

void roofline_parts(const struct roofline *r, const struct perf_shape *s,
                    double ret[ROOFLINE_PARTS])
{
    double tokens = (double)s->prefill_tokens + s->decoding_seqs;
    double seqs = (double)s->decoding_seqs + s->prefill_chunks;
    double layer_s = overlap_s(read_s(r, tokens), r->token_flop_s * tokens) + r->layer_s +
                     r->token_row_s * tokens + r->attn_s + 2 * reduce_s(r, tokens);
    ret[ROOFLINE_DENSE] = r->layers * layer_s + overlap_s(r->head_s, r->head_token_s * seqs);
    ret[ROOFLINE_READ] = r->layers * attend_read_s(r, s);
    ret[ROOFLINE_PAIRS] = r->layers * attend_flop_s(r, s);
    ret[ROOFLINE_HOST] = r->host_s;
    ret[ROOFLINE_SEQS] = r->seq_s * seqs;
}

void roofline_scale(struct roofline *r, const double factor[ROOFLINE_PARTS])
{
    double *const dense[] = { &r->weights_s,     &r->expert_s, &r->token_flop_s,
                              &r->token_row_s,   &r->layer_s,  &r->attn_s,
                              &r->head_s,        &r->reduce_s, &r->head_token_s,
                              &r->reduce_token_s };
    for (size_t i = 0; i < COUNT_OF(dense); i++)
        *dense[i] *= factor[ROOFLINE_DENSE];
    r->kv_token_s *= factor[ROOFLINE_READ];
    r->pair_s *= factor[ROOFLINE_PAIRS];
    r->host_s *= factor[ROOFLINE_HOST];
    r->seq_s *= factor[ROOFLINE_SEQS];
}

double roofline_step_s(const struct roofline *r, const struct perf_shape *shape)
{
    return step_parts(r, shape, 1).total_s;
}

double roofline_step_clock_s(const struct roofline *r, const struct perf_shape *shape, double clock)
{
    must(clock > 0 && clock <= 1);
    return step_parts(r, shape, clock).total_s;
}

double roofline_watts(const struct roofline *r, const struct perf_shape *shape, double clock)
{
    must(clock > 0 && clock <= 1);
    if (shape->prefill_tokens == 0 && shape->decoding_seqs == 0) return r->watts_idle;
    struct step_parts p = step_parts(r, shape, clock);
    double core = WATTS_ACTIVE * p.total_s + WATTS_ARITHMETIC * p.compute_s;
    double busy = WATTS_MEMORY * p.memory_s + core * pow(clock, CLOCK_POWER);
    return r->watts_idle + (r->watts_max - r->watts_idle) * fmin(1, busy / p.total_s);
}

uint64_t roofline_kv_tokens(const struct roofline *r)
{
    return r->kv_room_bytes > 0 ? (uint64_t)(r->kv_room_bytes / r->kv_token_bytes) : 0;
}

static double surrogate_step_s(const void *r, const struct perf_shape *shape)
{
    return roofline_step_s(r, shape);
}

void roofline_linear(const struct roofline *r, struct roofline_point at, struct perf_coef *ret)
{
    perf_surrogate(surrogate_step_s, r, at, ret);
}

bool roofline_range_ok(const struct roofline *r, const struct perf_shape *shape)
{
    return r->validated &&
           (double)shape->prefill_tokens + shape->decoding_seqs <= r->tokens_validated_max;
}

void perf_surrogate(double (*step_s)(const void *state, const struct perf_shape *shape),
                    const void *state, struct roofline_point at, struct perf_coef *ret)
{
    uint64_t seqs = at.decoding_seqs, n = at.chunk_tokens, context = at.context_tokens;
    struct perf_shape one = { .decoding_seqs = 1, .kv_tokens_read = 1, .kv_tokens_decoding = 1 };
    struct perf_shape many = { .decoding_seqs = at.decoding_seqs,
                               .kv_tokens_read = seqs,
                               .kv_tokens_decoding = seqs };
    struct perf_shape full = many, mixed, later;
    full.kv_tokens_read = full.kv_tokens_decoding = seqs * (1 + context);
    mixed = full; /* a chunk slows the decode attention beside it, which is part of its cost */
    mixed.prefill_tokens = at.chunk_tokens;
    mixed.prefill_chunks = 1;
    mixed.kv_tokens_read += n * (n + 1) / 2;
    later = mixed;
    later.kv_tokens_read += n * context;

    double one_s = step_s(state, &one), many_s = step_s(state, &many);
    double full_s = step_s(state, &full), mixed_s = step_s(state, &mixed);
    double later_s = step_s(state, &later), read = (double)(seqs * context);
    *ret = (struct perf_coef){ .ratio_p90 = 1 };
    if (context) ret->kv_read_s = fmax(0, (full_s - many_s) / read);
    if (seqs > 1)
        ret->decode_seq_s = fmax(0, (many_s - one_s) / (double)(seqs - 1) - ret->kv_read_s);
    ret->step_s = fmax(0, one_s - ret->decode_seq_s - ret->kv_read_s);
    if (context) ret->attend_s = fmax(0, (later_s - mixed_s) / (double)(n * context));
    ret->prefill_token_s =
        fmax(0, (mixed_s - full_s) / (double)n - ret->attend_s * (double)(n + 1) / 2);
}
