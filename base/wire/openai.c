/* openai.c - parses the body of a completion request in one pass, checked by one table of keys.
 *
 * Every served key is a row: how it is read, where it goes, its range. Keys that would change the
 * output and are not served are rows too, with the values that change nothing; any other value is
 * refused by name, because output for a different request is worse than none. All other keys are
 * ignored. */
#include "base/wire/openai.h"

#include "base/wire/openai_walk.h"

#define ON_CHAT (1u << OPENAI_CHAT)
#define ON_COMPLETION (1u << OPENAI_COMPLETION)
#define ON_BOTH (ON_CHAT | ON_COMPLETION)
#define ON_EMBED (1u << OPENAI_EMBED)
#define ON_SCORE (1u << OPENAI_SCORE)
#define ON_RERANK (1u << OPENAI_RERANK)
#define ON_VECTORS (ON_EMBED | ON_SCORE | ON_RERANK)
#define ON_ALL (ON_BOTH | ON_VECTORS)

#define AT(member) offsetof(struct openai_walk, req.member)

/* clang-format off */
static const struct openai_key keys[] = {
    /* name                    where          how                          to                             min, max, only */
    { "model",                 ON_ALL,        openai_take_str,             AT(model),                     0, OPENAI_MODEL_BYTES_MAX, NULL },
    { "user",                  ON_ALL,        openai_take_str,             AT(user),                      0, OPENAI_USER_BYTES_MAX, NULL },
    { "prompt_cache_key",      ON_BOTH,       openai_take_str,             AT(group),                     0, OPENAI_GROUP_BYTES_MAX, NULL },
    { "messages",              ON_CHAT,       openai_take_messages,        0,                             0, 0, NULL },
    { "tools",                 ON_CHAT,       openai_take_tools,           0,                             0, 0, NULL },
    { "tool_choice",           ON_CHAT,       openai_take_tool_choice,     0,                             0, 0, NULL },
    { "parallel_tool_calls",   ON_CHAT,       openai_take_parallel_calls,  0,                             0, 0, NULL },
    { "reasoning_effort",      ON_CHAT,       openai_take_str,             offsetof(struct openai_walk, reasoning_effort), 1, OPENAI_EFFORT_BYTES_MAX, NULL },
    { "chat_template_kwargs",  ON_CHAT,       openai_take_object,          AT(chat_template_kwargs),      0, 0, NULL },
    { "prompt",                ON_COMPLETION, openai_take_prompt,          0,                             1, BUF_BYTES_MAX, NULL },
    { "temperature",           ON_BOTH,       openai_take_f64,             AT(sampling.temperature),      0, 2, NULL },
    { "top_p",                 ON_BOTH,       openai_take_f64,             AT(sampling.top_p),            0, 1, NULL },
    { "top_k",                 ON_BOTH,       openai_take_u32,             AT(sampling.top_k),            -1, INT32_MAX, NULL },
    { "min_p",                 ON_BOTH,       openai_take_f64,             AT(sampling.min_p),            0, 1, NULL },
    { "presence_penalty",      ON_BOTH,       openai_take_f64,             AT(sampling.presence_penalty), -2, 2, NULL },
    { "frequency_penalty",     ON_BOTH,       openai_take_f64,             AT(sampling.frequency_penalty), -2, 2, NULL },
    { "repetition_penalty",    ON_BOTH,       openai_take_f64,             AT(sampling.repetition_penalty), 0.01,10, NULL },
    { "seed",                  ON_BOTH,       openai_take_seed,            0,                             (double)INT64_MIN, (double)INT64_MAX, NULL },
    { "max_tokens",            ON_CHAT,       openai_take_u32,             AT(max_tokens),                1, OPENAI_TOKENS_MAX, NULL },
    { "max_tokens",            ON_COMPLETION, openai_take_output_max,      0,                             0, OPENAI_TOKENS_MAX, NULL },
    { "max_completion_tokens", ON_BOTH,       openai_take_u32,             offsetof(struct openai_walk, max_completion_tokens), 1, OPENAI_TOKENS_MAX, NULL },
    { "min_tokens",            ON_BOTH,       openai_take_u32,             AT(min_tokens),                0, OPENAI_TOKENS_MAX, NULL },
    { "thinking_token_budget", ON_CHAT,       openai_take_u32,             AT(think_max),                 1, OPENAI_TOKENS_MAX, NULL }, /* vLLM's */
    { "logprobs",              ON_CHAT,       openai_take_bool,            AT(logprobs),                  0, 0, NULL },
    { "logprobs",              ON_COMPLETION, openai_take_logprobs,        0,                             0, OPENAI_COMPLETION_LOGPROBS_MAX, NULL },
    { "top_logprobs",          ON_CHAT,       openai_take_u32,             AT(top_logprobs),              0, OPENAI_TOP_LOGPROBS_MAX, NULL },
    { "prompt_logprobs",       ON_BOTH,       openai_take_prompt_logprobs, 0,                             0, OPENAI_TOP_LOGPROBS_MAX, NULL },
    { "n",                     ON_BOTH,       openai_take_u32,             AT(n),                         1, OPENAI_CHOICES_MAX, NULL },
    { "best_of",               ON_COMPLETION, openai_take_u32,             AT(best_of),                   1, OPENAI_CHOICES_MAX, NULL },
    { "logit_bias",            ON_BOTH,       openai_take_logit_bias,      0,                             -OPENAI_BIAS_MAX, OPENAI_BIAS_MAX, NULL },
    { "echo",                  ON_COMPLETION, openai_take_bool,            AT(echo),                      0, 0, NULL },
    { "stop",                  ON_BOTH,       openai_take_stop,            0,                             1, OPENAI_STOP_BYTES_MAX, NULL },
    { "ignore_eos",            ON_BOTH,       openai_take_bool,            AT(ignore_eos),                0, 0, NULL },
    { "stream",                ON_BOTH,       openai_take_bool,            AT(stream),                    0, 0, NULL },
    { "stream_options",        ON_BOTH,       openai_take_stream_options,  0,                             0, 0, NULL },
    /* grammars: OpenAI's, vLLM's, SGLang's and llama.cpp's names */
    { "response_format",       ON_BOTH,       openai_take_response_format, 0,                             0, 0, NULL },
    { "structured_outputs",    ON_BOTH,       openai_take_structured,      0,                             0, 0, NULL },
    { "guided_json",           ON_BOTH,       openai_take_schema,          0,                             0, 0, NULL },
    { "guided_regex",          ON_BOTH,       openai_take_regex,           0,                             0, 0, NULL },
    { "guided_choice",         ON_BOTH,       openai_take_choice,          0,                             0, 0, NULL },
    { "guided_grammar",        ON_BOTH,       openai_take_gbnf,            0,                             0, 0, NULL },
    { "json_schema",           ON_BOTH,       openai_take_schema,          0,                             0, 0, NULL },
    { "regex",                 ON_BOTH,       openai_take_regex,           0,                             0, 0, NULL },
    { "ebnf",                  ON_BOTH,       openai_take_gbnf,            0,                             0, 0, NULL },
    { "grammar",               ON_BOTH,       openai_take_gbnf,            0,                             0, 0, NULL },
    /* embeddings, scores, rankings: OpenAI's, vLLM's, Jina's and Cohere's names */
    { "input",                 ON_EMBED,      openai_take_input,           0,                             1, BUF_BYTES_MAX, NULL },
    { "encoding_format",       ON_EMBED,      openai_take_encoding,        0,                             0, 0, NULL },
    { "dimensions",            ON_EMBED,      openai_take_u32,             AT(vectors.dimensions),        1, INT32_MAX, NULL },
    { "text_1",                ON_SCORE,      openai_take_texts,           offsetof(struct openai_walk, first),  1, BUF_BYTES_MAX, NULL },
    { "queries",               ON_SCORE,      openai_take_texts,           offsetof(struct openai_walk, first),  1, BUF_BYTES_MAX, NULL },
    { "text_2",                ON_SCORE,      openai_take_texts,           offsetof(struct openai_walk, second), 1, BUF_BYTES_MAX, NULL },
    { "documents",             ON_SCORE,      openai_take_texts,           offsetof(struct openai_walk, second), 1, BUF_BYTES_MAX, NULL },
    { "query",                 ON_RERANK,     openai_take_texts,           offsetof(struct openai_walk, first),  1, BUF_BYTES_MAX, NULL },
    { "documents",             ON_RERANK,     openai_take_documents,       0,                             1, BUF_BYTES_MAX, NULL },
    { "top_n",                 ON_RERANK,     openai_take_u32,             AT(vectors.top_n),             1, INT32_MAX, NULL },
    { "return_documents",      ON_RERANK,     openai_take_bool,            AT(vectors.return_documents),  0, 0, NULL },
    { "cache_salt",            ON_VECTORS,    openai_take_str,             AT(vectors.cache_salt),        0, OPENAI_SALT_BYTES_MAX, NULL },
    /* not served: only the values in the last column, which change nothing, are accepted */
    { "best_of",                    ON_CHAT,       openai_take_nothing, 0, 0, 0, "1" },
    { "top_logprobs",               ON_COMPLETION, openai_take_nothing, 0, 0, 0, "0" },
    { "guided_whitespace_pattern",  ON_BOTH,       openai_take_nothing, 0, 0, 0, NULL },
    { "structural_tag",             ON_BOTH,       openai_take_nothing, 0, 0, 0, NULL },
    { "grammar_lazy",               ON_BOTH,       openai_take_nothing, 0, 0, 0, "false" },
    { "functions",                  ON_CHAT,       openai_take_nothing, 0, 0, 0, "[]" },
    { "function_call",              ON_CHAT,       openai_take_nothing, 0, 0, 0, "\"none\"|\"auto\"" },
    { "modalities",                 ON_CHAT,       openai_take_nothing, 0, 0, 0, "[\"text\"]" },
    { "audio",                      ON_CHAT,       openai_take_nothing, 0, 0, 0, NULL },
    { "verbosity",                  ON_CHAT,       openai_take_nothing, 0, 0, 0, NULL },
    { "web_search_options",         ON_CHAT,       openai_take_nothing, 0, 0, 0, NULL },
    { "documents",                  ON_CHAT,       openai_take_nothing, 0, 0, 0, "[]" },
    { "chat_template",              ON_CHAT,       openai_take_nothing, 0, 0, 0, NULL },
    { "add_generation_prompt",      ON_CHAT,       openai_take_nothing, 0, 0, 0, "true" },
    { "continue_final_message",     ON_CHAT,       openai_take_nothing, 0, 0, 0, "false" },
    { "echo",                       ON_CHAT,       openai_take_nothing, 0, 0, 0, "false" },
    { "suffix",                     ON_COMPLETION, openai_take_nothing, 0, 0, 0, "\"\"" },
    { "prompt_embeds",              ON_COMPLETION, openai_take_nothing, 0, 0, 0, NULL },
    { "use_beam_search",            ON_BOTH,       openai_take_nothing, 0, 0, 0, "false" },
    { "length_penalty",             ON_BOTH,       openai_take_nothing, 0, 0, 0, "1|1.0" },
    { "stop_token_ids",             ON_BOTH,       openai_take_nothing, 0, 0, 0, "[]" },
    { "bad_words",                  ON_BOTH,       openai_take_nothing, 0, 0, 0, "[]" },
    { "allowed_token_ids",          ON_BOTH,       openai_take_nothing, 0, 0, 0, NULL },
    { "include_stop_str_in_output", ON_BOTH,       openai_take_nothing, 0, 0, 0, "false" },
    { "skip_special_tokens",        ON_BOTH,       openai_take_nothing, 0, 0, 0, "true" },
    { "normalize",                  ON_VECTORS,    openai_take_nothing, 0, 0, 0, "true" },
    { "embedding_types",            ON_EMBED,      openai_take_nothing, 0, 0, 0, "[\"float\"]" },
    { "messages",                   ON_EMBED,      openai_take_nothing, 0, 0, 0, NULL },
    { "rank_fields",                ON_RERANK,     openai_take_nothing, 0, 0, 0, "[]" },
    { "max_chunks_per_doc",         ON_RERANK,     openai_take_nothing, 0, 0, 0, NULL },
    { "max_tokens_per_doc",         ON_RERANK,     openai_take_nothing, 0, 0, 0, NULL },
    { "truncate_prompt_tokens",     ON_ALL,        openai_take_nothing, 0, 0, 0, NULL },
    { "add_special_tokens",         ON_CHAT,       openai_take_nothing, 0, 0, 0, "false" },
    { "add_special_tokens",         ON_COMPLETION | ON_VECTORS, openai_take_nothing, 0, 0, 0, "true" },
};
/* clang-format on */

static const struct openai_key *find_key(const struct openai_walk *p)
{
    for (size_t i = 0; i < COUNT_OF(keys); i++)
        if ((keys[i].surfaces >> p->req.surface & 1) && json_key_is(&p->r, keys[i].name))
            return &keys[i];
    return NULL;
}

/* Notes that the request names a member of sampling for which the model may have a default. */
static void note_named(struct openai_walk *p, const struct openai_key *k)
{
    static const struct {
        size_t offset;
        uint32_t bit;
    } members[] = { { AT(sampling.temperature), SAMPLING_TEMPERATURE },
                    { AT(sampling.top_p), SAMPLING_TOP_P },
                    { AT(sampling.top_k), SAMPLING_TOP_K },
                    { AT(sampling.min_p), SAMPLING_MIN_P },
                    { AT(sampling.repetition_penalty), SAMPLING_REPETITION_PENALTY } };
    for (size_t i = 0; i < COUNT_OF(members); i++)
        if (k->offset == members[i].offset) p->req.sampling.unnamed &= ~members[i].bit;
}

static int walk(struct openai_walk *p)
{
    bool seen[COUNT_OF(keys)] = { false };
    json_next(&p->r);
    if (p->r.token == JSON_ERROR) return walk_broken(p);
    if (p->r.token != JSON_OBJECT) return INVALID(p, NULL, "The body must be a JSON object.");
    while (json_next(&p->r) == JSON_KEY) {
        const struct openai_key *k = find_key(p);
        p->key = k ? k->name : NULL;
        if (!k) {
            json_skip(&p->r);
            continue;
        }
        if (seen[k - keys]) return INVALID(p, k->name, "%s stands there twice.", k->name);
        seen[k - keys] = true;
        if (json_next(&p->r) == JSON_NULL) continue;
        if (p->r.token == JSON_ERROR) return walk_broken(p);
        int rc = k->take(p, k);
        if (rc < 0) return rc;
        note_named(p, k);
        p->key = NULL;
    }
    if (p->r.token != JSON_OBJECT_END || json_next(&p->r) != JSON_END) return walk_broken(p);
    return 0;
}

/* Checks how many outputs are asked for. */
static int settle_choices(struct openai_walk *p)
{
    struct openai_request *q = &p->req;
    q->n = max_u32(q->n, 1);
    if (q->best_of > 0 && q->best_of < q->n)
        return INVALID(p, "best_of", "best_of %u is less than n %u.", q->best_of, q->n);
    if (q->best_of > q->n && q->stream)
        return UNSERVED(p, "best_of",
                        "best_of above n is not served with stream: the best output is "
                        "known only at the end.");
    q->best_of = max_u32(q->best_of, q->n);
    q->prompt_count = max_u32(q->prompt_count, 1);
    if ((uint64_t)q->best_of * q->prompt_count > OPENAI_CHOICES_MAX)
        return INVALID(p, q->best_of > 1 ? "n" : "prompt",
                       "%u prompts with %u outputs each are more than %d outputs.", q->prompt_count,
                       q->best_of, OPENAI_CHOICES_MAX);
    openai_prompt_select(q, 0);
    return 0;
}

/* Checks the keys against each other and fills in defaults. */
static int settle(struct openai_walk *p)
{
    struct openai_request *q = &p->req;
    if (openai_wants_vectors(q->surface)) return openai_settle_vectors(p);
    if (q->surface == OPENAI_CHAT && !q->messages.len)
        return INVALID(p, "messages", "messages is missing.");
    if (q->surface == OPENAI_COMPLETION && !q->prompt_count)
        return INVALID(p, "prompt", "prompt is missing.");
    if (p->has_stream_options && !q->stream)
        return INVALID(p, "stream_options", "stream_options needs stream to be true.");
    if (p->max_completion_tokens && q->max_tokens && p->max_completion_tokens != q->max_tokens)
        return INVALID(p, "max_tokens",
                       "max_tokens is %u and max_completion_tokens is %u: give one.", q->max_tokens,
                       p->max_completion_tokens);
    if (p->max_completion_tokens) q->max_tokens = p->max_completion_tokens;
    if (!q->max_tokens && q->surface == OPENAI_COMPLETION)
        q->max_tokens = max_u32(OPENAI_COMPLETION_TOKENS, q->min_tokens);
    if (q->max_tokens && q->min_tokens > q->max_tokens)
        return INVALID(p, "min_tokens", "min_tokens %u is more than max_tokens %u.", q->min_tokens,
                       q->max_tokens);
    int rc = settle_choices(p);
    if (rc < 0) return rc;
    if (q->prompt_only && !q->echo)
        return INVALID(p, "max_tokens",
                       "max_tokens of 0 needs echo to be true: else nothing is sent.");
    if (q->top_logprobs > 0 && !q->logprobs)
        return INVALID(p, "top_logprobs", "top_logprobs needs logprobs to be true.");
    if (q->scores_prompt && q->stream)
        return INVALID(p, "prompt_logprobs", "prompt_logprobs are not sent in a stream.");
    return openai_settle_tools(p);
}

int openai_parse(enum openai_surface surface, struct str body, struct arena *arena,
                 struct openai_request *ret, struct openai_error *e)
{
    struct openai_walk p = { .arena = arena, .e = e };
    p.req.surface = surface;
    p.req.sampling = SAMPLING_DEFAULT;
    p.req.sampling.unnamed = SAMPLING_ALL;
    json_reader_init(&p.r, body);
    int rc = walk(&p);
    if (rc == 0) rc = settle(&p);
    if (rc == 0) *ret = p.req;
    return rc;
}
