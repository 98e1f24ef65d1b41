/* face_openai.c - OpenAI's endpoints.
 *
 * A body becomes a checked openai_request (base/wire), that becomes ids (face_text.c), those become a
 * call.
 */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/io/clock.h"
#include "base/wire/sse.h"
#include "engine/serve/face_text.h"

#define TIMEOUT_MS_MAX 86400000 /* of x-request-timeout-ms: a day */

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

/* Any thread. */
static int make(struct prompt *p)
{
    const struct face *f = p->face;
    int rc = openai_parse(p->r.surface, p->body, &p->arena, &p->r, &p->e);
    if (rc == 0) rc = check_model(f, p->r.model, &p->e);
    if (rc == 0) rc = prompt_encode(p);
    if (rc == 0 && p->ids.count == 0)
        rc = openai_error_set(&p->e, -EINVAL, OPENAI_INVALID, "prompt", "the prompt is empty");
    if (rc == 0) rc = check_room(f, &p->r, p->ids.count, &p->e);
    return rc;
}

static void refused(struct prompt *p)
{
    http_reply_header(p->x, "x-request-id", str_from(p->id.text));
    face_reply_error(p->face, p->x, &p->e);
}

static void made(struct prompt *p)
{
    const struct openai_request *r = &p->r;
    if (p->rc < 0) {
        refused(p);
        return;
    }
    const struct call_ask ask = {
        .form = r->stream ? &stream_form : &whole_form,
        .ids = &p->ids,
        .prompt_tokens = (uint32_t)p->ids.count,
        .sampling = &r->sampling,
        .max_tokens = r->max_tokens,
        .min_tokens = r->min_tokens,
        .stop = r->stop,
        .stop_count = r->stop_count,
        .ignore_eos = r->ignore_eos,
        .entered = p->entered,
        .deadline_us = p->deadline_us,
        .reply = { .surface = r->surface,
                   .created_s = clock_wall_us() / 1000000,
                   .model = p->face->config.model_name,
                   .fingerprint = str_from(p->face->info->model->numerics),
                   .include_usage = r->include_usage },
        .id = &p->id,
    };
    call_start(p->face, p->x, &ask);
}

static void generate(struct face *f, struct http_exchange *x, enum openai_surface surface)
{
    struct prompt p = { .make = make, .made = made, .r = { .surface = surface } };
    face_request_id(f, x, &p.id);
    if (read_deadline(http_exchange_request(x), &p.deadline_us, &p.e) < 0) {
        p.face = f;
        p.x = x;
        refused(&p);
        return;
    }
    prompt_begin(f, x, &p);
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
