/* openai_delta.c - what a client reads from the answers of any OpenAI-like server.
 *
 * Lenient where servers differ (absent keys, nulls, other keys), strict where a wrong reading would
 * be counted: only choice 0 is read, and its text only from the places that the API names. */
#include "base/core/json.h"
#include "base/wire/openai_reply.h"

struct delta {
    struct json_reader r;
    struct buf *text;
    struct openai_delta ret;
};

/* The reader stands on a key: its value is text of the answer, or null. */
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
    /* tool_calls, content_filter and what else a server may say end the answer as a stop does. */
    d->ret.finish = str_eq(d->r.raw, STR("length")) ? FINISH_LENGTH : FINISH_STOP;
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

/* The reader stands on a key: its value is an object whose keys go to `fn` (which consumes the
 * value), or null. */
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
    if (json_key_is(&d->r, "cached_tokens")) return take_count(d, &d->ret.usage.cached_tokens);
    return skip(d);
}

static int usage_key(struct delta *d)
{
    d->ret.has_usage = true;
    if (json_key_is(&d->r, "prompt_tokens")) return take_count(d, &d->ret.usage.prompt_tokens);
    if (json_key_is(&d->r, "completion_tokens"))
        return take_count(d, &d->ret.usage.generated_tokens);
    if (json_key_is(&d->r, "prompt_tokens_details")) return take_object(d, details_key);
    return skip(d);
}

static int message_key(struct delta *d)
{
    return json_key_is(&d->r, "content") ? take_text(d) : skip(d);
}

static int choice_key(struct delta *d)
{
    if (json_key_is(&d->r, "text")) return take_text(d);
    if (json_key_is(&d->r, "delta") || json_key_is(&d->r, "message"))
        return take_object(d, message_key);
    if (json_key_is(&d->r, "finish_reason")) return take_finish(d);
    return skip(d);
}

static int error_key(struct delta *d)
{
    return json_key_is(&d->r, "message") ? take_text(d) : skip(d);
}

/* An object with a message, or, from some servers, the bare sentence. */
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
