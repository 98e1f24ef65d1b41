/* tokens.c - /tokenize and /detokenize: small bodies here, large ones on a text worker. */
#include "router/byte_loop.h"

#include <stdlib.h>

struct token_call {
    struct list link; /* of the byte loop's, while at a worker */
    struct byte_loop *home;
    struct http_exchange *x; /* NULL: the client has left */
    struct http_exchange *pinned;
    struct text_job job;
    struct face *face; /* a reference while at a worker */
    enum token_ask_kind kind;
    struct str body;
    struct openai_error problem; /* status 0: `out` is the reply */
    struct buf out;
};

static int find_and_answer(struct token_call *c, const struct face *f, const struct token_ask *ask)
{
    struct err err = { 0 };
    const struct face_model *m = face_model_find(f, buf_view(&ask->model));
    if (!m) {
        return openai_error_set(&c->problem, -ENOENT, OPENAI_MODEL_NOT_FOUND, "model",
                                "There is no such model.");
    }
    if (!m->bundle) {
        return openai_error_set(&c->problem, -EAGAIN, OPENAI_LOADING, NULL,
                                "No instance of the model has started yet.");
    }
    const struct bundle *b = &m->bundle->bundle;
    const struct encode_model model = { b->vocab, b->chat_template };
    int rc = token_ask_answer(ask, &model, m->context_tokens, &c->out, &err);
    if (rc == 0) return 0;
    enum openai_problem problem = rc == -EFBIG || rc == -E2BIG ? OPENAI_TOO_LARGE
                                  : rc == -ENOMEM              ? OPENAI_UNAVAILABLE
                                                               : OPENAI_INVALID;
    return openai_error_set(&c->problem, rc, problem, NULL, "%s", err_text(&err, rc));
}

/* Any thread. -E2BIG: more than `steps_max` steps of a template (0: its own bound). */
static int make_reply(struct token_call *c, const struct face *f, uint64_t steps_max)
{
    struct err err = { 0 };
    struct token_ask ask;
    int rc = token_ask_read(c->kind, c->body, &ask, &err);
    ask.chat.steps_max = steps_max;
    if (rc == 0) {
        rc = find_and_answer(c, f, &ask);
    } else {
        enum openai_problem problem = rc == -EFBIG    ? OPENAI_TOO_LARGE
                                      : rc == -ENOMEM ? OPENAI_UNAVAILABLE
                                                      : OPENAI_INVALID;
        openai_error_set(&c->problem, rc, problem, NULL, "%s", err_text(&err, rc));
    }
    token_ask_fini(&ask);
    return rc;
}

static void reply(struct token_call *c)
{
    int status = c->problem.status;
    if (status) {
        buf_clear(&c->out);
        openai_error_render(&c->problem, &c->out);
        if (status == 429 || status == 503) http_reply_header(c->x, "retry-after", STR("1"));
    }
    answer_cors(c->home, c->x);
    http_reply(c->x, status ? status : 200, STR("application/json"), buf_view(&c->out));
}

static void call_free(struct token_call *c)
{
    list_remove(&c->link);
    face_unref(c->home->board, c->face);
    buf_fini(&c->out);
    free(c);
}

static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct token_call *c = arg;
    c->x = NULL;
    if (!text_cancel(&c->job)) return; /* the worker is at it */
    http_exchange_unpin(c->pinned);
    call_free(c);
}

static void run(void *arg)
{
    struct token_call *c = arg;
    make_reply(c, c->face, 0);
}

static void done(void *arg)
{
    struct token_call *c = arg;
    http_exchange_unpin(c->pinned);
    if (c->x) reply(c);
    call_free(c);
}

static void refuse(struct byte_loop *b, struct http_exchange *x)
{
    struct token_call c = { .home = b, .x = x };
    openai_error_set(&c.problem, 0, OPENAI_OVERLOADED, NULL,
                     "Too many large texts are waiting to be tokenised; try again shortly.");
    reply(&c);
    buf_fini(&c.out);
}

void tokens_begin(struct byte_loop *b, struct http_exchange *x, enum token_ask_kind kind,
                  const struct face *f)
{
    struct str body = http_exchange_request(x)->body;
    if (body.len <= TEXT_INLINE_BYTES) {
        struct token_call c = { .home = b, .x = x, .kind = kind, .body = body };
        int rc = make_reply(&c, f, ENCODE_INLINE_STEPS);
        if (rc != -E2BIG) reply(&c);
        buf_fini(&c.out);
        if (rc != -E2BIG) return;
    }
    struct token_call *c = calloc(1, sizeof *c);
    if (!c) {
        refuse(b, x);
        return;
    }
    *c = (struct token_call){ .home = b, .x = x, .pinned = x, .kind = kind, .body = body };
    c->job = (struct text_job){ .run = run, .done = done, .arg = c, .bytes = body.len };
    c->face = face_get(b->board);
    list_push_back(&b->token_calls, &c->link);
    http_exchange_pin(x);
    if (text_submit(&b->text, &c->job) < 0) {
        http_exchange_unpin(x);
        call_free(c);
        refuse(b, x);
        return;
    }
    http_exchange_watch(x, on_abort, NULL, c);
}

void tokens_free(struct byte_loop *b)
{
    LIST_EACH_SAFE (&b->token_calls, node) {
        struct token_call *c = CONTAINER_OF(node, struct token_call, link);
        if (c->x) http_exchange_abort(c->x);
        call_free(c);
    }
}
