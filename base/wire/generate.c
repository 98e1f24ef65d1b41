/* generate.c - encodes and decodes the generate call and its frames. */
#include "base/wire/generate.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/wire/sync.h"

const char *const finish_names[FINISH_COUNT] = { "none",  "stop",  "length",
                                                 "abort", "error", "refused" };

/* These ranges admit all that openai.c admits; they are checked again because an engine trusts no peer. */
static const struct field sampling_rows[] = {
    FIELD(struct sampling, temperature, FIELD_F64, .required = true, .max = 100),
    FIELD(struct sampling, top_p, FIELD_F64, .required = true, .max = 1),
    FIELD(struct sampling, min_p, FIELD_F64, .max = 1),
    FIELD(struct sampling, presence_penalty, FIELD_F64, .min = -100, .max = 100),
    FIELD(struct sampling, frequency_penalty, FIELD_F64, .min = -100, .max = 100),
    FIELD(struct sampling, repetition_penalty, FIELD_F64, .required = true, .min = 0.01,
          .max = 100),
    FIELD(struct sampling, top_k, FIELD_U32),
    FIELD(struct sampling, has_seed, FIELD_BOOL),
    FIELD(struct sampling, seed, FIELD_U64),
    FIELD(struct sampling, unnamed, FIELD_U32, .max = SAMPLING_ALL),
};
static const struct field_set sampling_set = FIELD_SET(struct sampling, sampling_rows);

/* The rows behind the version, of calls with a grammar and without. */
#define REQUEST_ROWS                                                                               \
    FIELD(struct generate_request, id, FIELD_STR, .required = true, .min = 1, .max = 128),         \
        FIELD_ARRAY("ids", struct generate_request, ids, id_count, FIELD_TOKENS, GENERATE_IDS_MAX, \
                    .required = true, .min = 1),                                                   \
        FIELD(struct generate_request, prompt_tokens, FIELD_U32, .required = true, .min = 1,       \
              .max = GENERATE_IDS_MAX),                                                            \
        FIELD(struct generate_request, sampling, FIELD_OBJECT, .required = true,                   \
              .of = &sampling_set),                                                                \
        FIELD(struct generate_request, max_tokens, FIELD_U32, .required = true, .min = 1,          \
              .max = INT32_MAX),                                                                   \
        FIELD(struct generate_request, min_tokens, FIELD_U32, .max = INT32_MAX),                   \
        FIELD_ARRAY("stop", struct generate_request, stop, stop_count, FIELD_STRS,                 \
                    GENERATE_STOP_MAX, .each_bytes_max = GENERATE_STOP_BYTES_MAX, .nul = true),    \
        FIELD(struct generate_request, ignore_eos, FIELD_BOOL),                                    \
        FIELD(struct generate_request, tenant, FIELD_STR, .max = 128),                             \
        FIELD(struct generate_request, deadline_ms, FIELD_U32),                                    \
        FIELD(struct generate_request, predicted_p50, FIELD_U32),                                  \
        FIELD(struct generate_request, predicted_p90, FIELD_U32),                                  \
        FIELD(struct generate_request, predicted_mean, FIELD_U32),                                 \
        FIELD(struct generate_request, has_rank, FIELD_BOOL),                                      \
        FIELD(struct generate_request, rank, FIELD_F64, .min = -GENERATE_RANK_MAX,                 \
              .max = GENERATE_RANK_MAX),                                                           \
        FIELD(struct generate_request, group, FIELD_HEX64),                                        \
        FIELD(struct generate_request, weight, FIELD_F64, .max = TENANT_WEIGHT_MAX),               \
        FIELD(struct generate_request, goes_on, FIELD_BOOL),                                       \
        FIELD(struct generate_request, kv_host, FIELD_STR, .max = GENERATE_HOST_BYTES_MAX),        \
        FIELD(struct generate_request, kv_port, FIELD_U32, .max = UINT16_MAX),                     \
        FIELD(struct generate_request, kv_ticket, FIELD_STR, .max = GENERATE_TICKET_BYTES_MAX),    \
        FIELD(struct generate_request, kv_key, FIELD_STR, .max = GENERATE_KEY_HEX),                \
        FIELD(struct generate_request, kv_tls, FIELD_BOOL)

static const struct field request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_VERSION),
    REQUEST_ROWS,
};
static const struct field_set request_set = FIELD_SET(struct generate_request, request_rows);

#define GRAMMAR_ROWS                                                            \
    FIELD_AS("grammar_kind", struct generate_request, grammar.kind, FIELD_ENUM, \
             .names = grammar_kind_names, .max = GRAMMAR_KIND_COUNT),           \
        FIELD_AS("grammar", struct generate_request, grammar.text, FIELD_STR,   \
                 .max = GRAMMAR_TEXT_BYTES_MAX, .nul = true)

static const struct field grammar_request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_GRAMMAR_VERSION),
    REQUEST_ROWS,
    GRAMMAR_ROWS,
};
static const struct field_set grammar_request_set =
    FIELD_SET(struct generate_request, grammar_request_rows);

#define VALUES_ROWS                                                                              \
    FIELD(struct generate_request, logprobs, FIELD_BOOL),                                        \
        FIELD_ARRAY("logit_bias", struct generate_request, logit_bias, bias_count, FIELD_VALUES, \
                    GENERATE_BIASES_MAX),                                                        \
        FIELD(struct generate_request, top_logprobs, FIELD_U32, .max = GENERATE_LOGPROBS_MAX)

static const struct field values_request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_VALUES_VERSION),
    REQUEST_ROWS,
    GRAMMAR_ROWS,
    VALUES_ROWS,
};
static const struct field_set values_request_set =
    FIELD_SET(struct generate_request, values_request_rows);

static const struct field marks_request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_MARKS_VERSION),
    REQUEST_ROWS,
    GRAMMAR_ROWS,
    VALUES_ROWS,
    FIELD(struct generate_request, marks, FIELD_BOOL),
};
static const struct field_set marks_request_set =
    FIELD_SET(struct generate_request, marks_request_rows);

#define SCORES_ROWS                                                                           \
    FIELD(struct generate_request, prompt_logprobs_from, FIELD_U32, .max = GENERATE_IDS_MAX), \
        FIELD(struct generate_request, prompt_only, FIELD_BOOL)

static const struct field scores_request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_SCORES_VERSION),
    REQUEST_ROWS,
    GRAMMAR_ROWS,
    VALUES_ROWS,
    FIELD(struct generate_request, marks, FIELD_BOOL),
    SCORES_ROWS,
};
static const struct field_set scores_request_set =
    FIELD_SET(struct generate_request, scores_request_rows);

static const struct field adapter_request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_ADAPTER_VERSION),
    REQUEST_ROWS,
    GRAMMAR_ROWS,
    VALUES_ROWS,
    FIELD(struct generate_request, marks, FIELD_BOOL),
    SCORES_ROWS,
    FIELD(struct generate_request, adapter, FIELD_STR, .required = true, .min = 1,
          .max = SHA256_HEX),
};
static const struct field_set adapter_request_set =
    FIELD_SET(struct generate_request, adapter_request_rows);

static const struct field think_request_rows[] = {
    FIELD_AS("v", struct generate_request, id, FIELD_VERSION, .max = GENERATE_THINK_VERSION),
    REQUEST_ROWS,
    GRAMMAR_ROWS,
    VALUES_ROWS,
    FIELD(struct generate_request, marks, FIELD_BOOL),
    SCORES_ROWS,
    FIELD(struct generate_request, adapter, FIELD_STR, .max = SHA256_HEX),
    FIELD(struct generate_request, think_max, FIELD_U32, .required = true, .min = 1,
          .max = INT32_MAX),
};
static const struct field_set think_request_set =
    FIELD_SET(struct generate_request, think_request_rows);

/* Rows by version, the oldest first: a call is written in the first one that has all it needs. */
static const struct field_set *const request_sets[] = { &request_set,        &grammar_request_set,
                                                        &values_request_set, &marks_request_set,
                                                        &scores_request_set, &adapter_request_set,
                                                        &think_request_set };

static const struct field usage_rows[] = {
    FIELD_AS("prompt", struct usage, prompt_tokens, FIELD_U32),
    FIELD_AS("cached", struct usage, cached_tokens, FIELD_U32),
    FIELD_AS("generated", struct usage, generated_tokens, FIELD_U32),
};
static const struct field_set usage_set = FIELD_SET(struct usage, usage_rows);

static const struct field frame_rows[] = {
    FIELD_ARRAY("ids", struct generate_frame, ids, id_count, FIELD_TOKENS, GENERATE_FRAME_IDS_MAX),
    FIELD(struct generate_frame, text, FIELD_STR, .max = GENERATE_FRAME_BYTES_MAX, .nul = true),
    FIELD_ARRAY("logprobs", struct generate_frame, logprobs, logprob_count, FIELD_VALUES,
                GENERATE_FRAME_VALUES_MAX),
    FIELD_ARRAY("prompt_logprobs", struct generate_frame, prompt_logprobs, prompt_logprob_count,
                FIELD_VALUES, GENERATE_FRAME_VALUES_MAX),
    FIELD(struct generate_frame, finish, FIELD_ENUM, .names = finish_names, .max = FINISH_COUNT),
    FIELD(struct generate_frame, usage, FIELD_OBJECT, .of = &usage_set,
          .present_offset = offsetof(struct generate_frame, has_usage)),
    FIELD(struct generate_frame, stopped, FIELD_STR, .max = GENERATE_STOP_BYTES_MAX, .nul = true),
    FIELD(struct generate_frame, error, FIELD_STR, .max = ERR_TEXT_MAX),
};
static const struct field_set frame_set = FIELD_SET(struct generate_frame, frame_rows);

int generate_encode(const struct generate_request *req, struct buf *out)
{
    uint32_t version = req->grammar.kind != GRAMMAR_NONE;
    if (req->logprobs || req->bias_count > 0) version = 2;
    if (req->marks) version = 3;
    if (req->prompt_logprobs_from > 0 || req->prompt_only) version = 4;
    if (req->adapter.len > 0) version = 5;
    if (req->think_max > 0) version = 6;
    return fields_encode(request_sets[version], req, out);
}

/* Returns the rows of the version that a call names, which stands at its beginning; the newest if it names none that
 * is known, to refuse it. */
static const struct field_set *set_of(struct str text)
{
    struct json_reader r;
    uint64_t version = 0;
    json_reader_init(&r, text);
    if (json_next(&r) == JSON_OBJECT)
        while (json_next(&r) == JSON_KEY && !json_key_is(&r, "v"))
            json_skip(&r);
    if (r.token == JSON_KEY) json_next(&r), (void)json_u64(&r, &version);
    bool known = version >= GENERATE_VERSION && version <= GENERATE_THINK_VERSION;
    return request_sets[known ? version - GENERATE_VERSION : COUNT_OF(request_sets) - 1];
}

int generate_decode(struct str text, struct arena *arena, struct generate_request *ret,
                    struct err *err)
{
    struct generate_request req;
    int rc = fields_decode(set_of(text), text, arena, &req, "generate", err);
    if (rc < 0) return rc;
    if (req.top_logprobs > 0 && !req.logprobs)
        return err_set(err, -EINVAL, "generate: top_logprobs needs logprobs");
    if (req.prompt_logprobs_from > 0 && !req.logprobs)
        return err_set(err, -EINVAL, "generate: prompt_logprobs_from needs logprobs");
    if (req.prompt_logprobs_from > req.prompt_tokens)
        return err_set(err, -EINVAL, "generate: prompt_logprobs_from %u is beyond the prompt of %u",
                       req.prompt_logprobs_from, req.prompt_tokens);
    if (req.grammar.kind == GRAMMAR_NONE && req.grammar.text.len > 0)
        return err_set(err, -EINVAL, "generate: a grammar needs its grammar_kind");
    if (req.prompt_tokens > req.id_count)
        return err_set(err, -EINVAL, "generate: prompt_tokens %u is more than the %u ids",
                       req.prompt_tokens, req.id_count);
    if ((req.kv_host.len > 0) != (req.kv_port > 0))
        return err_set(err, -EINVAL, "generate: kv_host and kv_port go together");
    for (uint32_t i = 0; i < req.stop_count; i++)
        if (req.stop[i].len == 0)
            return err_set(err, -EINVAL, "generate: stop[%u] is empty and would match at once", i);
    *ret = req;
    return 0;
}

int generate_frame_encode(const struct generate_frame *frame, struct buf *out)
{
    fields_encode(&frame_set, frame, out);
    return buf_byte(out, '\n');
}

/* Cuts off the text up to the next quote into *ret, and `mark`, which must follow; else false. */
static bool cut_at(struct str *rest, struct str mark, struct str *ret)
{
    const char *end = memchr(rest->data, '"', rest->len);
    if (!end) return false;
    *ret = str_of(rest->data, (size_t)(end - rest->data));
    *rest = str_of(end, rest->len - ret->len);
    if (!str_starts(*rest, mark)) return false;
    *rest = str_of(rest->data + mark.len, rest->len - mark.len);
    return true;
}

/* Decodes the most frequent frame, ids and plain text in the midst of an output, as generate_frame_encode
 * writes it. A stream has one such frame for each token, and decoding by the table takes five times as
 * long. False for every other line, malformed ones too. */
static bool decode_midst(struct str line, struct arena *arena, struct generate_frame *ret)
{
    const struct str head = STR("{\"ids\":\"");
    if (!str_starts(line, head)) return false;
    struct str rest = str_of(line.data + head.len, line.len - head.len), chars, text;
    if (!cut_at(&rest, STR("\",\"text\":\""), &chars)) return false;
    if (!cut_at(&rest, STR("\",\"finish\":\"none\"}"), &text) || rest.len > 0) return false;
    const size_t count = chars.len / FIELD_TOKEN_CHARS;
    if (chars.len % FIELD_TOKEN_CHARS != 0 || count > GENERATE_FRAME_IDS_MAX) return false;
    if (json_plain(text) < text.len || text.len > GENERATE_FRAME_BYTES_MAX) return false;
    uint32_t *ids = arena_array(arena, count, sizeof *ids);
    struct str copy = arena_str(arena, text);
    if (!ids || !copy.data || !field_tokens(chars, ids)) return false;
    *ret = (struct generate_frame){ .ids = ids, .id_count = (uint32_t)count, .text = copy };
    return true;
}

int generate_frame_decode(struct str line, struct arena *arena, struct generate_frame *ret,
                          struct err *err)
{
    if (decode_midst(line, arena, ret)) return 0;
    return fields_decode(&frame_set, line, arena, ret, "generate frame", err);
}
