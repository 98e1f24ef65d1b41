/* face_openai.c - OpenAI's endpoints, and the two that turn text into ids and back.
 *
 * A body becomes a checked openai_request (base/wire), that becomes ids, those become a call.
 */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/clock.h"
#include "base/wire/sse.h"
#include "engine/serve/face_part.h"

#define TIMEOUT_MS_MAX 86400000     /* of x-request-timeout-ms: a day */
#define TOKENIZE_IDS_MAX (1u << 17) /* of one call: it holds up the loop while it runs */

/* ---- text to ids ------------------------------------------------------------------------------ */

static int render_failed(struct openai_error *e, int rc, const struct err *err)
{
    switch (rc) {
    case -EPROTO: /* the template's own refusal: its sentence is for the client */
    case -EINVAL:
        return openai_error_set(e, rc, OPENAI_INVALID, "messages", "%s", err->text);
    case -E2BIG:
        return openai_error_set(e, rc, OPENAI_CONTEXT_LENGTH, "messages", "%s", err->text);
    default:
        return openai_error_set(e, rc, OPENAI_INTERNAL, NULL, "the chat template failed: %s",
                                err->text);
    }
}

/* The ids of `text` do not fit; err of the tokenizer would not say by how much. */
static int too_long(const struct face *f, struct openai_error *e)
{
    return openai_error_set(e, -E2BIG, OPENAI_CONTEXT_LENGTH, "messages",
                            "the prompt is longer than the context of this model, %u tokens",
                            f->info->context_max);
}

static int encode_failed(const struct face *f, struct openai_error *e, int rc)
{
    if (rc == -E2BIG) return too_long(f, e);
    return openai_error_set(e, rc, OPENAI_UNAVAILABLE, NULL, "no memory for the prompt");
}

struct chat_ask {
    struct str messages, tools, kwargs;
    bool generation_prompt;
};

static struct str special_text(const struct vocab *v, uint32_t id)
{
    return id == VOCAB_NONE ? (struct str){ 0 } : vocab_text(v, id);
}

static int encode_chat(struct face *f, const struct chat_ask *ask, struct ids *out,
                       struct openai_error *e)
{
    if (!f->chat_template) {
        return openai_error_set(e, -EINVAL, OPENAI_INVALID, "messages",
                                "this model has no chat template; use /v1/completions, or start "
                                "the engine with --chat-template");
    }
    const struct vocab *v = f->info->model->vocab;
    const struct chat_inputs in = {
        .messages = ask->messages,
        .tools = ask->tools,
        .kwargs = ask->kwargs,
        .add_generation_prompt = ask->generation_prompt,
        .bos_token = special_text(v, vocab_special(v)->bos),
        .eos_token = special_text(v, vocab_special(v)->eos),
        .now_s = clock_wall_us() / 1000000,
    };
    const struct chat_limits limits = { 0 };
    CLEANUP(chat_output_fini) struct chat_output text = { 0 };
    struct err err = { "" };
    int rc = chat_template_render(f->chat_template, &in, &limits, &text, &err);
    if (rc < 0) return render_failed(e, rc, &err);
    rc = tokenizer_encode_spans(v, buf_view(&text.text), &text.content, out, &err);
    return rc < 0 ? encode_failed(f, e, rc) : 0;
}

static int encode_prompt(struct face *f, struct str text, struct ids *out, struct openai_error *e)
{
    struct err err = { "" };
    int rc = tokenizer_encode_prompt(f->info->model->vocab, text, out, &err);
    return rc < 0 ? encode_failed(f, e, rc) : 0;
}

static int copy_ids(struct face *f, const uint32_t *ids, uint32_t count, struct ids *out,
                    struct openai_error *e)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= f->info->model->vocab_size) {
            return openai_error_set(e, -EINVAL, OPENAI_INVALID, "prompt",
                                    "token id %u: the vocabulary has %u tokens", ids[i],
                                    f->info->model->vocab_size);
        }
        int rc = ids_push(out, ids[i]);
        if (rc < 0) return encode_failed(f, e, rc);
    }
    return 0;
}

/* ---- how answers are written ------------------------------------------------------------------ */

static struct usage usage_of(const struct call *c, const struct job_mail *mail)
{
    return (struct usage){
        .prompt_tokens = c->prompt_tokens,
        .cached_tokens = min_u32(mail->cached_tokens, c->prompt_tokens),
        .generated_tokens = mail->generated,
    };
}

static enum finish finish_of(enum session_end end)
{
    return end == SESSION_END_STOP ? FINISH_STOP : FINISH_LENGTH;
}

static void stream_begin(struct call *c)
{
    if (c->reply.surface == OPENAI_CHAT) openai_chunk_role(&c->reply, &c->face->out);
}

static void stream_tokens(struct call *c, const struct job_mail *mail)
{
    /* Half a character or the beginning of a stop string makes no chunk. */
    if (mail->text.len > 0) openai_chunk_text(&c->reply, buf_view(&mail->text), &c->face->out);
}

static void stream_error(struct call *c, const struct job_mail *mail)
{
    struct openai_error e;
    if (mail->end == SESSION_END_DEADLINE) {
        openai_error_set(&e, 0, OPENAI_DEADLINE, NULL, "the request was not done within its time");
    } else {
        openai_error_set(&e, 0, OPENAI_INTERNAL, NULL, "%s",
                         mail->end == SESSION_END_ABORT ? "the engine is shutting down"
                                                        : mail->error);
    }
    openai_chunk_error(&e, &c->face->out);
}

static void stream_end(struct call *c, const struct job_mail *mail)
{
    struct buf *out = &c->face->out;
    if (mail->end == SESSION_END_STOP || mail->end == SESSION_END_LENGTH) {
        openai_chunk_finish(&c->reply, finish_of(mail->end), out);
        struct usage usage = usage_of(c, mail);
        if (c->reply.include_usage) openai_chunk_usage(&c->reply, &usage, out);
    } else {
        stream_error(c, mail);
    }
    openai_chunk_done(out);
}

static const struct call_form stream_form = {
    .content_type = "text/event-stream",
    .stream = true,
    .pings = true,
    .begin = stream_begin,
    .tokens = stream_tokens,
    .end = stream_end,
};

static void whole_tokens(struct call *c, const struct job_mail *mail)
{
    buf_str(&c->text, buf_view(&mail->text)); /* sticky: looked at in the end */
}

static void whole_end(struct call *c, const struct job_mail *mail)
{
    struct face *f = c->face;
    struct usage usage = usage_of(c, mail);
    if (c->text.rc < 0) {
        face_refuse(f, c->x, OPENAI_UNAVAILABLE, NULL, "no memory for the answer");
    } else {
        buf_clear(&f->out);
        openai_reply_whole(&c->reply, buf_view(&c->text), finish_of(mail->end), &usage, &f->out);
        face_reply(f, c->x, 200, buf_view(&f->out));
    }
    c->x = NULL;
}

static const struct call_form whole_form = { .tokens = whole_tokens, .end = whole_end };

/* ---- generating endpoints ---------------------------------------------------------------------- */

static int check_model(const struct face *f, struct str model, struct openai_error *e)
{
    if (model.len == 0 || str_eq(model, f->config.model_name)) return 0;
    return openai_error_set(e, -ENOENT, OPENAI_MODEL_NOT_FOUND, "model",
                            "the model '" STR_FMT "' does not exist; this engine serves '" STR_FMT
                            "'",
                            STR_ARG(model), STR_ARG(f->config.model_name));
}

static int read_deadline(const struct http_request *req, int64_t *ret, struct openai_error *e)
{
    struct str text = http_request_header(req, "x-request-timeout-ms");
    uint64_t ms;
    if (!text.data) return 0;
    if (str_to_u64(text, &ms) < 0 || ms == 0 || ms > TIMEOUT_MS_MAX) {
        return openai_error_set(e, -EINVAL, OPENAI_INVALID, "x-request-timeout-ms",
                                "x-request-timeout-ms must be a number from 1 to %d",
                                TIMEOUT_MS_MAX);
    }
    *ret = req->received_us + (int64_t)ms * 1000;
    return 0;
}

static int encode_request(struct face *f, const struct openai_request *r, struct ids *out,
                          struct openai_error *e)
{
    if (r->surface == OPENAI_CHAT) {
        const struct chat_ask ask = { r->messages, r->tools, r->chat_template_kwargs, true };
        return encode_chat(f, &ask, out, e);
    }
    if (r->prompt_ids) return copy_ids(f, r->prompt_ids, r->prompt_id_count, out, e);
    return encode_prompt(f, r->prompt, out, e);
}

/* As the router refuses: an answer cut short of what was asked for would look like a choice. A
 * prompt that fills the context alone is call_start's to refuse. */
static int check_room(const struct face *f, const struct openai_request *r, size_t prompt,
                      struct openai_error *e)
{
    uint32_t context = f->info->context_max;
    if (prompt >= context || r->max_tokens <= context - prompt) return 0;
    return openai_error_set(e, -EINVAL, OPENAI_CONTEXT_LENGTH, "max_tokens",
                            "the context of this model is %u tokens, but the prompt has %zu and "
                            "max_tokens asks for %u; lower it or leave it out",
                            context, prompt, r->max_tokens);
}

static void generate(struct face *f, struct http_exchange *x, enum openai_surface surface)
{
    const struct http_request *req = http_exchange_request(x);
    struct openai_request r;
    struct openai_error e;
    struct face_id id;
    int64_t deadline_us = 0;
    /* One more than fits tells "too long" from "just fits". */
    CLEANUP(ids_fini) struct ids ids = { .max = (size_t)f->info->context_max + 1 };
    face_request_id(f, x, &id);
    int rc = openai_parse(surface, req->body, &f->arena, &r, &e);
    if (rc >= 0) rc = check_model(f, r.model, &e);
    if (rc >= 0) rc = read_deadline(req, &deadline_us, &e);
    if (rc >= 0) rc = encode_request(f, &r, &ids, &e);
    if (rc >= 0 && ids.count == 0) {
        rc = openai_error_set(&e, -EINVAL, OPENAI_INVALID, "prompt", "the prompt is empty");
    }
    if (rc >= 0) rc = check_room(f, &r, ids.count, &e);
    if (rc < 0) {
        http_reply_header(x, "x-request-id", str_from(id.text));
        face_reply_error(f, x, &e);
        return;
    }
    const struct call_ask ask = {
        .form = r.stream ? &stream_form : &whole_form,
        .ids = &ids,
        .prompt_tokens = (uint32_t)ids.count,
        .sampling = &r.sampling,
        .max_tokens = r.max_tokens,
        .min_tokens = r.min_tokens,
        .stop = r.stop,
        .stop_count = r.stop_count,
        .ignore_eos = r.ignore_eos,
        .deadline_us = deadline_us,
        .reply = { .surface = surface,
                   .created_s = clock_wall_us() / 1000000,
                   .model = f->config.model_name,
                   .fingerprint = str_from(f->info->model->numerics),
                   .include_usage = r.include_usage },
        .id = &id,
    };
    call_start(f, x, &ask);
}

void face_chat(struct face *f, struct http_exchange *x)
{
    generate(f, x, OPENAI_CHAT);
}

void face_completions(struct face *f, struct http_exchange *x)
{
    generate(f, x, OPENAI_COMPLETION);
}

void face_models(struct face *f, struct http_exchange *x)
{
    const struct openai_model model = {
        .id = f->config.model_name,
        .created_s = f->created_s,
        .context_tokens = f->info ? f->info->context_max : 0,
    };
    openai_models_render(&model, 1, &f->out);
    face_reply(f, x, 200, buf_view(&f->out));
}

/* ---- /tokenize and /detokenize ------------------------------------------------------------------- */

struct tokenize_ask {
    struct buf prompt;
    bool has_prompt, special;
    struct chat_ask chat;
};

static int read_tokenize(struct str body, struct tokenize_ask *ret, struct err *err)
{
    struct json_reader r;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the request");
    int rc = 0;
    while (rc == 0 && json_next(&r) == JSON_KEY) {
        if (json_key_is(&r, "prompt") || json_key_is(&r, "content")) {
            json_next(&r);
            buf_clear(&ret->prompt);
            rc = json_text(&r, &ret->prompt);
            ret->has_prompt = true;
        } else if (json_key_is(&r, "messages")) {
            rc = json_raw_value(&r, &ret->chat.messages);
        } else if (json_key_is(&r, "tools")) {
            rc = json_raw_value(&r, &ret->chat.tools);
        } else if (json_key_is(&r, "add_special_tokens") || json_key_is(&r, "add_special")) {
            json_next(&r);
            rc = json_bool(&r, &ret->special);
        } else if (json_key_is(&r, "add_generation_prompt")) {
            json_next(&r);
            rc = json_bool(&r, &ret->chat.generation_prompt);
        } else {
            json_skip(&r);
        }
    }
    if (rc < 0 || r.token != JSON_OBJECT_END || json_next(&r) != JSON_END) {
        return json_fail(&r, err, "the request");
    }
    if (!ret->has_prompt == !ret->chat.messages.data) {
        return err_set(err, -EINVAL, "give either prompt or messages");
    }
    return 0;
}

static void reply_ids(struct face *f, struct http_exchange *x, const struct ids *ids)
{
    struct json_writer w;
    json_writer_init(&w, &f->out);
    json_object(&w);
    json_kv_u64(&w, "count", ids->count);
    json_kv_u64(&w, "max_model_len", f->info->context_max);
    json_key(&w, "tokens");
    json_array(&w);
    for (size_t i = 0; i < ids->count; i++)
        json_put_u64(&w, ids->data[i]);
    json_array_end(&w);
    json_object_end(&w);
    face_reply(f, x, 200, buf_view(&f->out));
}

void face_tokenize(struct face *f, struct http_exchange *x)
{
    struct tokenize_ask ask = { .special = true, .chat = { .generation_prompt = true } };
    struct err err = { "" };
    struct openai_error e;
    CLEANUP(ids_fini) struct ids ids = { .max = TOKENIZE_IDS_MAX };
    int rc = read_tokenize(http_exchange_request(x)->body, &ask, &err);
    if (rc < 0) {
        openai_error_set(&e, rc, OPENAI_INVALID, NULL, "%s", err_text(&err, rc));
    } else if (ask.chat.messages.data) {
        rc = encode_chat(f, &ask.chat, &ids, &e);
    } else if (ask.special) {
        rc = encode_prompt(f, buf_view(&ask.prompt), &ids, &e);
    } else {
        rc = tokenizer_encode(f->info->model->vocab, buf_view(&ask.prompt), false, &ids, &err);
        if (rc < 0) openai_error_set(&e, rc, OPENAI_TOO_LARGE, "prompt", "%s", err_text(&err, rc));
    }
    buf_fini(&ask.prompt);
    if (rc < 0) {
        face_reply_error(f, x, &e);
    } else {
        reply_ids(f, x, &ids);
    }
}

static int read_detokenize(struct str body, struct ids *ret, struct err *err)
{
    struct json_reader r;
    uint64_t id;
    json_reader_init(&r, body);
    if (json_next(&r) != JSON_OBJECT) return json_fail(&r, err, "the request");
    bool seen = false;
    while (json_next(&r) == JSON_KEY) {
        if (!json_key_is(&r, "tokens")) {
            json_skip(&r);
            continue;
        }
        seen = true;
        if (json_next(&r) != JSON_ARRAY) return json_fail(&r, err, "tokens");
        while (json_next(&r) != JSON_ARRAY_END) {
            if (json_u64(&r, &id) < 0 || id > UINT32_MAX) {
                return err_set(err, -EINVAL, "tokens: want a list of token ids");
            }
            int rc = ids_push(ret, (uint32_t)id);
            if (rc < 0) return err_set(err, rc, "tokens: more than %u", TOKENIZE_IDS_MAX);
        }
    }
    if (r.token != JSON_OBJECT_END || json_next(&r) != JSON_END) {
        return json_fail(&r, err, "the request");
    }
    return seen ? 0 : err_set(err, -EINVAL, "tokens: missing");
}

void face_detokenize(struct face *f, struct http_exchange *x)
{
    struct err err = { "" };
    struct openai_error e;
    CLEANUP(ids_fini) struct ids ids = { .max = TOKENIZE_IDS_MAX }, known = { 0 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = read_detokenize(http_exchange_request(x)->body, &ids, &err);
    if (rc < 0) {
        openai_error_set(&e, rc, OPENAI_INVALID, "tokens", "%s", err_text(&err, rc));
    } else {
        rc = copy_ids(f, ids.data, (uint32_t)ids.count, &known, &e);
    }
    if (rc >= 0) {
        rc = detok_bytes(f->info->model->vocab, known.data, known.count, false, &text);
        if (rc < 0) openai_error_set(&e, rc, OPENAI_TOO_LARGE, "tokens", "%s", err_text(NULL, rc));
    }
    if (rc < 0) {
        face_reply_error(f, x, &e);
        return;
    }
    struct json_writer w;
    json_writer_init(&w, &f->out);
    json_object(&w);
    json_kv_str(&w, "prompt", buf_view(&text));
    json_object_end(&w);
    face_reply(f, x, 200, buf_view(&f->out));
}
