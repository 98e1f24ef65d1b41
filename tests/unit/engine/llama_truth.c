/* llama_truth.c - see llama_truth.h. Everything is done per token over the whole past, the way
 * the formulas are written; RoPE as multiplication of complex numbers. */
#include "tests/unit/engine/llama_truth.h"

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct truth {
    const struct llama_shape *s;
    struct gguf *g;
    struct str file;
    uint32_t count;
    double *x; /* [count][embd] */
};

static double *zeros(size_t count)
{
    double *p = calloc(count, sizeof *p);
    must(p);
    return p;
}

static float *tensor(const struct truth *t, const char *format, uint32_t layer)
{
    char name[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, format, layer);
#pragma GCC diagnostic pop
    const struct gguf_tensor *found = gguf_tensor_find(t->g, str_from(name));
    if (!found) return NULL;
    float *values = calloc(found->elements, sizeof *values);
    must(values);
    weight_types[found->type].to_f32(t->file.data + found->offset, (uint32_t)found->elements,
                                     values);
    return values;
}

/* y[rows] = W x; each row of W is `cols` long. */
static void multiply(const float *w, const double *x, uint32_t rows, uint32_t cols, double *y)
{
    for (uint32_t r = 0; r < rows; r++) {
        y[r] = 0;
        for (uint32_t k = 0; k < cols; k++)
            y[r] += (double)w[(size_t)r * cols + k] * x[k];
    }
}

static void norm(const double *x, const float *w, uint32_t n, double *y)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] / sqrt(squares / n + (double)1e-5f) * (double)w[i];
}

static void rotate(const struct truth *t, double *x, uint32_t heads, uint32_t position)
{
    uint32_t dims = t->s->rope_dims ? t->s->rope_dims : t->s->head_dim;
    float *factors = tensor(t, "rope_freqs.weight", 0);
    for (uint32_t h = 0; h < heads; h++) {
        for (uint32_t i = 0; i < dims / 2; i++) {
            double *pair = x + (size_t)h * t->s->head_dim + 2 * (size_t)i;
            double angle = position * pow(500, -2.0 * i / dims);
            if (factors) angle /= (double)factors[i];
            if (t->s->rope_scale > 0) angle /= (double)t->s->rope_scale;
            double complex z = CMPLX(pair[0], pair[1]) * cexp(CMPLX(0, angle));
            pair[0] = creal(z), pair[1] = cimag(z);
        }
    }
    free(factors);
}

/* One head of one query over keys and values [position + 1][kv width]. */
static void attend_head(const struct truth *t, const double *q, const double *k, const double *v,
                        uint32_t position, double *out)
{
    uint32_t dim = t->s->head_dim, width = t->s->kv_heads * dim;
    double *weight = zeros(position + 1), sum = 0;
    for (uint32_t p = 0; p <= position; p++) {
        double score = 0;
        for (uint32_t d = 0; d < dim; d++)
            score += q[d] * k[(size_t)p * width + d];
        weight[p] = exp(score / sqrt(dim));
        sum += weight[p];
    }
    for (uint32_t d = 0; d < dim; d++) {
        out[d] = 0;
        for (uint32_t p = 0; p <= position; p++)
            out[d] += weight[p] / sum * v[(size_t)p * width + d];
    }
    free(weight);
}

static void attention(struct truth *t, uint32_t layer)
{
    const struct llama_shape *s = t->s;
    uint32_t q_width = s->heads * s->head_dim, kv_width = s->kv_heads * s->head_dim;
    float *wq = tensor(t, "blk.%u.attn_q.weight", layer);
    float *wk = tensor(t, "blk.%u.attn_k.weight", layer);
    float *wv = tensor(t, "blk.%u.attn_v.weight", layer);
    float *wo = tensor(t, "blk.%u.attn_output.weight", layer);
    float *wn = tensor(t, "blk.%u.attn_norm.weight", layer);
    double *n = zeros(s->embd), *q = zeros(q_width), *out = zeros(q_width), *y = zeros(s->embd);
    double *k = zeros(t->count * kv_width), *v = zeros(t->count * kv_width);
    for (uint32_t p = 0; p < t->count; p++) {
        double *x = t->x + (size_t)p * s->embd;
        norm(x, wn, s->embd, n);
        multiply(wq, n, q_width, s->embd, q);
        multiply(wk, n, kv_width, s->embd, k + (size_t)p * kv_width);
        multiply(wv, n, kv_width, s->embd, v + (size_t)p * kv_width);
        rotate(t, q, s->heads, p);
        rotate(t, k + (size_t)p * kv_width, s->kv_heads, p);
        for (uint32_t h = 0; h < s->heads; h++) {
            size_t head = (size_t)(h / (s->heads / s->kv_heads)) * s->head_dim;
            attend_head(t, q + (size_t)h * s->head_dim, k + head, v + head, p,
                        out + (size_t)h * s->head_dim);
        }
        multiply(wo, out, s->embd, q_width, y);
        for (uint32_t i = 0; i < s->embd; i++)
            x[i] += y[i];
    }
    free(wq), free(wk), free(wv), free(wo), free(wn);
    free(n), free(q), free(out), free(y), free(k), free(v);
}

static void feed_forward(struct truth *t, uint32_t layer)
{
    const struct llama_shape *s = t->s;
    float *wg = tensor(t, "blk.%u.ffn_gate.weight", layer);
    float *wu = tensor(t, "blk.%u.ffn_up.weight", layer);
    float *wd = tensor(t, "blk.%u.ffn_down.weight", layer);
    float *wn = tensor(t, "blk.%u.ffn_norm.weight", layer);
    double *n = zeros(s->embd), *gate = zeros(s->ff), *up = zeros(s->ff), *y = zeros(s->embd);
    for (uint32_t p = 0; p < t->count; p++) {
        double *x = t->x + (size_t)p * s->embd;
        norm(x, wn, s->embd, n);
        multiply(wg, n, s->ff, s->embd, gate);
        multiply(wu, n, s->ff, s->embd, up);
        for (uint32_t i = 0; i < s->ff; i++)
            gate[i] *= up[i] / (1 + exp(-gate[i]));
        multiply(wd, gate, s->embd, s->ff, y);
        for (uint32_t i = 0; i < s->embd; i++)
            x[i] += y[i];
    }
    free(wg), free(wu), free(wd), free(wn);
    free(n), free(gate), free(up), free(y);
}

double *llama_truth(const struct gguf_make *file, const struct llama_shape *shape,
                    const uint32_t *ids, uint32_t count)
{
    struct buf bytes = { 0 };
    make_finish(file, &bytes);
    struct truth t = { .s = shape, .file = buf_view(&bytes), .count = count };
    struct gguf_source source = memory_source(&t.file);
    must(gguf_parse(&source, &t.g, NULL) == 0);
    float *embedding = tensor(&t, "token_embd.weight", 0);
    t.x = zeros(count * (size_t)shape->embd);
    for (uint32_t p = 0; p < count; p++)
        for (uint32_t i = 0; i < shape->embd; i++)
            t.x[(size_t)p * shape->embd + i] = (double)embedding[(size_t)ids[p] * shape->embd + i];
    for (uint32_t layer = 0; layer < shape->layers; layer++) {
        attention(&t, layer);
        feed_forward(&t, layer);
    }
    float *wn = tensor(&t, "output_norm.weight", 0), *wo = tensor(&t, "output.weight", 0);
    double *logits = zeros(count * (size_t)shape->vocab), *n = zeros(shape->embd);
    for (uint32_t p = 0; p < count; p++) {
        norm(t.x + (size_t)p * shape->embd, wn, shape->embd, n);
        multiply(wo ? wo : embedding, n, shape->vocab, shape->embd,
                 logits + (size_t)p * shape->vocab);
    }
    free(embedding), free(wn), free(wo), free(n), free(t.x);
    gguf_free(t.g);
    buf_fini(&bytes);
    return logits;
}
