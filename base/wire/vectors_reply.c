/* vectors_reply.c - renders vectors, scores and rankings. */
#include "base/wire/vectors_reply.h"

#include "base/core/bits.h"
#include "base/core/json.h"

#include <math.h>
#include <stdlib.h>

/* Of a float with nine digits, sign, exponent and comma: -1.23456789e-38, */
#define NUMBER_BYTES 17

int vector_normalise(const double *sum, uint32_t kept, float *ret)
{
    double length = 0;
    for (uint32_t i = 0; i < kept; i++)
        length += sum[i] * sum[i];
    length = sqrt(length);
    if (!(length > 0) || isinf(length)) return -EDOM;
    for (uint32_t i = 0; i < kept; i++)
        ret[i] = (float)(sum[i] / length);
    return 0;
}

double vector_cosine(const float *a, const float *b, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return fmax(-1, fmin(1, sum)); /* rounding may leave it a little beyond */
}

size_t vector_bytes(uint32_t count, bool base64)
{
    return base64 ? ((size_t)count * sizeof(float) + 2) / 3 * 4 + 2
                  : (size_t)count * NUMBER_BYTES + 2;
}

static void put_base64(const unsigned char *bytes, size_t count, struct buf *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        const size_t left = min_size(count - i, 3);
        uint32_t three = (uint32_t)bytes[i] << 16;
        if (left > 1) three |= (uint32_t)bytes[i + 1] << 8;
        if (left > 2) three |= bytes[i + 2];
        const char four[4] = { digits[three >> 18], digits[three >> 12 & 63],
                               left > 1 ? digits[three >> 6 & 63] : '=',
                               left > 2 ? digits[three & 63] : '=' };
        buf_append(out, four, sizeof four);
    }
}

void vector_render(const float *v, uint32_t count, bool base64, struct buf *out)
{
    buf_reserve(out, vector_bytes(count, base64));
    if (base64) { /* every machine that we run on is little-endian, as the form asks */
        buf_byte(out, '"');
        put_base64((const unsigned char *)v, count * sizeof *v, out);
        buf_byte(out, '"');
        return;
    }
    buf_byte(out, '[');
    for (uint32_t i = 0; i < count; i++)
        buf_printf(out, "%s%.9g", i > 0 ? "," : "", (double)v[i]);
    buf_byte(out, ']');
}

static void put_usage(struct json_writer *w, const struct usage *usage)
{
    json_key(w, "usage");
    json_object(w);
    json_kv_u64(w, "prompt_tokens", usage->prompt_tokens);
    json_kv_u64(w, "total_tokens", usage->prompt_tokens);
    json_key(w, "prompt_tokens_details");
    json_object(w);
    json_kv_u64(w, "cached_tokens", usage->cached_tokens);
    json_object_end(w);
    json_object_end(w);
}

/* Writes an id of the kind, of which a request id is at most 128 bytes. */
static void put_id(struct json_writer *w, struct str prefix, const struct openai_reply *r)
{
    char id[160];
    const size_t rest = min_size(r->id.len, sizeof id - prefix.len);
    memcpy(id, prefix.data, prefix.len);
    if (rest) memcpy(id + prefix.len, r->id.data, rest);
    json_kv_str(w, "id", str_of(id, prefix.len + rest));
}

int embeddings_reply(const struct openai_reply *r, const struct buf *vector, uint32_t count,
                     const struct usage *usage, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "object", "list");
    json_key(&w, "data");
    json_array(&w);
    for (uint32_t i = 0; i < count; i++) {
        if (vector[i].rc < 0) return vector[i].rc;
        json_object(&w);
        json_kv_text(&w, "object", "embedding");
        json_kv_u64(&w, "index", i);
        json_key(&w, "embedding");
        json_put_raw(&w, buf_view(&vector[i]));
        json_object_end(&w);
    }
    json_array_end(&w);
    json_kv_str(&w, "model", r->model);
    put_usage(&w, usage);
    json_object_end(&w);
    return out->rc;
}

int scores_reply(const struct openai_reply *r, const double *score, uint32_t count,
                 const struct usage *usage, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    put_id(&w, STR("score-"), r);
    json_kv_text(&w, "object", "list");
    json_kv_i64(&w, "created", r->created_s);
    json_kv_str(&w, "model", r->model);
    json_key(&w, "data");
    json_array(&w);
    for (uint32_t i = 0; i < count; i++) {
        json_object(&w);
        json_kv_u64(&w, "index", i);
        json_kv_text(&w, "object", "score");
        json_kv_f64(&w, "score", score[i]);
        json_object_end(&w);
    }
    json_array_end(&w);
    put_usage(&w, usage);
    json_object_end(&w);
    return out->rc;
}

/* Orders by score, the highest first; of equal ones the earlier document. */
static int by_score(const void *a, const void *b)
{
    const struct document_rank *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return (x->index > y->index) - (x->index < y->index);
}

int ranking_reply(const struct openai_reply *r, const struct openai_request *q,
                  struct document_rank *ranked, uint32_t count, const struct usage *usage,
                  struct buf *out)
{
    const struct openai_vectors *v = &q->vectors;
    const uint32_t told = v->top_n > 0 ? min_u32(v->top_n, count) : count;
    struct json_writer w;
    qsort(ranked, count, sizeof *ranked, by_score);
    json_writer_init(&w, out);
    json_object(&w);
    put_id(&w, STR("rerank-"), r);
    json_kv_str(&w, "model", r->model);
    put_usage(&w, usage);
    json_key(&w, "results");
    json_array(&w);
    for (uint32_t i = 0; i < told; i++) {
        json_object(&w);
        json_kv_u64(&w, "index", ranked[i].index);
        json_kv_f64(&w, "relevance_score", ranked[i].score);
        if (v->return_documents) {
            json_key(&w, "document");
            json_object(&w);
            json_kv_str(&w, "text", q->prompts[v->first_count + ranked[i].index].text);
            json_object_end(&w);
        }
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}
