/* generate.c - a chat or completion request from its body to the decision, and the way back.
 *
 * A small body is read, rendered and tokenised here and now. A large one enters first: the decision
 * thread looks at its tenant's limits, then a text worker does the work, and only then it arrives.
 *
 *     small ─────────────────────────────────────────────► prepare ──► ASK_ARRIVE
 *     large ──► ASK_ENTER ──► TELL_TEXT ──► worker: prepare ──► done ──► ASK_ARRIVE
 *
 * While a worker has the request nothing here touches it: a client that leaves and a deadline that
 * passes are noted by x and deadline_us, and looked at when the worker is done. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "router/byte_loop.h"
#include "router/prompt.h"
#include "router/question.h"

#include <stdio.h>

/* The client left: stop the engine's work and let go. */
static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct request *r = arg;
    r->x = NULL;
    if (generate_at_text(r)) return;
    if (r->call) signed_call_cancel(r->call);
    r->call = NULL;
    r->outcome.cut = true;
    request_over(r);
}

static void on_drain(void *arg)
{
    answer_drained(arg);
}

static void make_id(struct byte_loop *b, const struct http_request *req,
                    char ret[REQUEST_ID_MAX + 1])
{
    struct str given = http_request_header(req, "x-request-id");
    bool plain = given.len > 0 && given.len <= REQUEST_ID_MAX;
    for (size_t i = 0; plain && i < given.len; i++) {
        char c = given.data[i];
        plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                c == '-' || c == '_' || c == '.';
    }
    if (plain) {
        memcpy(ret, given.data, given.len);
        ret[given.len] = '\0';
    } else {
        snprintf(ret, REQUEST_ID_MAX + 1, "%016llx%016llx", (unsigned long long)rng_u64(&b->rng),
                 (unsigned long long)rng_u64(&b->rng));
    }
}

/* Reads the body and makes the prompt: of a large one on a text worker. */
static int prepare(struct request *r, const struct face *f, const struct face_model **ret)
{
    enum openai_surface surface = r->api.surface;
    int rc = openai_parse(surface, r->body, &r->arena, &r->api, &r->problem);
    if (rc < 0) return rc;
    if (f->model_count == 0) { /* nothing has told us of a model: no reason to call it absent */
        return openai_error_set(&r->problem, -EAGAIN, OPENAI_UNAVAILABLE, NULL,
                                "The router has just started and knows no model yet; try again "
                                "in a second.");
    }
    const struct face_model *m = face_model_find(f, r->api.model);
    if (!m) {
        return openai_error_set(&r->problem, -ENOENT, OPENAI_MODEL_NOT_FOUND, "model",
                                "The model '" STR_FMT "' does not exist.", STR_ARG(r->api.model));
    }
    struct str model = arena_str(&r->arena, str_from(m->name));
    r->reply = (struct openai_reply){ .surface = surface,
                                      .id = str_from(r->id),
                                      .created_s = clock_wall_us() / 1000000,
                                      .model = model,
                                      .include_usage = r->api.include_usage };
    *ret = m;
    return prompt_ready(r, m);
}

static int take_tenant(struct request *r, const struct tenant_name *tenant)
{
    if (!tenant) return 0;
    memcpy(r->tenant_name, tenant->name, sizeof r->tenant_name);
    r->salt = arena_str(&r->arena, str_from(tenant->salt));
    if (r->salt.data) return 0;
    /* Without its salt a tenant would share the cache of all others. */
    return openai_error_set(&r->problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
}

/* ---- large bodies ---- */

bool generate_at_text(struct request *r)
{
    if (!r->at_text) return false;
    if (!text_cancel(&r->text)) return true;
    r->at_text = false;
    http_exchange_unpin(r->pinned);
    return false;
}

static void run_prepare(void *arg)
{
    struct request *r = arg;
    r->text_rc = prepare(r, r->face, &r->model);
}

static void run_retokenise(void *arg)
{
    struct request *r = arg;
    r->text_rc = prompt_tokenize(r, r->target.bundle, r->target.context_tokens);
}

/* Back from the worker: true when the request goes on. */
static bool back_from_text(struct request *r)
{
    r->at_text = false;
    http_exchange_unpin(r->pinned);
    if (!r->x) {
        r->outcome.cut = true;
        request_over(r);
    } else if (loop_now_us(r->home->loop) >= r->deadline_us) {
        upstream_deadline(r);
    } else if (r->text_rc < 0) {
        answer_problem(r, 1);
        request_over(r);
    }
    return !r->over;
}

static void done_prepare(void *arg)
{
    struct request *r = arg;
    if (back_from_text(r)) request_arrive(r);
}

static void done_retokenise(void *arg)
{
    struct request *r = arg;
    if (back_from_text(r)) upstream_start(r);
}

static void give_to_worker(struct request *r, void (*run)(void *), void (*done)(void *))
{
    r->text = (struct text_job){ .run = run, .done = done, .arg = r, .bytes = r->body.len };
    r->at_text = true;
    r->pinned = r->x;
    http_exchange_pin(r->x);
    if (text_submit(&r->home->text, &r->text) == 0) return;
    r->at_text = false;
    http_exchange_unpin(r->pinned);
    openai_error_set(&r->problem, 0, OPENAI_OVERLOADED, NULL,
                     "Too many large prompts are waiting to be tokenised; try again shortly.");
    answer_problem(r, 1);
    request_over(r);
}

void generate_retokenise(struct request *r)
{
    give_to_worker(r, run_retokenise, done_retokenise);
}

/* ---- from the body to the decision ---- */

static int64_t deadline_of(const struct byte_loop *b, const struct http_request *req,
                           int64_t now_us)
{
    uint64_t ms;
    int64_t most_us = b->config->request_us_max;
    struct str given = http_request_header(req, "x-request-timeout-ms");
    if (given.len > 0 && str_to_u64(given, &ms) == 0 && ms > 0 && ms < INT64_MAX / 1000) {
        most_us = min_i64(most_us, (int64_t)ms * 1000);
    }
    return now_us + most_us;
}

void generate_begin(struct byte_loop *b, struct http_exchange *x, enum openai_surface surface,
                    const struct face *f, const struct tenant_name *tenant)
{
    const struct http_request *req = http_exchange_request(x);
    struct request *r =
        request_take(b, deadline_of(b, req, loop_now_us(b->loop)), upstream_deadline);
    if (!r) {
        struct openai_error full = { 0 };
        openai_error_set(&full, 0, OPENAI_OVERLOADED, NULL,
                         "The router holds as many requests as it may; try again shortly.");
        CLEANUP(buf_fini) struct buf body = { 0 };
        openai_error_render(&full, &body);
        struct str label = STR("refused");
        metric_inc(metric_series(b->metrics, RM_REQUESTS, &label));
        http_reply_header(x, "retry-after", STR("1"));
        answer_cors(b, x);
        http_reply(x, full.status, STR("application/json"), buf_view(&body));
        return;
    }
    const struct face_model *model = NULL;
    bool large = req->body.len > TEXT_INLINE_BYTES;
    r->x = x;
    r->body = req->body;
    r->api.surface = surface;
    make_id(b, req, r->id);
    int rc = take_tenant(r, tenant);
    if (rc == 0 && !large) rc = prepare(r, f, &model);
    if (rc == -E2BIG && !large) { /* in few bytes more work than is done here */
        r->problem = (struct openai_error){ 0 };
        r->api = (struct openai_request){ .surface = surface };
        large = true;
        rc = 0;
    }
    if (rc == 0 && loop_timer_set(b->loop, &r->deadline, r->deadline_us) < 0) {
        rc = openai_error_set(&r->problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
    }
    if (rc < 0) {
        struct str label = STR("refused");
        metric_inc(metric_series(b->metrics, RM_REQUESTS, &label));
        answer_problem(r, 1);
        request_release(r);
        return;
    }
    http_exchange_watch(x, on_abort, on_drain, r);
    if (large) {
        r->face = face_get(b->board);
        request_enter(r);
    } else if (!question_ask(r, model)) {
        request_arrive(r);
    }
}

/* The words of a refusal that the core or a limit decided. */
static void refusal(struct request *r, int status, bool rate_limited, double retry_after_s)
{
    if (status == 422 && retry_after_s > 0) {
        openai_error_set(&r->problem, 0, OPENAI_POISONOUS, NULL,
                         "Two engines failed while they computed this prompt; it is refused for "
                         "another %.0f s. Prompt %016llx in `muster quarantine`.",
                         retry_after_s, (unsigned long long)r->fingerprint);
    } else if (status == 422) {
        openai_error_set(&r->problem, 0, OPENAI_POISONOUS, NULL,
                         "Two engines failed while they computed this request; it is not tried "
                         "again.");
    } else if (status == 429 && rate_limited) {
        openai_error_set(&r->problem, 0, OPENAI_RATE_LIMIT, NULL,
                         "The tenant's limit is reached; try again in %.0f s.",
                         retry_after_s < 1 ? 1 : retry_after_s);
    } else if (status == 429) {
        openai_error_set(&r->problem, 0, OPENAI_OVERLOADED, NULL,
                         "Too many requests are in flight; try again shortly.");
    } else if (status == 503) {
        openai_error_set(&r->problem, 0, OPENAI_UNAVAILABLE, NULL,
                         "No instance can take the request now; try again in %.0f s.",
                         retry_after_s < 1 ? 1 : retry_after_s);
    } else if (!r->began) { /* a stream that broke has the engine's words, or answer.c's */
        openai_error_set(&r->problem, 0, OPENAI_UPSTREAM, NULL,
                         "The engine failed before it answered.");
    }
}

void generate_on_mail(void *arg, struct lane_item *item)
{
    struct byte_loop *b = arg;
    struct request *r = CONTAINER_OF(item, struct request, tell_item);
    lane_open(&b->lane, item);
    uint32_t tell = r->tell;
    r->tell = 0;
    struct target target = r->tell_target, move = r->tell_move;
    int status = r->tell_status;
    double retry_after_s = r->tell_retry_after_s;
    bool rate_limited = r->tell_rate_limited;
    lane_unlock(&b->lane);

    if (!r->over && tell & TELL_SEND) {
        /* Of the cache the first leg's part is kept, and so is what was expected of it. */
        if (leg_generated(r) > 0) target.hit_tokens = r->target.hit_tokens;
        r->target = target;
        upstream_start(r);
    }
    if (!r->over && tell & TELL_TEXT) give_to_worker(r, run_prepare, done_prepare);
    if (!r->over && tell & TELL_MOVE) move_begin(r, &move);
    if (!r->over && tell & TELL_REFUSE) {
        refusal(r, status, rate_limited, retry_after_s);
        answer_problem(r, retry_after_s);
        request_over(r);
    }
    if (tell & TELL_DONE) {
        if (r->is_question) question_answered(r);
        request_release(r);
    }
}
