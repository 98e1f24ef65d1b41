/* openai_reply.c - writes responses in OpenAI's format, member by member in OpenAI's order, and reads them.
 *
 * A chunk is a few hundred bytes, most of it the same from chunk to chunk. A router of thousands of
 * streams renders these bytes once for each response (openai_text_form), by cutting a chunk of
 * put_chunk in two, so that both ways give equal chunks. */
#include "base/wire/openai_reply.h"

#include "base/core/json.h"
#include "base/wire/anthropic_reply.h"
#include "base/wire/responses_reply.h"
#include "base/wire/sse.h"

#define FORM_BYTES 768 /* room for a response or chunk, beside its text */

const char *openai_finish_name(enum finish finish)
{
    return finish == FINISH_STOP || finish == FINISH_LENGTH ? finish_names[finish] : NULL;
}

static void put_usage(struct json_writer *w, const struct openai_reply *r,
                      const struct usage *usage)
{
    json_key(w, "usage");
    json_object(w);
    json_kv_u64(w, "prompt_tokens", usage->prompt_tokens);
    json_kv_u64(w, "completion_tokens", usage->generated_tokens);
    json_kv_u64(w, "total_tokens", (uint64_t)usage->prompt_tokens + usage->generated_tokens);
    json_key(w, "prompt_tokens_details");
    json_object(w);
    json_kv_u64(w, "cached_tokens", usage->cached_tokens);
    json_object_end(w);
    if (r->surface == OPENAI_CHAT) {
        json_key(w, "completion_tokens_details");
        json_object(w);
        json_kv_u64(w, "reasoning_tokens", usage->reasoning_tokens);
        json_object_end(w);
    }
    json_object_end(w);
}

/* Opens the object and writes the members before "choices". */
static void put_head(struct json_writer *w, const struct openai_reply *r, bool chunk)
{
    bool chat = r->surface == OPENAI_CHAT;
    char id[160]; /* a request id is at most 128 bytes; a longer one is cut */
    struct str prefix = chat ? STR("chatcmpl-") : STR("cmpl-");
    size_t rest = r->id.len < sizeof id - prefix.len ? r->id.len : sizeof id - prefix.len;
    memcpy(id, prefix.data, prefix.len);
    if (rest) memcpy(id + prefix.len, r->id.data, rest);

    json_object(w);
    json_kv_str(w, "id", str_of(id, prefix.len + rest));
    /* The chunks of a completion are named text_completion, too. */
    json_kv_text(w, "object",
                 !chat   ? "text_completion"
                 : chunk ? "chat.completion.chunk"
                         : "chat.completion");
    json_kv_i64(w, "created", r->created_s);
    json_kv_str(w, "model", r->model);
    json_key(w, "system_fingerprint");
    if (r->fingerprint.len)
        json_put_str(w, r->fingerprint);
    else
        json_put_null(w);
}

/* Writes everything before the first choice. */
static void open_choices(struct json_writer *w, const struct openai_reply *r, bool chunk)
{
    put_head(w, r, chunk);
    json_key(w, "choices");
    json_array(w);
}

/* Writes everything up to the content of a choice. */
static void open_choice(struct json_writer *w, uint32_t index)
{
    json_object(w);
    json_kv_u64(w, "index", index);
}

static void put_prompt_logprobs(struct json_writer *w, struct str json)
{
    if (json.len == 0) return;
    json_key(w, "prompt_logprobs");
    json_put_raw(w, json);
}

static void close_choice(struct json_writer *w, struct str logprobs, enum finish finish,
                         bool called)
{
    json_key(w, "logprobs");
    if (logprobs.len)
        json_put_raw(w, logprobs);
    else
        json_put_null(w);
    json_kv_text(w, "finish_reason",
                 called && finish == FINISH_STOP ? "tool_calls" : openai_finish_name(finish));
    json_object_end(w);
}

static void put_message(struct json_writer *w, const struct openai_choice *choice)
{
    json_key(w, "message");
    json_object(w);
    json_kv_text(w, "role", "assistant");
    json_key(w, "content");
    if (choice->tool_calls.len > 0 && choice->text.len == 0)
        json_put_null(w);
    else
        json_put_str(w, choice->text);
    json_kv_text(w, "refusal", NULL);
    if (choice->reasoning.len > 0) json_kv_str(w, "reasoning_content", choice->reasoning);
    if (choice->tool_calls.len > 0) {
        json_key(w, "tool_calls");
        json_put_raw(w, choice->tool_calls);
    }
    json_object_end(w);
}

static void put_whole_choice(struct json_writer *w, const struct openai_reply *r, uint32_t index,
                             const struct openai_choice *choice)
{
    open_choice(w, index);
    if (r->surface == OPENAI_CHAT)
        put_message(w, choice);
    else
        json_kv_str(w, "text", choice->text);
    if (r->surface != OPENAI_CHAT) put_prompt_logprobs(w, choice->prompt_logprobs);
    close_choice(w, choice->logprobs, choice->finish, choice->tool_calls.len > 0);
}

int openai_reply_whole(const struct openai_reply *r, const struct openai_choice *choice,
                       uint32_t count, const struct usage *usage, struct buf *out)
{
    struct json_writer w;
    size_t bytes = FORM_BYTES;
    if (r->style == REPLY_ANTHROPIC) return anthropic_whole(r, choice, usage, out);
    if (r->style == REPLY_RESPONSES) return responses_whole(r, choice, usage, out);
    for (uint32_t i = 0; i < count; i++)
        bytes += choice[i].text.len + choice[i].logprobs.len + choice[i].reasoning.len +
                 choice[i].tool_calls.len + choice[i].prompt_logprobs.len;
    buf_reserve(out, bytes);
    json_writer_init(&w, out);
    open_choices(&w, r, false);
    for (uint32_t i = 0; i < count; i++)
        put_whole_choice(&w, r, i, &choice[i]);
    json_array_end(&w);
    if (r->surface == OPENAI_CHAT) put_prompt_logprobs(&w, choice[0].prompt_logprobs);
    put_usage(&w, r, usage);
    json_object_end(&w);
    return out->rc;
}

int openai_chunk_member(const struct openai_reply *r, const char *name, struct str json,
                        struct buf *out)
{
    struct json_writer w;
    buf_text(out, "data: ");
    json_writer_init(&w, out);
    open_choices(&w, r, true);
    open_choice(&w, r->index);
    json_key(&w, "delta");
    json_object(&w);
    json_key(&w, name);
    json_put_raw(&w, json);
    json_object_end(&w);
    close_choice(&w, (struct str){ 0 }, FINISH_NONE, false);
    json_array_end(&w);
    if (r->include_usage) json_kv_text(&w, "usage", NULL);
    json_object_end(&w);
    return buf_text(out, "\n\n");
}

/* Writes one chunk with the choice of r->index: `role` (chat) and the choice (text.data NULL: no text). */
static int put_chunk(const struct openai_reply *r, const char *role,
                     const struct openai_choice *choice, struct buf *out)
{
    struct json_writer w;
    buf_text(out, "data: ");
    json_writer_init(&w, out);
    open_choices(&w, r, true);
    open_choice(&w, r->index);
    if (r->surface == OPENAI_CHAT) {
        json_key(&w, "delta");
        json_object(&w);
        if (role) json_kv_text(&w, "role", role);
        if (choice->text.data) json_kv_str(&w, "content", choice->text);
        json_object_end(&w);
    } else {
        json_kv_str(&w, "text", choice->text);
    }
    close_choice(&w, choice->logprobs, choice->finish, r->called);
    json_array_end(&w);
    if (r->include_usage) json_kv_text(&w, "usage", NULL);
    json_object_end(&w);
    return buf_text(out, "\n\n");
}

int openai_chunk_role(const struct openai_reply *r, struct buf *out)
{
    return put_chunk(r, "assistant", &(struct openai_choice){ .text = STR("") }, out);
}

int openai_chunk_text(const struct openai_reply *r, struct str text, struct buf *out)
{
    return put_chunk(r, NULL, &(struct openai_choice){ .text = text }, out);
}

int openai_chunk_logprobs(const struct openai_reply *r, struct str text, struct str logprobs,
                          struct buf *out)
{
    if (!text.data) text = STR("");
    return put_chunk(r, NULL, &(struct openai_choice){ .text = text, .logprobs = logprobs }, out);
}

int openai_text_form_make(const struct openai_reply *r, struct openai_text_form *ret)
{
    const struct str member =
        r->surface == OPENAI_CHAT ? STR("\"content\":\"\"") : STR("\"text\":\"\"");
    buf_clear(&ret->bytes);
    buf_reserve(&ret->bytes, FORM_BYTES);
    int rc = openai_chunk_text(r, STR(""), &ret->bytes);
    if (rc < 0) return rc;
    /* Quotes inside names are escaped, so the member is found nowhere else. */
    size_t at = str_find(buf_view(&ret->bytes), member);
    must(at != SIZE_MAX);
    ret->head = at + member.len - 2;
    return 0;
}

int openai_text_form_put(const struct openai_text_form *f, struct str text, struct buf *out)
{
    const size_t tail = f->head + 2;
    struct json_writer w;
    buf_reserve(out, f->bytes.len + text.len + 16);
    buf_append(out, f->bytes.data, f->head);
    json_writer_init(&w, out);
    json_put_str(&w, text);
    return buf_append(out, f->bytes.data + tail, f->bytes.len - tail);
}

int openai_chunk_finish(const struct openai_reply *r, enum finish finish, struct buf *out)
{
    return put_chunk(r, NULL, &(struct openai_choice){ .finish = finish }, out);
}

int openai_chunk_usage(const struct openai_reply *r, const struct usage *usage, struct buf *out)
{
    struct json_writer w;
    buf_text(out, "data: ");
    json_writer_init(&w, out);
    put_head(&w, r, true);
    json_key(&w, "choices");
    json_array(&w);
    json_array_end(&w);
    put_usage(&w, r, usage);
    json_object_end(&w);
    return buf_text(out, "\n\n");
}

int openai_chunk_done(struct buf *out)
{
    return sse_data(out, SSE_DONE);
}

static void put_sampling(struct json_writer *w, const struct sampling *s)
{
    json_key(w, "default_sampling");
    json_object(w);
    if (!(s->unnamed & SAMPLING_TEMPERATURE)) json_kv_f64(w, "temperature", s->temperature);
    if (!(s->unnamed & SAMPLING_TOP_P)) json_kv_f64(w, "top_p", s->top_p);
    if (!(s->unnamed & SAMPLING_TOP_K)) json_kv_u64(w, "top_k", s->top_k);
    if (!(s->unnamed & SAMPLING_MIN_P)) json_kv_f64(w, "min_p", s->min_p);
    if (!(s->unnamed & SAMPLING_REPETITION_PENALTY))
        json_kv_f64(w, "repetition_penalty", s->repetition_penalty);
    json_object_end(w);
}

int openai_models_render(const struct openai_model *model, uint32_t count, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_text(&w, "object", "list");
    json_key(&w, "data");
    json_array(&w);
    for (uint32_t i = 0; i < count; i++) {
        json_object(&w);
        json_kv_str(&w, "id", model[i].id);
        json_kv_text(&w, "object", "model");
        json_kv_i64(&w, "created", model[i].created_s);
        json_kv_text(&w, "owned_by", "muster");
        if (model[i].parent.len > 0) json_kv_str(&w, "parent", model[i].parent);
        if (model[i].context_tokens) json_kv_u64(&w, "max_model_len", model[i].context_tokens);
        if (model[i].task) json_kv_text(&w, "task", model[i].task);
        if (model[i].sampling) put_sampling(&w, model[i].sampling);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}

/* ---- reading ---- */

/* The functions below read a response of any OpenAI-like server.
 *
 * They are lenient where servers differ (absent keys, nulls, other keys), and strict where a wrong
 * reading would be counted: only choice 0 is read, and its text only from the members that the API
 * names. */

struct delta {
    struct json_reader r;
    struct buf *text;
    struct openai_delta ret;
};

/* Appends the value of the current key, text of the response or null. */
static int take_text(struct delta *d)
{
    enum json_token t = json_next(&d->r);
    if (t == JSON_NULL) return 0;
    if (t != JSON_STRING) return -EINVAL;
    d->ret.has_text = true;
    return json_text(&d->r, d->text);
}

static int take_finish(struct delta *d)
{
    enum json_token t = json_next(&d->r);
    if (t == JSON_NULL) return 0;
    if (t != JSON_STRING) return -EINVAL;
    /* tool_calls, content_filter and any other reason of a server end the output as a stop does. */
    d->ret.finish = str_eq(d->r.raw, STR("length")) ? FINISH_LENGTH : FINISH_STOP;
    d->ret.called = str_eq(d->r.raw, STR("tool_calls"));
    return 0;
}

static int take_count(struct delta *d, uint32_t *ret)
{
    uint64_t v = 0;
    if (json_next(&d->r) == JSON_NULL) return 0;
    int rc = json_u64(&d->r, &v);
    if (rc == 0 && v > UINT32_MAX) rc = -ERANGE;
    if (rc == 0) *ret = (uint32_t)v;
    return rc;
}

typedef int (*key_fn)(struct delta *d);

/* Reads the value of the current key, null or an object: calls `fn` for each key of it, which reads the
 * key's value. */
static int take_object(struct delta *d, key_fn fn)
{
    enum json_token t = json_next(&d->r);
    if (t == JSON_NULL) return 0;
    if (t != JSON_OBJECT) return -EINVAL;
    while (json_next(&d->r) == JSON_KEY) {
        int rc = fn(d);
        if (rc < 0) return rc;
    }
    return d->r.token == JSON_OBJECT_END ? 0 : -EINVAL;
}

static int skip(struct delta *d)
{
    return json_skip(&d->r) == JSON_ERROR ? -EINVAL : 0;
}

static int details_key(struct delta *d)
{
    if (!json_key_is(&d->r, "cached_tokens")) return skip(d);
    struct json_reader ahead = d->r;
    d->ret.has_cached |= json_next(&ahead) != JSON_NULL;
    return take_count(d, &d->ret.usage.cached_tokens);
}

static int output_details_key(struct delta *d)
{
    if (!json_key_is(&d->r, "reasoning_tokens")) return skip(d);
    return take_count(d, &d->ret.usage.reasoning_tokens);
}

static int usage_key(struct delta *d)
{
    d->ret.has_usage = true;
    if (json_key_is(&d->r, "prompt_tokens")) return take_count(d, &d->ret.usage.prompt_tokens);
    if (json_key_is(&d->r, "completion_tokens"))
        return take_count(d, &d->ret.usage.generated_tokens);
    if (json_key_is(&d->r, "prompt_tokens_details")) return take_object(d, details_key);
    if (json_key_is(&d->r, "completion_tokens_details")) return take_object(d, output_details_key);
    return skip(d);
}

/* Takes a value as it is; null is none. */
static int take_raw(struct delta *d, enum json_token wanted, struct str *ret)
{
    struct json_reader ahead = d->r;
    struct str raw;
    enum json_token t = json_next(&ahead);
    if (json_raw_value(&d->r, &raw) < 0) return -EINVAL;
    if (t == wanted) *ret = raw;
    return 0;
}

static int message_key(struct delta *d)
{
    if (json_key_is(&d->r, "content")) return take_text(d);
    if (json_key_is(&d->r, "tool_calls")) return take_raw(d, JSON_ARRAY, &d->ret.tool_calls);
    /* vLLM's name before 0.16, SGLang's and llama.cpp's; then vLLM's newer one */
    if (json_key_is(&d->r, "reasoning_content") || json_key_is(&d->r, "reasoning"))
        return take_raw(d, JSON_STRING, &d->ret.reasoning);
    return skip(d);
}

static int take_logprobs(struct delta *d)
{
    struct json_reader ahead = d->r;
    if (json_next(&ahead) != JSON_OBJECT) return skip(d);
    return json_raw_value(&d->r, &d->ret.logprobs);
}

static int choice_key(struct delta *d)
{
    if (json_key_is(&d->r, "text")) return take_text(d);
    if (json_key_is(&d->r, "delta") || json_key_is(&d->r, "message"))
        return take_object(d, message_key);
    if (json_key_is(&d->r, "finish_reason")) return take_finish(d);
    if (json_key_is(&d->r, "logprobs")) return take_logprobs(d);
    if (json_key_is(&d->r, "prompt_logprobs"))
        return take_raw(d, JSON_ARRAY, &d->ret.prompt_logprobs);
    return skip(d);
}

static int error_key(struct delta *d)
{
    return json_key_is(&d->r, "message") ? take_text(d) : skip(d);
}

/* Reads an error: an object with a message or, from some servers, the bare sentence. */
static int take_error(struct delta *d)
{
    struct json_reader ahead = d->r;
    enum json_token t = json_next(&ahead);
    d->ret.has_error = t == JSON_OBJECT || t == JSON_STRING;
    return t == JSON_STRING ? take_text(d) : take_object(d, error_key);
}

static int take_choices(struct delta *d)
{
    enum json_token t = json_next(&d->r);
    if (t == JSON_NULL) return 0;
    if (t != JSON_ARRAY) return -EINVAL;
    if (json_next(&d->r) == JSON_ARRAY_END) return 0;
    if (d->r.token != JSON_OBJECT) return -EINVAL;
    uint32_t inside = d->r.depth;
    while (json_next(&d->r) == JSON_KEY) {
        int rc = choice_key(d);
        if (rc < 0) return rc;
    }
    if (d->r.token != JSON_OBJECT_END) return -EINVAL;
    /* Further choices were not asked for. */
    while (d->r.depth >= inside - 1)
        if (json_skip(&d->r) == JSON_ERROR) return -EINVAL;
    return 0;
}

static int top_key(struct delta *d)
{
    if (json_key_is(&d->r, "choices")) return take_choices(d);
    if (json_key_is(&d->r, "usage")) return take_object(d, usage_key);
    if (json_key_is(&d->r, "error")) return take_error(d);
    if (json_key_is(&d->r, "prompt_logprobs"))
        return take_raw(d, JSON_ARRAY, &d->ret.prompt_logprobs);
    return skip(d);
}

int openai_delta_parse(struct str json, struct buf *text, struct openai_delta *ret, struct err *err)
{
    struct delta d = { .text = text };
    json_reader_init(&d.r, json);
    int rc = take_object(&d, top_key);
    if (rc == 0 && json_next(&d.r) != JSON_END) rc = -EINVAL;
    if (text->rc < 0)
        return err_set(err, text->rc, "reply: its text is larger than %zu bytes", text->max);
    if (rc < 0) return json_fail(&d.r, err, "reply");
    if (d.ret.has_error) d.ret.has_text = false;
    *ret = d.ret;
    return 0;
}
