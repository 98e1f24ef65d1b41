/* face_text.c - from a body to token ids: small ones here, large ones on a text worker.
 *
 *     small ──────────────────────────────► make ──► made: a call, or a reply
 *     large ──► waiting ──► worker: make ──► made
 *                  │
 *                  └─ the client left: taken back, or dropped when the worker is done
 *
 * `make` reads the body, the model's vocabulary and template and nothing else of the face: all of
 * that stays as it is while a worker reads it. */
#include "engine/serve/face_text.h"

#include "base/io/clock.h"

#include <stdlib.h>

static void prompt_fini(struct prompt *p)
{
    ids_fini(&p->ids);
    buf_fini(&p->out);
    arena_fini(&p->arena);
}

static void prompt_free(struct prompt *p)
{
    list_remove(&p->link);
    prompt_fini(p);
    free(p);
}

static void run(void *arg)
{
    struct prompt *p = arg;
    p->rc = p->make(p);
}

static void done(void *arg)
{
    struct prompt *p = arg;
    http_exchange_unpin(p->pinned);
    if (p->x) p->made(p);
    prompt_free(p);
}

static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct prompt *p = arg;
    p->x = NULL;
    if (!text_cancel(&p->job)) return; /* the worker is at it */
    http_exchange_unpin(p->pinned);
    prompt_free(p);
}

static void hand_over(struct face *f, struct http_exchange *x, const struct prompt *with)
{
    if (call_refused(f, x, false)) return;
    struct prompt *p = calloc(1, sizeof *p);
    if (!p) {
        face_refuse(f, x, OPENAI_UNAVAILABLE, NULL, "no memory for the request");
        return;
    }
    *p = *with;
    p->pinned = x;
    p->entered = true;
    p->job = (struct text_job){ .run = run, .done = done, .arg = p, .bytes = p->body.len };
    list_push_back(&f->prompts, &p->link);
    http_exchange_pin(x);
    if (text_submit(&f->desk, &p->job) < 0) {
        http_exchange_unpin(x);
        prompt_free(p);
        metric_inc(meter_of(f->meters, METER_REFUSED));
        face_refuse(f, x, OPENAI_OVERLOADED, NULL,
                    "too many large prompts are waiting to be tokenised; try again shortly");
        return;
    }
    http_exchange_watch(x, on_abort, NULL, p);
}

static struct prompt new_prompt(struct face *f, struct http_exchange *x, const struct prompt *with)
{
    struct prompt p = *with;
    p.face = f;
    p.x = x;
    p.body = http_exchange_request(x)->body;
    arena_init(&p.arena, FACE_ARENA_BYTES_MAX);
    return p;
}

void prompt_begin(struct face *f, struct http_exchange *x, const struct prompt *with)
{
    struct prompt p = new_prompt(f, x, with);
    bool small = p.body.len <= TEXT_INLINE_BYTES;
    if (small) p.rc = p.make(&p);
    if (small && p.rc != -E2BIG) {
        p.made(&p);
        prompt_fini(&p);
        return;
    }
    prompt_fini(&p); /* large, or in few bytes more work than is done here */
    p = new_prompt(f, x, with);
    hand_over(f, x, &p);
}

/* ---- chat and completions ---------------------------------------------------------------------- */

struct encode_model face_encode_model(const struct face *f)
{
    return (struct encode_model){ f->info->model->vocab, f->chat_template };
}

int prompt_failed(const struct prompt *p, int rc, const struct err *err, struct openai_error *e)
{
    const char *param = p->r.surface == OPENAI_CHAT ? "messages" : "prompt";
    switch (rc) {
    case -EFBIG:
        return openai_error_set(e, rc, OPENAI_CONTEXT_LENGTH, param,
                                "the prompt is longer than the context of this model, %u tokens",
                                p->face->info->context_max);
    case -E2BIG:
        return openai_error_set(e, rc, OPENAI_CONTEXT_LENGTH, param, "%s", err->text);
    case -EPROTO: /* the template's own refusal: its sentence is for the client */
    case -EINVAL:
        return openai_error_set(e, rc, OPENAI_INVALID, param, "%s", err->text);
    case -ENOMEM:
        return openai_error_set(e, rc, OPENAI_UNAVAILABLE, NULL, "no memory for the prompt");
    default:
        return openai_error_set(e, rc, OPENAI_INTERNAL, NULL, "the chat template failed: %s",
                                err->text);
    }
}

/* A worker goes as far as the template's own bound. */
static uint64_t steps_max(const struct prompt *p)
{
    return p->entered ? 0 : ENCODE_INLINE_STEPS;
}

int prompt_encode(struct prompt *p)
{
    const struct openai_request *r = &p->r;
    const struct encode_model m = face_encode_model(p->face);
    struct err err = { "" };
    /* One more than fits tells "too long" from "just fits". */
    size_t ids_max = (size_t)p->face->info->context_max + 1;
    int rc;
    if (r->surface == OPENAI_CHAT) {
        const struct encode_chat chat = { .messages = r->messages,
                                          .tools = r->tools,
                                          .kwargs = r->chat_template_kwargs,
                                          .generation_prompt = true,
                                          .now_s = clock_wall_us() / 1000000,
                                          .steps_max = steps_max(p) };
        rc = encode_chat(&m, &chat, ids_max, &p->ids, &err);
    } else if (r->prompt_ids) {
        rc = encode_ids(&m, r->prompt_ids, r->prompt_id_count, ids_max, &p->ids, &err);
    } else {
        rc = encode_text(&m, r->prompt, true, ids_max, &p->ids, &err);
    }
    return rc < 0 ? prompt_failed(p, rc, &err, &p->e) : 0;
}

/* ---- /tokenize and /detokenize ------------------------------------------------------------------- */

static int make_tokens(struct prompt *p)
{
    const struct encode_model m = face_encode_model(p->face);
    struct token_ask ask;
    struct err err = { "" };
    int rc = token_ask_read(p->kind, p->body, &ask, &err);
    ask.chat.steps_max = steps_max(p);
    if (rc == 0) rc = token_ask_answer(&ask, &m, p->face->info->context_max, &p->out, &err);
    token_ask_fini(&ask);
    if (rc == -EFBIG || rc == -E2BIG) /* not of a model's context: of one call */
        return openai_error_set(&p->e, rc, OPENAI_TOO_LARGE, NULL, "%s", err_text(&err, rc));
    return rc < 0 ? prompt_failed(p, rc, &err, &p->e) : 0;
}

static void tokens_made(struct prompt *p)
{
    if (p->rc < 0)
        face_reply_error(p->face, p->x, &p->e);
    else
        face_reply(p->face, p->x, 200, buf_view(&p->out));
}

void face_tokenize(struct face *f, struct http_exchange *x)
{
    prompt_begin(
        f, x,
        &(struct prompt){ .make = make_tokens, .made = tokens_made, .kind = TOKEN_ASK_TOKENIZE });
}

void face_detokenize(struct face *f, struct http_exchange *x)
{
    prompt_begin(
        f, x,
        &(struct prompt){ .make = make_tokens, .made = tokens_made, .kind = TOKEN_ASK_DETOKENIZE });
}

/* ---- life ------------------------------------------------------------------------------------------ */

int prompts_init(struct face *f, struct err *err)
{
    const struct text_pool_config config = {
        .threads = f->config.text_threads,
        .queue_bytes = f->config.text_queue_bytes,
        .meters = { f->meters->metrics, METER_TEXT_BYTES, METER_TEXT_REFUSED, METER_TEXT_SECONDS },
    };
    list_init(&f->prompts);
    int rc = text_pool_new(&config, &f->texts, err);
    if (rc == 0) text_desk_init(&f->desk, f->texts, f->loop);
    return rc;
}

void prompts_free(struct face *f)
{
    LIST_EACH_SAFE (&f->prompts, node) {
        prompt_free(CONTAINER_OF(node, struct prompt, link));
    }
    text_desk_fini(&f->desk);
    text_pool_free(f->texts);
    f->texts = NULL;
}
