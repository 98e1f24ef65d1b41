/* generate.c - a chat or completion request from its body to the decision, and the way back.
 *
 * The prompt is templated and tokenised here, on the byte loop, as soon as a tokenizer for the
 * model is known; a request that comes before the first instance is tokenised when it is sent.
 */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/clock.h"
#include "router/bytes.h"
#include "router/features.h"
#include "router/question.h"

#include <stdio.h>
#include <stdlib.h>

#define BYTES_PER_TOKEN 4 /* guess where no tokenizer is known yet */

static void ask(struct request *r, uint32_t what)
{
    struct lane *lane = r->home->asks;
    lane_lock(lane);
    r->ask |= what;
    lane_send(lane, &r->ask_item);
    lane_unlock(lane);
}

void request_arrive(struct request *r)
{
    ask(r, ASK_ARRIVE);
}

void request_tokens(struct request *r, uint32_t count)
{
    must(!r->over);
    int64_t now_us = loop_now_us(r->home->loop);
    if (r->first_us == 0) r->first_us = now_us;
    r->last_us = now_us;
    struct lane *lane = r->home->asks;
    lane_lock(lane);
    r->ask |= ASK_TOKENS;
    r->ask_tokens += count;
    lane_send(lane, &r->ask_item);
    lane_unlock(lane);
}

void request_failed(struct request *r, enum retry_failure failure)
{
    must(!r->over);
    struct lane *lane = r->home->asks;
    lane_lock(lane);
    r->ask |= ASK_FAILED;
    r->ask_failure = failure;
    r->ask_answering = r->began;
    lane_send(lane, &r->ask_item);
    lane_unlock(lane);
}

static void observe(struct request *r)
{
    struct metrics *m = r->home->metrics;
    const struct outcome *o = &r->outcome;
    struct str label = o->ok ? STR("ok") : r->began ? STR("broken") : STR("failed");
    if (!o->ok && r->problem.status >= 400 && r->problem.status < 500) label = STR("refused");
    if (!o->ok && r->problem.status == 0) label = STR("client_left");
    metric_inc(metric_series(m, RM_REQUESTS, &label));
    if (!o->ok) return;
    metric_observe(metric_of(m, RM_TTFT), (double)o->ttft_us * 1e-6);
    if (o->tpot_us > 0) metric_observe(metric_of(m, RM_TPOT), (double)o->tpot_us * 1e-6);
    metric_observe(metric_of(m, RM_E2E), (double)o->e2e_us * 1e-6);
    metric_add(metric_of(m, RM_PROMPT_TOKENS), o->usage.prompt_tokens);
    metric_add(metric_of(m, RM_CACHED_TOKENS), o->usage.cached_tokens);
    metric_add(metric_of(m, RM_EXPECTED_TOKENS), r->target.hit_tokens);
    metric_add(metric_of(m, RM_GENERATED_TOKENS), o->usage.generated_tokens);
}

void request_over(struct request *r)
{
    if (r->over) return;
    r->over = true;
    loop_timer_clear(r->home->loop, &r->deadline);
    struct outcome *o = &r->outcome;
    o->usage = r->usage;
    if (r->first_us > 0) {
        o->ttft_us = r->first_us - r->arrived_us;
        o->e2e_us = r->last_us - r->arrived_us;
        uint32_t gaps = max_u32(r->usage.generated_tokens, 1) - 1;
        o->tpot_us = gaps > 0 ? (r->last_us - r->first_us) / gaps : 0;
    }
    if (!r->is_question) observe(r);
    question_drop(r);
    ask(r, ASK_OVER);
}

void generate_release(struct request *r)
{
    struct byte_loop *b = r->home;
    must(!r->x && !r->call && !r->question && !r->asker);
    loop_timer_clear(b->loop, &r->deadline);
    list_remove(&r->link);
    ids_fini(&r->ids);
    free(r->keys);
    arena_fini(&r->arena);
    arena_fini(&r->frame_arena);
    line_reader_fini(&r->lines);
    sse_reader_fini(&r->events);
    buf_fini(&r->answer);
    buf_fini(&r->out);
    pool_give(&b->requests, r);
}

/* The client left: stop the engine's work and let go. */
static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct request *r = arg;
    r->x = NULL;
    if (r->call) http_call_cancel(r->call);
    r->call = NULL;
    r->outcome.cut = true;
    request_over(r);
}

static void on_drain(void *arg)
{
    answer_drained(arg);
}

static void on_deadline(void *arg)
{
    upstream_deadline(arg);
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

static int render_chat(struct request *r, const struct bundle *bundle, struct err *err)
{
    if (!bundle->chat_template) {
        return err_set(err, -EPROTO, "the model has no chat template; use /v1/completions");
    }
    const struct vocab_special *sp = vocab_special(bundle->vocab);
    struct chat_inputs in = {
        .messages = r->api.messages,
        .tools = r->api.tools,
        .kwargs = r->api.chat_template_kwargs,
        .add_generation_prompt = true,
        .bos_token = vocab_text(bundle->vocab, sp->bos),
        .eos_token = vocab_text(bundle->vocab, sp->eos),
        .now_s = clock_wall_us() / 1000000,
    };
    struct chat_limits limits = { 0 };
    CLEANUP(chat_output_fini) struct chat_output out = { 0 };
    int rc = chat_template_render(bundle->chat_template, &in, &limits, &out, err);
    if (rc < 0) return rc;
    return tokenizer_encode_spans(bundle->vocab, buf_view(&out.text), &out.content, &r->ids, err);
}

static int make_ids(struct request *r, const struct bundle *bundle, struct err *err)
{
    if (r->api.surface == OPENAI_CHAT) return render_chat(r, bundle, err);
    if (!r->api.prompt_ids) {
        return tokenizer_encode_prompt(bundle->vocab, r->api.prompt, &r->ids, err);
    }
    for (uint32_t i = 0; i < r->api.prompt_id_count; i++) {
        if (r->api.prompt_ids[i] >= vocab_count(bundle->vocab)) {
            return err_set(err, -EPROTO, "prompt[%u]: the model has no token %u", i,
                           r->api.prompt_ids[i]);
        }
        int rc = ids_push(&r->ids, r->api.prompt_ids[i]);
        if (rc < 0) return rc;
    }
    return 0;
}

int generate_tokenize(struct request *r, const struct bundle_entry *bundle)
{
    struct err err = { 0 };
    ids_clear(&r->ids);
    int rc = make_ids(r, &bundle->bundle, &err);
    if (rc == -ENOMEM) {
        return openai_error_set(&r->problem, rc, OPENAI_INTERNAL, NULL, "out of memory");
    }
    const char *param = r->api.surface == OPENAI_CHAT ? "messages" : "prompt";
    if (rc == 0 && r->ids.count == 0) rc = err_set(&err, -EINVAL, "the prompt is empty");
    if (rc < 0) return openai_error_set(&r->problem, rc, OPENAI_INVALID, param, "%s", err.text);
    r->bundle = bundle;
    return 0;
}

int generate_check_context(struct request *r, uint32_t context)
{
    size_t prompt = r->ids.count;
    if (context == 0 || prompt + max_u32(r->api.max_tokens, 1) <= context) return 0;
    return openai_error_set(&r->problem, -EINVAL, OPENAI_CONTEXT_LENGTH,
                            r->api.surface == OPENAI_CHAT ? "messages" : "prompt",
                            "This model's maximum context length is %u tokens, but the prompt has "
                            "%zu and %u are asked for. Shorten the prompt or lower max_tokens.",
                            context, prompt, max_u32(r->api.max_tokens, 1));
}

/* Chained keys of the prompt, so that the core can look them up. */
static int make_keys(struct request *r, struct str salt)
{
    uint32_t count = (uint32_t)r->ids.count / BLOCK_TOKENS;
    if (count == 0) return 0;
    r->keys = malloc(count * sizeof *r->keys);
    if (!r->keys) return openai_error_set(&r->problem, -ENOMEM, OPENAI_INTERNAL, NULL, "no memory");
    r->core.keys = r->keys;
    r->core.key_count = block_keys(r->bundle->seed, bundle_salt(r->bundle, salt), r->ids.data,
                                   (uint32_t)r->ids.count, r->keys, count);
    return 0;
}

static void fill_core(struct request *r, const struct face_model *m)
{
    struct core_request *c = &r->core;
    c->model = m->service;
    c->prompt_tokens = r->bundle ? (uint32_t)r->ids.count
                                 : (uint32_t)max_i64((int64_t)(r->body.len / BYTES_PER_TOKEN), 1);
    features_of(&r->api, str_from(r->tenant_name), c->prompt_tokens, &r->arena, &c->features);
    if (c->key_count > 0) c->features.prefix = c->keys[0].lo;
    uint32_t context = m->context_tokens ? m->context_tokens : OPENAI_TOKENS_MAX;
    uint32_t room = context > c->prompt_tokens ? context - c->prompt_tokens : 1;
    c->features.output_max = r->api.max_tokens ? min_u32(r->api.max_tokens, room) : room;
}

int generate_ready(struct request *r, const struct face_model *m)
{
    int rc = 0;
    if (m->bundle) {
        rc = generate_tokenize(r, m->bundle);
        if (rc == 0) rc = generate_check_context(r, m->context_tokens);
        if (rc == 0) rc = make_keys(r, r->salt);
    }
    if (rc == 0) fill_core(r, m);
    return rc;
}

static int prepare(struct request *r, const struct face *f, const struct http_request *req,
                   enum openai_surface surface, const struct tenant_name *tenant,
                   const struct face_model **ret)
{
    int rc = openai_parse(surface, req->body, &r->arena, &r->api, &r->problem);
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
    if (tenant) memcpy(r->tenant_name, tenant->name, sizeof r->tenant_name);
    struct str salt = tenant ? arena_str(&r->arena, str_from(tenant->salt)) : (struct str){ 0 };
    /* Without its salt a tenant would share the cache of all others. */
    if (tenant && !salt.data) {
        return openai_error_set(&r->problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
    }
    r->salt = salt;
    r->body = req->body;
    struct str model = arena_str(&r->arena, str_from(m->name));
    r->reply = (struct openai_reply){ .surface = surface,
                                      .id = str_from(r->id),
                                      .created_s = clock_wall_us() / 1000000,
                                      .model = model,
                                      .include_usage = r->api.include_usage };
    *ret = m;
    return generate_ready(r, m);
}

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

struct request *generate_take(struct byte_loop *b, int64_t deadline_us)
{
    struct request *r = pool_take(&b->requests);
    if (!r) return NULL;
    r->home = b;
    list_push_back(&b->live, &r->link);
    r->arrived_us = loop_now_us(b->loop);
    r->deadline_us = deadline_us;
    r->deadline = (struct loop_timer){ .fn = on_deadline, .arg = r };
    arena_init(&r->arena, REQUEST_ARENA_BYTES_MAX);
    arena_init(&r->frame_arena, REQUEST_ARENA_BYTES_MAX);
    return r;
}

void generate_begin(struct byte_loop *b, struct http_exchange *x, enum openai_surface surface,
                    const struct face *f, const struct tenant_name *tenant)
{
    const struct http_request *req = http_exchange_request(x);
    struct request *r = generate_take(b, deadline_of(b, req, loop_now_us(b->loop)));
    if (!r) {
        struct openai_error full = { 0 };
        openai_error_set(&full, 0, OPENAI_OVERLOADED, NULL,
                         "The router holds as many requests as it may; try again shortly.");
        CLEANUP(buf_fini) struct buf body = { 0 };
        openai_error_render(&full, &body);
        struct str label = STR("refused");
        metric_inc(metric_series(b->metrics, RM_REQUESTS, &label));
        http_reply_header(x, "retry-after", STR("1"));
        front_cors(b, x);
        http_reply(x, full.status, STR("application/json"), buf_view(&body));
        return;
    }
    const struct face_model *model = NULL;
    r->x = x;
    make_id(b, req, r->id);
    int rc = prepare(r, f, req, surface, tenant, &model);
    if (rc == 0 && loop_timer_set(b->loop, &r->deadline, r->deadline_us) < 0) {
        rc = openai_error_set(&r->problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
    }
    if (rc < 0) {
        struct str label = STR("refused");
        metric_inc(metric_series(b->metrics, RM_REQUESTS, &label));
        answer_problem(r, 1);
        generate_release(r);
        return;
    }
    http_exchange_watch(x, on_abort, on_drain, r);
    if (!question_ask(r, model)) request_arrive(r);
}

/* The words of a refusal that the core or a limit decided. */
static void refusal(struct request *r, int status, bool rate_limited, double retry_after_s)
{
    if (status == 422) {
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
    struct target target = r->tell_target;
    int status = r->tell_status;
    double retry_after_s = r->tell_retry_after_s;
    bool rate_limited = r->tell_rate_limited;
    lane_unlock(&b->lane);

    if (!r->over && tell & TELL_SEND) {
        r->target = target;
        upstream_start(r);
    }
    if (!r->over && tell & TELL_REFUSE) {
        refusal(r, status, rate_limited, retry_after_s);
        answer_problem(r, retry_after_s);
        request_over(r);
    }
    if (tell & TELL_DONE) {
        if (r->is_question) question_answered(r);
        generate_release(r);
    }
}
