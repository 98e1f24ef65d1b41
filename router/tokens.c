/* tokens.c - answers /tokenize and its like, and counts the tokens of a message: small bodies on the byte loop, large
 * ones on a text worker. A call of a tenant that has limits enters first.
 *
 *     limited ──► ENTRY_ENTER ──► ENTRY_MAY ──┐            ┌──► reply ──► ENTRY_END, if it entered
 *     others ─────────────────────────────────┴─► small ───┤
 *                                              └─► large ──► worker ──► done
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/wire/anthropic.h"
#include "router/byte_loop.h"
#include "router/decide.h"
#include "router/tenants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct token_call {
    struct list link; /* of the byte loop's */
    struct byte_loop *home;
    struct http_exchange *x; /* NULL: the client has left */
    struct http_exchange *pinned;
    struct text_job job;
    struct entry entry;
    bool asked, entered;       /* asked: a reply of the decision thread is under way */
    double wait_s;             /* until the tenant may ask again */
    struct snapshot *snapshot; /* a reference while at a worker */
    enum token_ask_kind kind;
    struct str body;
    struct openai_error problem; /* status 0: `out` is the reply */
    struct buf out;
};

static int find_and_answer(struct token_call *c, const struct snapshot *f,
                           const struct token_ask *ask)
{
    struct err err = { 0 };
    const struct snapshot_adapter *adapter; /* has the tokenizer of its model */
    const struct snapshot_model *m = snapshot_find(f, buf_view(&ask->model), &adapter);
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

/* Makes the reply, on any thread. -E2BIG: more than `steps_max` steps of a template (0: its own bound). */
static int make_reply(struct token_call *c, const struct snapshot *f, uint64_t steps_max)
{
    CLEANUP(arena_fini) struct arena arena = { 0 };
    struct err err = { 0 };
    struct token_ask ask;
    struct str body = c->body;
    arena_init(&arena, REQUEST_ARENA_BYTES_MAX);
    int rc = 0;
    if (c->kind == TOKEN_ASK_COUNT)
        rc = anthropic_to_chat(ANTHROPIC_COUNT, body, &arena, &body, &c->problem);
    if (rc < 0) return rc;
    rc = token_ask_read(c->kind, body, &ask, &err);
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
        reply_error(reply_style_of(http_exchange_request(c->x)->path), &c->problem, &c->out);
        char seconds[24];
        snprintf(seconds, sizeof seconds, "%.0f", c->wait_s > 1 ? ceil(c->wait_s) : 1);
        if (status == 429 || status == 503)
            http_reply_header(c->x, "retry-after", str_from(seconds));
    }
    response_cors(c->home, c->x);
    http_reply(c->x, status ? status : 200, STR("application/json"), buf_view(&c->out));
}

static void call_free(struct token_call *c)
{
    list_remove(&c->link);
    if (c->snapshot) snapshot_unref(c->home->board, c->snapshot);
    buf_fini(&c->out);
    free(c);
}

static void ask(struct token_call *c, enum entry_ask what)
{
    c->asked = true;
    entry_ask(&c->entry, decide_entries(c->home->decide), what);
}

/* Ends a call whose client has its reply or has left. */
static void call_over(struct token_call *c)
{
    c->x = NULL;
    if (c->entered)
        ask(c, ENTRY_END);
    else
        call_free(c);
}

static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct token_call *c = arg;
    c->x = NULL;
    if (c->asked || !text_cancel(&c->job))
        return; /* the decision thread's reply or the worker ends it */
    http_exchange_unpin(c->pinned);
    call_over(c);
}

static void run(void *arg)
{
    struct token_call *c = arg;
    make_reply(c, c->snapshot, 0);
}

static void done(void *arg)
{
    struct token_call *c = arg;
    http_exchange_unpin(c->pinned);
    if (c->x) reply(c);
    call_over(c);
}

static void refuse(struct token_call *c, enum openai_problem problem, const char *sentence)
{
    openai_error_set(&c->problem, 0, problem, NULL, "%s", sentence);
    reply(c);
}

static const char overloaded[] =
    "Too many large texts are waiting to be tokenised; try again shortly.";

/* Returns a copy that lives until call_free; NULL: the client was told why not. */
static struct token_call *keep(const struct token_call *with)
{
    struct token_call *c = calloc(1, sizeof *c);
    if (!c) {
        struct token_call lost = *with;
        refuse(&lost, OPENAI_OVERLOADED, overloaded);
        buf_fini(&lost.out);
        return NULL;
    }
    *c = *with;
    list_push_back(&c->home->token_calls, &c->link);
    http_exchange_watch(c->x, on_abort, NULL, c);
    return c;
}

static void hand_over(struct token_call *c)
{
    c->pinned = c->x;
    c->job = (struct text_job){ .run = run, .done = done, .arg = c, .bytes = c->body.len };
    c->snapshot = snapshot_get(c->home->board);
    http_exchange_pin(c->pinned);
    if (text_submit(&c->home->text, &c->job) == 0) return;
    http_exchange_unpin(c->pinned);
    refuse(c, OPENAI_OVERLOADED, overloaded);
    call_over(c);
}

/* Answers a call of few bytes and little work at once; returns true if it did. */
static bool answer_here(struct token_call *c, const struct snapshot *f)
{
    if (c->body.len > TEXT_INLINE_BYTES || make_reply(c, f, ENCODE_INLINE_STEPS) == -E2BIG)
        return false;
    reply(c);
    return true;
}

void tokens_begin(struct byte_loop *b, struct http_exchange *x, enum token_ask_kind kind,
                  const struct snapshot *f, const struct tenant_name *tenant)
{
    bool limited = tenant && tenant->limited;
    struct token_call now = {
        .home = b, .x = x, .kind = kind, .body = http_exchange_request(x)->body
    };
    if (!limited && answer_here(&now, f)) {
        buf_fini(&now.out);
        return;
    }
    buf_fini(&now.out);
    now.problem = (struct openai_error){ 0 };
    struct token_call *c = keep(&now);
    if (!c) return;
    if (!limited) {
        hand_over(c);
        return;
    }
    c->entry.home = &b->entered;
    memcpy(c->entry.tenant_name, tenant->name, sizeof c->entry.tenant_name);
    ask(c, ENTRY_ENTER);
}

static void enter(struct token_call *c)
{
    c->entered = true;
    if (!c->x) {
        call_over(c);
        return;
    }
    struct snapshot *f = snapshot_get(c->home->board);
    bool answered = answer_here(c, f);
    snapshot_unref(c->home->board, f);
    if (answered) {
        call_over(c);
        return;
    }
    buf_clear(&c->out);
    c->problem = (struct openai_error){ 0 };
    hand_over(c);
}

void tokens_on_mail(void *arg, struct mailbox_item *item)
{
    struct byte_loop *b = arg;
    struct token_call *c = CONTAINER_OF(item, struct token_call, entry.tell_item);
    double wait_s;
    uint32_t tell = entry_told(&b->entered, item, &wait_s);
    c->asked = false;
    if (tell & ENTRY_MAY) {
        enter(c);
        return;
    }
    if (c->x) {
        c->wait_s = wait_s;
        refuse(c, OPENAI_RATE_LIMIT, "The tenant's limit is reached; try again later.");
    }
    call_free(c);
}

void tokens_free(struct byte_loop *b)
{
    LIST_EACH_SAFE (&b->token_calls, node) {
        struct token_call *c = CONTAINER_OF(node, struct token_call, link);
        if (c->x) http_exchange_abort(c->x);
        call_free(c);
    }
}
