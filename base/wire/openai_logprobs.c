/* openai_logprobs.c - keeps rows of values and renders them: a list of objects for a chat, four parallel
 * lists for a completion. */
#include "base/wire/openai_logprobs.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"

#include <stdio.h>

void openai_logprobs_reset(struct openai_logprobs *l, const struct openai_request *r,
                           const struct openai_tokens *tokens, size_t bytes_max)
{
    l->wanted = r->logprobs || r->scores_prompt;
    l->surface = r->surface;
    l->of_output = r->logprobs;
    l->output_top = r->top_logprobs;
    l->of_prompt = r->scores_prompt;
    l->prompt_top = r->prompt_top;
    l->top = max_u32(r->top_logprobs, r->prompt_top);
    l->echoes = r->echo;
    l->ignore_eos = r->ignore_eos;
    l->tokens = *tokens;
    l->offset = 0;
    l->prompt = 0;
    buf_clear(&l->rows);
    buf_clear(&l->json);
    buf_clear(&l->prompt_json);
    l->rows.max = l->json.max = l->prompt_json.max = bytes_max;
}

void openai_logprobs_fini(struct openai_logprobs *l)
{
    buf_fini(&l->rows);
    buf_fini(&l->json);
    buf_fini(&l->prompt_json);
}

int openai_logprobs_add(struct openai_logprobs *l, const struct token_value *value,
                        uint32_t value_count, uint32_t count)
{
    if (value_count != (uint64_t)count * (1 + l->top)) return -EPROTO;
    return buf_append(&l->rows, value, value_count * sizeof *value);
}

static uint32_t characters(struct str bytes)
{
    uint32_t count = 0;
    for (size_t i = 0; i < bytes.len; i++)
        count += ((unsigned char)bytes.data[i] & 0xc0) != 0x80; /* begins a character */
    return count;
}

/* The bytes of the tokens may have characters before the echo's first: SentencePiece puts a space there. */
int openai_logprobs_prompt(struct openai_logprobs *l, const uint32_t *ids, uint32_t count,
                           struct str echo)
{
    struct token_value row[1 + OPENAI_TOP_LOGPROBS_MAX];
    int64_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        all += characters(l->tokens.bytes(l->tokens.vocab, ids[i]));
    l->offset = l->echoes ? (int64_t)characters(echo) - all : 0;
    l->prompt = count;
    row[0] = (struct token_value){ ids[0], LOGPROB_ABSENT };
    for (uint32_t i = 1; i <= l->top; i++)
        row[i] = (struct token_value){ 0, LOGPROB_NONE };
    return openai_logprobs_add(l, row, 1 + l->top, 1);
}

static struct token_value value_at(const struct openai_logprobs *l, size_t at)
{
    struct token_value v;
    memcpy(&v, l->rows.data + at * sizeof v, sizeof v);
    return v;
}

/* ---- one token ---- */

/* Returns the token as a client sees it; `scratch` holds it where it is no UTF-8. */
static struct str name_of(struct str token, struct buf *scratch)
{
    if (str_utf8_valid(token)) return token;
    buf_clear(scratch);
    buf_text(scratch, "bytes:");
    for (size_t i = 0; i < token.len; i++)
        buf_printf(scratch, "\\x%02x", (unsigned char)token.data[i]);
    return buf_view(scratch);
}

static void put_token(struct json_writer *w, struct str token)
{
    CLEANUP(buf_fini) struct buf scratch = { 0 };
    json_put_str(w, name_of(token, &scratch));
    if (scratch.rc < 0) w->out->rc = scratch.rc;
}

static void put_value(struct json_writer *w, const struct openai_logprobs *l, struct token_value v)
{
    struct str token = l->tokens.shown(l->tokens.vocab, v.id);
    json_key(w, "token");
    put_token(w, token);
    json_kv_f64(w, "logprob", (double)v.value);
    json_key(w, "bytes");
    json_array(w);
    for (size_t i = 0; i < token.len; i++)
        json_put_u64(w, (unsigned char)token.data[i]);
    json_array_end(w);
}

/* ---- the forms ---- */

static void put_chat(struct json_writer *w, const struct openai_logprobs *l, size_t from,
                     size_t tokens)
{
    const size_t stride = 1 + (size_t)l->top;
    json_object(w);
    json_key(w, "content");
    json_array(w);
    for (size_t t = from; t < tokens; t++) {
        json_object(w);
        put_value(w, l, value_at(l, t * stride));
        json_key(w, "top_logprobs");
        json_array(w);
        for (size_t i = 1; i <= l->output_top; i++) {
            struct token_value v = value_at(l, t * stride + i);
            if (v.value <= LOGPROB_NONE) break;
            json_object(w);
            put_value(w, l, v);
            json_object_end(w);
        }
        json_array_end(w);
        json_object_end(w);
    }
    json_array_end(w);
    json_kv_text(w, "refusal", NULL);
    json_object_end(w);
}

/* Writes the alternatives of a token as members: likeliest first, and the chosen one if it is not among
 * them, so that there may be one more than was asked for, as OpenAI says. Two tokens of one text
 * would be one member: the likelier stays. */
static void put_alternatives(struct json_writer *w, const struct openai_logprobs *l, size_t at)
{
    CLEANUP(buf_fini) struct buf scratch = { 0 };
    struct str seen[1 + OPENAI_TOP_LOGPROBS_MAX];
    uint32_t count = 0;
    json_object(w);
    for (uint32_t i = 1; i <= l->output_top + 1; i++) {
        struct token_value v = value_at(l, at + (i <= l->output_top ? i : 0));
        struct str token = l->tokens.shown(l->tokens.vocab, v.id);
        bool known = i <= l->output_top && v.value <= LOGPROB_NONE;
        for (uint32_t k = 0; k < count; k++)
            known = known || str_eq(seen[k], token);
        if (known) continue;
        seen[count++] = token;
        json_key_str(w, name_of(token, &scratch));
        json_put_f64(w, (double)v.value);
    }
    json_object_end(w);
    if (scratch.rc < 0) w->out->rc = scratch.rc;
}

static bool is_absent(const struct openai_logprobs *l, size_t at)
{
    return value_at(l, at).value >= LOGPROB_ABSENT;
}

static void put_completion(struct json_writer *w, struct openai_logprobs *l, size_t from,
                           size_t tokens)
{
    const size_t stride = 1 + (size_t)l->top;
    json_object(w);
    json_key(w, "text_offset");
    json_array(w);
    for (size_t t = from; t < tokens; t++) {
        json_put_u64(w, (uint64_t)max_i64(l->offset, 0));
        l->offset += characters(l->tokens.bytes(l->tokens.vocab, value_at(l, t * stride).id));
    }
    json_array_end(w);
    json_key(w, "token_logprobs");
    json_array(w);
    for (size_t t = from; t < tokens; t++) {
        if (is_absent(l, t * stride))
            json_put_null(w);
        else
            json_put_f64(w, (double)value_at(l, t * stride).value);
    }
    json_array_end(w);
    json_key(w, "tokens");
    json_array(w);
    for (size_t t = from; t < tokens; t++)
        put_token(w, l->tokens.shown(l->tokens.vocab, value_at(l, t * stride).id));
    json_array_end(w);
    json_key(w, "top_logprobs");
    json_array(w);
    for (size_t t = from; t < tokens; t++) {
        if (is_absent(l, t * stride))
            json_put_null(w);
        else
            put_alternatives(w, l, t * stride);
    }
    json_array_end(w);
    json_object_end(w);
}

/* Writes the prompt's tokens as vLLM does: for each an object whose members are ids, the token's own first, and
 * null for the first. The rank of the own one is null where it is not among the alternatives. */
static void put_prompt(struct openai_logprobs *l, size_t tokens)
{
    CLEANUP(buf_fini) struct buf scratch = { 0 };
    const size_t stride = 1 + (size_t)l->top;
    struct json_writer w;
    json_writer_init(&w, &l->prompt_json);
    json_array(&w);
    for (size_t t = 0; t < tokens; t++) {
        if (is_absent(l, t * stride)) {
            json_put_null(&w);
            continue;
        }
        const struct token_value own = value_at(l, t * stride);
        uint32_t rank = 0;
        for (uint32_t i = 1; i <= l->top && rank == 0; i++)
            if (value_at(l, t * stride + i).id == own.id) rank = i;
        json_object(&w);
        for (uint32_t i = 0; i <= l->prompt_top; i++) {
            const struct token_value v = value_at(l, t * stride + i);
            char key[16];
            if (i > 0 && (v.id == own.id || v.value <= LOGPROB_NONE)) continue;
            snprintf(key, sizeof key, "%u", v.id);
            json_key(&w, key);
            json_object(&w);
            json_kv_f64(&w, "logprob", (double)v.value);
            json_key(&w, "rank");
            if (i > 0 || rank > 0)
                json_put_u64(&w, i > 0 ? i : rank);
            else
                json_put_null(&w);
            json_key(&w, "decoded_token");
            json_put_str(&w, name_of(l->tokens.shown(l->tokens.vocab, v.id), &scratch));
            json_object_end(&w);
        }
        json_object_end(&w);
    }
    json_array_end(&w);
    if (scratch.rc < 0) l->prompt_json.rc = scratch.rc;
}

struct str openai_logprobs_take(struct openai_logprobs *l)
{
    const size_t stride = 1 + (size_t)l->top;
    size_t tokens = l->rows.len / sizeof(struct token_value) / stride;
    struct json_writer w;
    buf_clear(&l->json);
    if (tokens > l->prompt && !l->ignore_eos &&
        l->tokens.is_end(l->tokens.vocab, value_at(l, (tokens - 1) * stride).id))
        tokens--; /* only the last token of an output can be one */
    const uint32_t of_prompt = min_u32(l->prompt, (uint32_t)tokens);
    const size_t from = l->echoes ? 0 : of_prompt;
    l->prompt -= of_prompt;
    if (l->of_prompt && of_prompt > 0) put_prompt(l, of_prompt);
    if (l->of_output && tokens > from) {
        json_writer_init(&w, &l->json);
        if (l->surface == OPENAI_CHAT)
            put_chat(&w, l, from, tokens);
        else
            put_completion(&w, l, from, tokens);
    }
    buf_clear(&l->rows);
    if (l->prompt_json.rc < 0) l->json.rc = l->prompt_json.rc;
    return l->json.rc < 0 ? (struct str){ 0 } : buf_view(&l->json);
}
