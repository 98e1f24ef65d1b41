/* openai_reply.c - OpenAI's answer shapes, written field by field in OpenAI's order.
 *
 * A chunk is a few hundred bytes, most of it the same from chunk to chunk. It is still written
 * anew each time: 1 us of formatting beside a step of milliseconds, and no cached prefix that could
 * disagree with the whole form. */
#include "base/wire/openai_reply.h"

#include "base/core/json.h"
#include "base/wire/sse.h"

const char *openai_finish_name(enum finish finish)
{
    return finish == FINISH_STOP || finish == FINISH_LENGTH ? finish_names[finish] : NULL;
}

static void put_usage(struct json_writer *w, const struct usage *usage)
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
    json_object_end(w);
}

/* Everything before "choices"; opens the object. */
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
    /* Chunks of a completion call themselves text_completion, too. */
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

/* Everything up to what choice 0, the only one, says. */
static void open_choice(struct json_writer *w, const struct openai_reply *r, bool chunk)
{
    put_head(w, r, chunk);
    json_key(w, "choices");
    json_array(w);
    json_object(w);
    json_kv_u64(w, "index", 0);
}

static void close_choice(struct json_writer *w, enum finish finish)
{
    json_key(w, "logprobs");
    json_put_null(w);
    json_kv_text(w, "finish_reason", openai_finish_name(finish));
    json_object_end(w);
    json_array_end(w);
}

int openai_reply_whole(const struct openai_reply *r, struct str text, enum finish finish,
                       const struct usage *usage, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    open_choice(&w, r, false);
    if (r->surface == OPENAI_CHAT) {
        json_key(&w, "message");
        json_object(&w);
        json_kv_text(&w, "role", "assistant");
        json_kv_str(&w, "content", text);
        json_kv_text(&w, "refusal", NULL);
        json_object_end(&w);
    } else {
        json_kv_str(&w, "text", text);
    }
    close_choice(&w, finish);
    put_usage(&w, usage);
    json_object_end(&w);
    return out->rc;
}

/* One chunk with choice 0: `role` (chat), `text` (data NULL: none), `finish`. */
static int put_chunk(const struct openai_reply *r, const char *role, struct str text,
                     enum finish finish, struct buf *out)
{
    struct json_writer w;
    buf_text(out, "data: ");
    json_writer_init(&w, out);
    open_choice(&w, r, true);
    if (r->surface == OPENAI_CHAT) {
        json_key(&w, "delta");
        json_object(&w);
        if (role) json_kv_text(&w, "role", role);
        if (text.data) json_kv_str(&w, "content", text);
        json_object_end(&w);
    } else {
        json_kv_str(&w, "text", text);
    }
    close_choice(&w, finish);
    if (r->include_usage) json_kv_text(&w, "usage", NULL);
    json_object_end(&w);
    return buf_text(out, "\n\n");
}

int openai_chunk_role(const struct openai_reply *r, struct buf *out)
{
    return put_chunk(r, "assistant", STR(""), FINISH_NONE, out);
}

int openai_chunk_text(const struct openai_reply *r, struct str text, struct buf *out)
{
    return put_chunk(r, NULL, text, FINISH_NONE, out);
}

int openai_chunk_finish(const struct openai_reply *r, enum finish finish, struct buf *out)
{
    return put_chunk(r, NULL, (struct str){ 0 }, finish, out);
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
    put_usage(&w, usage);
    json_object_end(&w);
    return buf_text(out, "\n\n");
}

int openai_chunk_error(const struct openai_error *e, struct buf *out)
{
    buf_text(out, "data: ");
    openai_error_render(e, out);
    return buf_text(out, "\n\n");
}

int openai_chunk_done(struct buf *out)
{
    return sse_data(out, SSE_DONE);
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
        if (model[i].context_tokens) json_kv_u64(&w, "max_model_len", model[i].context_tokens);
        json_object_end(&w);
    }
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}
