/* encode.c - renders the template, then tokenises; checks each bound before the work. */
#include "base/text/encode.h"

#include "base/core/json.h"
#include "base/text/detok.h"

static int too_many(size_t ids_max, struct err *err)
{
    return err_set(err, -EFBIG, "more than %zu tokens", ids_max);
}

/* Returns true if `bytes` of text need more than ids_max ids even if each were the longest token. */
static bool cannot_fit(const struct encode_model *m, size_t bytes, size_t ids_max)
{
    return bytes / vocab_token_bytes_max(m->vocab) > ids_max;
}

static int finish(int rc, size_t ids_max, struct ids *out, struct err *err)
{
    out->max = 0; /* output tokens are appended later */
    return rc == -E2BIG ? too_many(ids_max, err) : rc;
}

static struct str special_text(const struct vocab *v, uint32_t id)
{
    return id == VOCAB_NONE ? (struct str){ 0 } : vocab_text(v, id);
}

/* Renders the chat by the model's template. */
static int render(const struct encode_model *m, const struct encode_chat *chat,
                  struct chat_output *page, struct err *err)
{
    if (!m->chat_template)
        return err_set(err, -EPROTO,
                       "this model has no chat template; use /v1/completions, or start the engine "
                       "with --chat-template");
    const struct vocab *v = m->vocab;
    const struct chat_inputs in = {
        .messages = chat->messages,
        .tools = chat->tools,
        .kwargs = chat->kwargs,
        .add_generation_prompt = chat->generation_prompt,
        .open_arguments = true,
        .bos_token = special_text(v, vocab_special(v)->bos),
        .eos_token = special_text(v, vocab_special(v)->eos),
        .now_s = chat->now_s,
        .scratch = chat->scratch,
    };
    const struct chat_limits limits = { .steps_max = chat->steps_max };
    return chat_template_render(m->chat_template, &in, &limits, page, err);
}

int encode_chat(const struct encode_model *m, const struct encode_chat *chat, size_t ids_max,
                struct ids *out, struct err *err)
{
    const struct vocab *v = m->vocab;
    CLEANUP(chat_output_fini) struct chat_output page = { 0 };
    int rc = render(m, chat, &page, err);
    if (rc < 0) return rc;
    if (cannot_fit(m, page.text.len, ids_max)) return too_many(ids_max, err);
    out->max = ids_max;
    rc = tokenizer_encode_spans(v, buf_view(&page.text), &page.content, out, err);
    return finish(rc, ids_max, out, err);
}

int encode_text(const struct encode_model *m, struct str text, bool special, size_t ids_max,
                struct ids *out, struct err *err)
{
    if (cannot_fit(m, text.len, ids_max)) return too_many(ids_max, err);
    out->max = ids_max;
    int rc = special ? tokenizer_encode_prompt(m->vocab, text, out, err)
                     : tokenizer_encode(m->vocab, text, false, out, err);
    return finish(rc, ids_max, out, err);
}

static int push_all(struct ids *out, const uint32_t *ids, size_t count)
{
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ids_push(out, ids[i]);
    return rc;
}

int encode_pair(const struct encode_model *m, struct str a, struct str b, size_t ids_max,
                struct ids *out, uint32_t *ret_second, struct err *err)
{
    const bool doubled = !str_eq(vocab_kind(m->vocab), STR("bert"));
    const uint32_t *before, *after;
    const size_t before_count = vocab_before(m->vocab, &before);
    const size_t after_count = vocab_after(m->vocab, &after);
    if (cannot_fit(m, a.len, ids_max) || cannot_fit(m, b.len, ids_max))
        return too_many(ids_max, err);
    out->max = ids_max;
    int rc = push_all(out, before, before_count);
    if (rc == 0) rc = tokenizer_encode(m->vocab, a, false, out, err);
    if (rc == 0) rc = push_all(out, after, after_count);
    const uint32_t second = (uint32_t)out->count;
    if (rc == 0 && doubled) rc = push_all(out, after, after_count);
    if (rc == 0) rc = tokenizer_encode(m->vocab, b, false, out, err);
    if (rc == 0) rc = push_all(out, after, after_count);
    if (rc == 0) *ret_second = second;
    return finish(rc, ids_max, out, err);
}

int encode_ids(const struct encode_model *m, const uint32_t *ids, size_t count, size_t ids_max,
               struct ids *out, struct err *err)
{
    if (count > ids_max) return too_many(ids_max, err);
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= vocab_count(m->vocab))
            return err_set(err, -EPROTO, "item %zu: the model has no token %u", i, ids[i]);
        int rc = ids_push(out, ids[i]);
        if (rc < 0) return err_set(err, rc, "no memory for %zu ids", count);
    }
    return 0;
}

/* The functions below read a body, check its bounds, convert it and write the response. */

static int read_ids(struct json_reader *r, struct ids *ret, struct err *err)
{
    uint64_t id;
    ids_clear(ret);
    ret->max = TOKEN_ASK_IDS_MAX;
    if (json_next(r) != JSON_ARRAY)
        return err_set(err, -EINVAL, "tokens: want a list of token ids");
    while (json_next(r) != JSON_ARRAY_END) {
        if (json_u64(r, &id) < 0 || id > UINT32_MAX)
            return err_set(err, -EINVAL, "tokens: want a list of token ids");
        int rc = ids_push(ret, (uint32_t)id);
        if (rc == -E2BIG) return err_set(err, -EFBIG, "tokens: more than %u", TOKEN_ASK_IDS_MAX);
        if (rc < 0) return err_set(err, rc, "no memory for the ids");
    }
    return 0;
}

static int read_text(struct json_reader *r, struct buf *ret)
{
    json_next(r);
    buf_clear(ret);
    return json_text(r, ret);
}

static int read_bool(struct json_reader *r, bool *ret)
{
    json_next(r);
    return json_bool(r, ret);
}

/* Reads the value of a key that both kinds of body may have. */
static int read_shared(struct json_reader *r, struct token_ask *ask)
{
    if (json_key_is(r, "model")) return read_text(r, &ask->model);
    json_skip(r);
    return 0;
}

static int read_template(struct json_reader *r, struct token_ask *ask)
{
    if (json_key_is(r, "messages")) return json_raw_value(r, &ask->chat.messages);
    if (json_key_is(r, "tools")) return json_raw_value(r, &ask->chat.tools);
    if (json_key_is(r, "chat_template_kwargs")) return json_raw_value(r, &ask->chat.kwargs);
    if (json_key_is(r, "add_generation_prompt")) return read_bool(r, &ask->chat.generation_prompt);
    return read_shared(r, ask);
}

static int read_tokenize(struct json_reader *r, struct token_ask *ask)
{
    if (json_key_is(r, "prompt") || json_key_is(r, "content")) {
        ask->has_prompt = true;
        return read_text(r, &ask->prompt);
    }
    if (json_key_is(r, "messages")) return json_raw_value(r, &ask->chat.messages);
    if (json_key_is(r, "tools")) return json_raw_value(r, &ask->chat.tools);
    if (json_key_is(r, "add_special_tokens") || json_key_is(r, "add_special"))
        return read_bool(r, &ask->special);
    if (json_key_is(r, "add_generation_prompt")) return read_bool(r, &ask->chat.generation_prompt);
    return read_shared(r, ask);
}

static int check(const struct token_ask *ask, bool has_ids, struct err *err)
{
    if (ask->kind == TOKEN_ASK_DETOKENIZE)
        return has_ids ? 0 : err_set(err, -EINVAL, "tokens: missing");
    if (ask->kind != TOKEN_ASK_TOKENIZE)
        return ask->chat.messages.data ? 0 : err_set(err, -EINVAL, "messages: missing");
    if (!ask->has_prompt == !ask->chat.messages.data)
        return err_set(err, -EINVAL, "give either prompt or messages");
    return 0;
}

int token_ask_read(enum token_ask_kind kind, struct str body, struct token_ask *ret,
                   struct err *err)
{
    struct json_reader r;
    bool has_ids = false;
    *ret =
        (struct token_ask){ .kind = kind, .special = true, .chat = { .generation_prompt = true } };
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the request");
    while (json_next(&r) == JSON_KEY) {
        int rc;
        if (kind == TOKEN_ASK_DETOKENIZE && json_key_is(&r, "tokens")) {
            has_ids = true;
            rc = read_ids(&r, &ret->ids, err);
            if (rc < 0) return rc;
            continue;
        }
        rc = kind == TOKEN_ASK_TOKENIZE     ? read_tokenize(&r, ret)
             : kind == TOKEN_ASK_DETOKENIZE ? read_shared(&r, ret)
                                            : read_template(&r, ret);
        if (rc == -ENOMEM || rc == -E2BIG)
            return err_set(err, -ENOMEM, "no memory for the request");
        if (rc < 0) return json_fail(&r, err, "the request");
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END)
        return json_fail(&r, err, "the request");
    return check(ret, has_ids, err);
}

void token_ask_fini(struct token_ask *ask)
{
    buf_fini(&ask->model);
    buf_fini(&ask->prompt);
    ids_fini(&ask->ids);
}

static int tokenize(const struct token_ask *ask, const struct encode_model *m, uint32_t context,
                    struct buf *out, struct err *err)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    int rc = ask->has_prompt ? encode_text(m, buf_view(&ask->prompt), ask->special,
                                           TOKEN_ASK_IDS_MAX, &ids, err)
                             : encode_chat(m, &ask->chat, TOKEN_ASK_IDS_MAX, &ids, err);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_u64(&w, "count", ids.count);
    if (context > 0) json_kv_u64(&w, "max_model_len", context);
    json_key(&w, "tokens");
    json_array(&w);
    for (size_t i = 0; i < ids.count; i++)
        json_put_u64(&w, ids.data[i]);
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}

static int count(const struct token_ask *ask, const struct encode_model *m, struct buf *out,
                 struct err *err)
{
    CLEANUP(ids_fini) struct ids ids = { 0 };
    int rc = encode_chat(m, &ask->chat, TOKEN_ASK_IDS_MAX, &ids, err);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_u64(&w, "input_tokens", ids.count);
    json_object_end(&w);
    return out->rc;
}

static int apply_template(const struct token_ask *ask, const struct encode_model *m,
                          struct buf *out, struct err *err)
{
    CLEANUP(chat_output_fini) struct chat_output page = { 0 };
    int rc = render(m, &ask->chat, &page, err);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "prompt", buf_view(&page.text));
    json_object_end(&w);
    return out->rc;
}

static int detokenize(const struct token_ask *ask, const struct encode_model *m, struct buf *out,
                      struct err *err)
{
    CLEANUP(ids_fini) struct ids known = { 0 };
    CLEANUP(buf_fini) struct buf text = { .max = TOKEN_ASK_TEXT_BYTES_MAX };
    int rc = encode_ids(m, ask->ids.data, ask->ids.count, TOKEN_ASK_IDS_MAX, &known, err);
    if (rc == -EPROTO) return err_prefix(err, rc, "tokens");
    if (rc == 0) rc = detok_bytes(m->vocab, known.data, known.count, false, &text);
    if (rc == -E2BIG)
        return err_set(err, -EFBIG, "tokens: they stand for more than %zu bytes of text",
                       TOKEN_ASK_TEXT_BYTES_MAX);
    if (rc < 0) return rc;
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_kv_str(&w, "prompt", buf_view(&text));
    json_object_end(&w);
    return out->rc;
}

int token_ask_answer(const struct token_ask *ask, const struct encode_model *m, uint32_t context,
                     struct buf *out, struct err *err)
{
    int rc = ask->kind == TOKEN_ASK_TOKENIZE   ? tokenize(ask, m, context, out, err)
             : ask->kind == TOKEN_ASK_TEMPLATE ? apply_template(ask, m, out, err)
             : ask->kind == TOKEN_ASK_COUNT    ? count(ask, m, out, err)
                                               : detokenize(ask, m, out, err);
    return rc == -ENOMEM ? err_set(err, rc, "no memory for the reply") : rc;
}
