/* generate.c - takes a chat or completion request from its body to the decision, and back.
 *
 * A small body is read, rendered and tokenised at once, on the byte loop. A large one enters first: the
 * decision thread looks at its tenant's limits, then a text worker does the work, and only then it
 * arrives.
 *
 *     small ─────────────────────────────────────────────► prepare ──► ASK_ARRIVE
 *     large ──► ASK_ENTER ──► TELL_TEXT ──► worker: prepare ──► done ──► ASK_ARRIVE
 *
 * While a worker has the request the byte loop does not touch it: a client that leaves and a deadline
 * that passes show in x and deadline_us, which are looked at when the worker is done. */
#include "router/generate.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/text/detok.h"
#include "base/text/encode.h"
#include "base/wire/anthropic.h"
#include "base/wire/responses.h"
#include "policies/predict/text.h"
#include "router/byte_loop.h"
#include "router/fan.h"
#include "router/question.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- features for the length predictor ---- */

/* Returns the text unescaped, in the arena; empty without memory for it. */
static struct str plain(struct arena *arena, struct str escaped)
{
    struct str text = { 0 };
    if (escaped.len > 0 && json_unescape_arena(escaped, arena, &text) < 0) return (struct str){ 0 };
    return text;
}

/* Returns the end of a text, the only part that predictors read. The request keeps the text. */
static struct str end_of(struct str text)
{
    if (text.len <= TEXT_BYTES_MAX) return text;
    return str_of(text.data + text.len - TEXT_BYTES_MAX, TEXT_BYTES_MAX);
}

void features_of(const struct openai_request *api, struct str tenant, uint32_t prompt_tokens,
                 struct arena *arena, struct predict_features *ret)
{
    bool chat = api->surface == OPENAI_CHAT;
    struct str text = chat ? plain(arena, api->last_text) : api->prompt;
    struct str system = plain(arena, api->last_system), said = plain(arena, api->last_answer);
    struct str head = chat ? api->messages : api->prompt;
    size_t bytes = head.len;
    if (head.len > FEATURE_PREFIX_BYTES) head.len = FEATURE_PREFIX_BYTES;
    ret->tenant = hash64(tenant.data, tenant.len, 0);
    ret->prefix = hash64(head.data, head.len, ret->tenant);
    ret->group = api->last_system.data ? hash64(system.data, system.len, 2) : 0;
    ret->ask = text_ask(text);
    ret->text = end_of(text);
    ret->prompt_tokens = prompt_tokens;
    ret->previous_tokens = 0;
    if (said.len > 0) {
        double share = (double)said.len / (double)bytes;
        ret->previous_tokens = 1 + (uint32_t)(share * (double)prompt_tokens);
    }
}

/* ---- ids, keys ---- */

#define BYTES_PER_TOKEN 4 /* guess where no tokenizer is known yet */

static int make_ids(struct request *r, const struct bundle *bundle, size_t ids_max, struct err *err)
{
    const struct encode_model m = { bundle->vocab, bundle->chat_template };
    if (r->client.api.surface == OPENAI_CHAT) {
        const struct encode_chat chat = { .messages = r->client.api.messages,
                                          .tools = r->client.api.tools,
                                          .kwargs = r->client.api.chat_template_kwargs,
                                          .generation_prompt = true,
                                          .now_s = clock_wall_us() / 1000000,
                                          .steps_max = r->client.at_text ? 0 : ENCODE_INLINE_STEPS,
                                          .scratch = r->client.at_text ? NULL : &r->home->render };
        return encode_chat(&m, &chat, ids_max, &r->client.ids, err);
    }
    if (r->client.api.prompt_ids)
        return encode_ids(&m, r->client.api.prompt_ids, r->client.api.prompt_id_count, ids_max,
                          &r->client.ids, err);
    return encode_text(&m, r->client.api.prompt, true, ids_max, &r->client.ids, err);
}

/* Hashes the ids, with model and adapter; where they are not known, the client's bytes. */
static void set_fingerprint(struct request *r)
{
    const struct hash_key key = { { r->home->print_seed,
                                    r->mail.arrival.model ^ r->mail.arrival.adapter } };
    uint64_t print = r->client.bundle
                         ? siphash(&key, r->client.ids.data,
                                   r->client.prompt_tokens * sizeof *r->client.ids.data)
                         : siphash(&key, r->client.body.data, r->client.body.len);
    r->client.fingerprint = print ? print : 1;
}

static int check_bias(struct request *r, const struct vocab *vocab)
{
    const struct openai_request *api = &r->client.api;
    for (uint32_t i = 0; i < api->bias_count; i++)
        if (api->logit_bias[i].id >= vocab_count(vocab))
            return openai_error_set(&r->client.problem, -EINVAL, OPENAI_INVALID, "logit_bias",
                                    "logit_bias: token id %u: the vocabulary has %zu tokens.",
                                    api->logit_bias[i].id, (size_t)vocab_count(vocab));
    return 0;
}

/* Keeps the text that an echo begins with. */
static int keep_echo(struct request *r, const struct vocab *vocab)
{
    const struct openai_request *api = &r->client.api;
    CLEANUP(buf_fini) struct buf text = { .max = REQUEST_ARENA_BYTES_MAX };
    if (!api->echo) return 0;
    r->client.echo = api->prompt;
    if (!api->prompt_ids) return 0;
    int rc = detok_bytes(vocab, api->prompt_ids, api->prompt_id_count, true, &text);
    if (rc == 0) r->client.echo = arena_str(&r->client.arena, buf_view(&text));
    if (rc == 0 && (r->client.echo.data || text.len == 0)) return 0;
    return openai_error_set(&r->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
}

/* Plans how the output of a chat is parsed, and bound by its tools. */
static int plan_turn(struct request *r, const struct bundle *bundle)
{
    const struct openai_request *api = &r->client.api;
    const struct turn_ask ask = {
        .tools = api->tools,
        .only = api->tool_only,
        .required = api->tool_choice == OPENAI_TOOLS_REQUIRED,
        .parallel = !api->no_parallel_tool_calls,
        .bound = api->grammar.kind != GRAMMAR_NONE,
    };
    struct err err = { 0 };
    r->client.turn = (struct turn){ 0 };
    if (api->surface != OPENAI_CHAT || r->is_question) return 0;
    int rc = turn_plan(&bundle->dialogue, bundle->vocab, &ask, r->client.ids.data,
                       r->client.ids.count, &r->client.arena, &r->client.turn, &err);
    if (rc == 0) {
        response_forget(r);
        return 0;
    }
    return openai_error_set(&r->client.problem, rc,
                            rc == -ENOTSUP ? OPENAI_UNSUPPORTED : OPENAI_INVALID, "tools", "%s",
                            err_text(&err, rc));
}

int prompt_tokenize(struct request *r, const struct bundle_entry *bundle, uint32_t context)
{
    struct err err = { 0 };
    ids_clear(&r->client.ids);
    r->client.prompt_tokens = 0;
    /* One more than fits tells "too long" from "just fits". */
    size_t ids_max = context > 0 ? (size_t)context + 1 : OPENAI_PROMPT_IDS_MAX;
    int rc = make_ids(r, &bundle->bundle, ids_max, &err);
    const char *param = r->client.api.surface == OPENAI_CHAT ? "messages" : "prompt";
    if (rc == -ENOMEM) {
        return openai_error_set(&r->client.problem, rc, OPENAI_INTERNAL, NULL, "out of memory");
    }
    if (rc == -EFBIG) {
        return openai_error_set(&r->client.problem, rc, OPENAI_CONTEXT_LENGTH, param,
                                "This model's maximum context length is %u tokens, but the prompt "
                                "has more. Shorten the prompt.",
                                context > 0 ? context : OPENAI_PROMPT_IDS_MAX);
    }
    if (rc == 0 && r->client.ids.count == 0) rc = err_set(&err, -EINVAL, "the prompt is empty");
    if (rc < 0)
        return openai_error_set(&r->client.problem, rc, OPENAI_INVALID, param, "%s", err.text);
    rc = check_bias(r, bundle->bundle.vocab);
    if (rc == 0) rc = keep_echo(r, bundle->bundle.vocab);
    if (rc == 0) rc = plan_turn(r, &bundle->bundle);
    if (rc < 0) return rc;
    r->client.bundle = bundle;
    bundle_pin(&r->home->board->pins, &r->client.pins, bundle);
    r->client.prompt_tokens = (uint32_t)r->client.ids.count;
    if (r->mail.arrival.model != 0) set_fingerprint(r); /* it arrived before its ids were known */
    return 0;
}

int prompt_check_context(struct request *r, uint32_t context)
{
    uint32_t prompt = r->client.prompt_tokens;
    if (context == 0 || prompt + max_u32(r->client.api.max_tokens, 1) <= context) return 0;
    return openai_error_set(&r->client.problem, -EINVAL, OPENAI_CONTEXT_LENGTH,
                            r->client.api.surface == OPENAI_CHAT ? "messages" : "prompt",
                            "This model's maximum context length is %u tokens, but the prompt has "
                            "%u and %u are asked for. Shorten the prompt or lower max_tokens.",
                            context, prompt, max_u32(r->client.api.max_tokens, 1));
}

/* Makes the chained keys of the prompt, which the dispatch looks up. */
static int make_keys(struct request *r, struct str salt)
{
    uint32_t count = (uint32_t)r->client.ids.count / BLOCK_TOKENS;
    if (count == 0) return 0;
    r->client.keys = arena_array(&r->client.arena, count, sizeof *r->client.keys);
    if (!r->client.keys)
        return openai_error_set(&r->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL, "no memory");
    r->mail.arrival.keys = r->client.keys;
    r->mail.arrival.key_count =
        block_keys(r->client.bundle->seed, bundle_salt(r->client.bundle, r->client.adapter, salt),
                   r->client.ids.data, (uint32_t)r->client.ids.count, r->client.keys, count);
    return 0;
}

static void fill_arrival(struct request *r, const struct snapshot_model *m)
{
    struct request_arrival *c = &r->mail.arrival;
    c->model = m->service;
    c->prompt_tokens = r->client.bundle
                           ? (uint32_t)r->client.ids.count
                           : (uint32_t)max_i64((int64_t)(r->client.body.len / BYTES_PER_TOKEN), 1);
    features_of(&r->client.api, str_from(r->mail.arrival.tenant_name), c->prompt_tokens,
                &r->client.arena, &c->features);
    if (c->key_count > 0) c->features.prefix = c->keys[0].lo;
    uint32_t context = m->context_tokens ? m->context_tokens : OPENAI_TOKENS_MAX;
    uint32_t room = context > c->prompt_tokens ? context - c->prompt_tokens : 1;
    c->features.output_max =
        r->client.api.max_tokens ? min_u32(r->client.api.max_tokens, room) : room;
    if (openai_wants_vectors(r->client.api.surface)) c->features.output_max = 1;
    set_fingerprint(r);
    c->fingerprint = r->client.fingerprint;
}

void prompt_placed(struct request *r, const struct snapshot_model *m)
{
    fill_arrival(r, m);
}

void prompt_drop_more(struct request *r)
{
    for (uint32_t i = 0; i < r->client.more_count; i++)
        ids_fini(&r->client.more[i].ids);
    r->client.more = NULL;
    r->client.more_count = 0;
}

/* Makes the further prompts of a request, before the first. */
static int make_more(struct request *r, const struct snapshot_model *m)
{
    struct openai_request *api = &r->client.api;
    prompt_drop_more(r); /* of a try that was too much work for the byte loop */
    if (api->prompt_count == 1) return 0;
    struct fan_prompt *more = arena_array(&r->client.arena, api->prompt_count - 1, sizeof *more);
    if (!more)
        return openai_error_set(&r->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL, "no memory");
    memset(more, 0, (api->prompt_count - 1) * sizeof *more);
    r->client.more = more;
    r->client.more_count = api->prompt_count - 1;
    int rc = 0;
    for (uint32_t i = 1; i < api->prompt_count && rc == 0; i++) {
        openai_prompt_select(api, i);
        r->mail.arrival.key_count = 0;
        rc = prompt_ready(r, m);
        more[i - 1] = (struct fan_prompt){ .ids = r->client.ids,
                                           .echo = r->client.echo,
                                           .keys = r->client.keys,
                                           .key_count = r->mail.arrival.key_count };
        r->client.ids = (struct ids){ 0 };
        r->client.keys = NULL;
        r->mail.arrival.keys = NULL;
        r->mail.arrival.key_count = 0;
    }
    openai_prompt_select(api, 0);
    return rc;
}

int prompt_ready(struct request *r, const struct snapshot_model *m)
{
    int rc = 0;
    if (m->bundle) {
        rc = prompt_tokenize(r, m->bundle, m->context_tokens);
        if (rc == 0) rc = prompt_check_context(r, m->context_tokens);
        if (rc == 0) rc = make_keys(r, r->client.salt);
    }
    if (rc == 0) fill_arrival(r, m);
    return rc;
}

/* Stops the engine's work and ends the request when the client has left. */
static void on_abort(void *arg, enum http_abort why)
{
    (void)why;
    struct request *r = arg;
    if (r->client.fan) {
        fan_left(r);
        return;
    }
    r->client.x = NULL;
    if (generate_at_text(r)) return;
    if (r->client.call) signed_call_cancel(r->client.call);
    r->client.call = NULL;
    r->client.outcome.cut = true;
    request_over(r);
}

static void on_drain(void *arg)
{
    struct request *r = arg;
    struct fan *f = r->client.fan;
    if (!f) response_drained(r);
    for (uint32_t i = 0; f && i < f->count; i++)
        response_drained(f->output[i].r);
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

static int check_task(struct request *r, const struct snapshot_model *m)
{
    struct err err = { "" };
    int rc = model_task_generates(m->task, str_from(m->name), &err);
    return rc < 0
               ? openai_error_set(&r->client.problem, rc, OPENAI_INVALID, "model", "%s", err.text)
               : 0;
}

/* Reads the body and makes the prompt; for a large body, on a text worker. */
static int prepare(struct request *r, const struct snapshot *f, const struct snapshot_model **ret)
{
    enum openai_surface surface = r->client.api.surface;
    int rc = 0;
    if (r->client.style == REPLY_ANTHROPIC && !r->client.rewritten)
        rc = anthropic_to_chat(ANTHROPIC_MESSAGES, r->client.body, &r->client.arena,
                               &r->client.body, &r->client.problem);
    if (r->client.style == REPLY_RESPONSES && !r->client.rewritten)
        rc = responses_to_chat(r->client.body, &r->client.arena, &r->client.body,
                               &r->client.repeated, &r->client.problem);
    if (rc < 0) return rc;
    r->client.rewritten = r->client.style != REPLY_OPENAI;
    rc =
        openai_parse(surface, r->client.body, &r->client.arena, &r->client.api, &r->client.problem);
    if (rc < 0) return rc;
    if (f->model_count == 0) { /* no model is known yet, so none can be called absent */
        return openai_error_set(&r->client.problem, -EAGAIN, OPENAI_UNAVAILABLE, NULL,
                                "The router has just started and knows no model yet; try again "
                                "in a second.");
    }
    const struct snapshot_adapter *adapter;
    const struct snapshot_model *m = snapshot_find(f, r->client.api.model, &adapter);
    if (!m || (adapter && openai_wants_vectors(surface))) {
        return openai_error_set(
            &r->client.problem, -ENOENT, OPENAI_MODEL_NOT_FOUND, "model",
            adapter ? "'" STR_FMT "' is an adapter: vectors are of base models only."
                    : "The model '" STR_FMT "' does not exist, and no engine has an "
                      "adapter of this name.",
            STR_ARG(r->client.api.model));
    }
    if (!openai_wants_vectors(surface) && check_task(r, m) < 0) return -EINVAL;
    struct str model = arena_str(&r->client.arena, str_from(adapter ? adapter->name : m->name));
    r->client.adapter =
        adapter ? arena_str(&r->client.arena, str_from(adapter->digest)) : (struct str){ 0 };
    if (!model.data || (adapter && !r->client.adapter.data))
        return openai_error_set(&r->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL,
                                "out of memory");
    r->mail.arrival.adapter = adapter ? adapter->id : 0;
    r->client.reply = (struct openai_reply){ .surface = surface,
                                             .style = r->client.style,
                                             .id = str_from(r->id),
                                             .created_s = clock_wall_us() / 1000000,
                                             .model = model,
                                             .repeated = r->client.repeated,
                                             .include_usage = r->client.api.include_usage };
    *ret = m;
    if (openai_wants_vectors(surface)) { /* the engine gets the texts themselves */
        fill_arrival(r, m);
        return 0;
    }
    int more = make_more(r, m);
    return more < 0 ? more : prompt_ready(r, m);
}

static int take_tenant(struct request *r, const struct tenant_name *tenant)
{
    if (!tenant) return 0;
    memcpy(r->mail.arrival.tenant_name, tenant->name, sizeof r->mail.arrival.tenant_name);
    r->client.salt = arena_str(&r->client.arena, str_from(tenant->salt));
    if (r->client.salt.data) return 0;
    /* Without its salt a tenant would share the cache of all others. */
    return openai_error_set(&r->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
}

/* ---- large bodies ---- */

bool generate_at_text(struct request *r)
{
    if (!r->client.at_text) return false;
    if (!text_cancel(&r->client.text)) return true;
    r->client.at_text = false;
    http_exchange_unpin(r->client.pinned);
    return false;
}

static void run_prepare(void *arg)
{
    struct request *r = arg;
    r->client.text_rc = prepare(r, r->client.snapshot, &r->client.model);
}

static void run_retokenise(void *arg)
{
    struct request *r = arg;
    r->client.text_rc =
        prompt_tokenize(r, r->client.target.bundle, r->client.target.context_tokens);
}

/* Takes the request back from the worker; returns true if it goes on. */
static bool back_from_text(struct request *r)
{
    r->client.at_text = false;
    http_exchange_unpin(r->client.pinned);
    if (!r->client.x) {
        r->client.outcome.cut = true;
        request_over(r);
    } else if (loop_now_us(r->home->loop) >= r->client.deadline_us) {
        upstream_deadline(r);
    } else if (r->client.text_rc < 0) {
        response_problem(r, 1);
        request_over(r);
    }
    return !r->client.over;
}

static void done_prepare(void *arg)
{
    struct request *r = arg;
    if (!back_from_text(r)) return;
    if (openai_outputs(&r->client.api) > 1 && fan_make(r, r->client.model) < 0) {
        response_problem(r, 1);
        request_over(r);
        return;
    }
    request_arrive(r);
    if (r->client.fan) fan_begin(r);
}

static void done_retokenise(void *arg)
{
    struct request *r = arg;
    if (back_from_text(r)) upstream_start(r);
}

static void give_to_worker(struct request *r, void (*run)(void *), void (*done)(void *))
{
    r->client.text =
        (struct text_job){ .run = run, .done = done, .arg = r, .bytes = r->client.body.len };
    r->client.at_text = true;
    r->client.pinned = r->client.x;
    http_exchange_pin(r->client.x);
    if (text_submit(&r->home->text, &r->client.text) == 0) return;
    r->client.at_text = false;
    http_exchange_unpin(r->client.pinned);
    openai_error_set(&r->client.problem, 0, OPENAI_OVERLOADED, NULL,
                     "Too many large prompts are waiting to be tokenised; try again shortly.");
    response_problem(r, 1);
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
                    enum reply_style style, const struct snapshot *f,
                    const struct tenant_name *tenant)
{
    const struct http_request *req = http_exchange_request(x);
    struct request *r =
        request_take(b, deadline_of(b, req, loop_now_us(b->loop)), upstream_deadline);
    if (!r) {
        struct openai_error full = { 0 };
        openai_error_set(&full, 0, OPENAI_OVERLOADED, NULL,
                         "The router holds as many requests as it may; try again shortly.");
        CLEANUP(buf_fini) struct buf body = { 0 };
        reply_error(style, &full, &body);
        router_metric_count(b->metrics, RM_REQUESTS, "refused", (struct str){ 0 });
        http_reply_header(x, "retry-after", STR("1"));
        response_cors(b, x);
        http_reply(x, full.status, STR("application/json"), buf_view(&body));
        return;
    }
    const struct snapshot_model *model = NULL;
    bool large = req->body.len > TEXT_INLINE_BYTES;
    r->client.x = x;
    r->client.body = req->body;
    r->client.api.surface = surface;
    r->client.style = style;
    make_id(b, req, r->id);
    request_trace_begin(r, req);
    int rc = take_tenant(r, tenant);
    if (rc == 0 && !large) rc = prepare(r, f, &model);
    if (rc == -E2BIG && !large) { /* few bytes, but more work than a byte loop does */
        r->client.problem = (struct openai_error){ 0 };
        r->client.api = (struct openai_request){ .surface = surface };
        large = true;
        rc = 0;
    }
    if (rc == 0 && loop_timer_set(b->loop, &r->client.deadline, r->client.deadline_us) < 0) {
        rc = openai_error_set(&r->client.problem, -ENOMEM, OPENAI_INTERNAL, NULL, "out of memory");
    }
    const bool several = rc == 0 && !large && openai_outputs(&r->client.api) > 1;
    if (several) rc = fan_make(r, model);
    if (rc < 0) {
        router_metric_count(b->metrics, RM_REQUESTS, "refused", r->client.reply.model);
        response_problem(r, 1);
        request_trace_over(r);
        if (r->client.fan)
            fan_done(r);
        else
            request_release(r);
        return;
    }
    http_exchange_watch(x, on_abort, on_drain, r);
    if (large) {
        r->client.snapshot = snapshot_get(b->board);
        request_enter(r);
    } else if (several) {
        request_arrive(r);
        fan_begin(r);
    } else if (openai_wants_vectors(surface) || !question_ask(r, model)) {
        request_arrive(r);
    }
}

/* Sets the sentence of a refusal that the dispatch or a limit decided. */
static void refusal(struct request *r, int status, bool rate_limited, bool late,
                    double retry_after_s, double eta_s)
{
    if (status == 422 && retry_after_s > 0) {
        openai_error_set(&r->client.problem, 0, OPENAI_POISONOUS, NULL,
                         "Two engines failed while they computed this prompt; it is refused for "
                         "another %.0f s. Prompt %016llx in `muster quarantine`.",
                         retry_after_s, (unsigned long long)r->client.fingerprint);
    } else if (status == 422) {
        openai_error_set(&r->client.problem, 0, OPENAI_POISONOUS, NULL,
                         "Two engines failed while they computed this request; it is not tried "
                         "again.");
    } else if (status == 429 && rate_limited) {
        openai_error_set(&r->client.problem, 0, OPENAI_RATE_LIMIT, NULL,
                         "The tenant's limit is reached; try again in %.0f s.",
                         retry_after_s < 1 ? 1 : retry_after_s);
    } else if (status == 429 && late) {
        openai_error_set(&r->client.problem, 0, OPENAI_OVERLOADED, NULL,
                         "The model has more requests than its instances can begin in time; try "
                         "again in %.0f s.",
                         ceil(retry_after_s));
    } else if (status == 429) {
        openai_error_set(&r->client.problem, 0, OPENAI_OVERLOADED, NULL,
                         "Too many requests are in flight; try again shortly.");
    } else if (status == 503 && eta_s > 0) {
        openai_error_set(
            &r->client.problem, 0, OPENAI_UNAVAILABLE, NULL,
            "No instance can take the request now; the next is expected in about %.0f s.",
            ceil(eta_s));
    } else if (status == 503) {
        openai_error_set(&r->client.problem, 0, OPENAI_UNAVAILABLE, NULL,
                         "No instance can take the request now; try again in %.0f s.",
                         retry_after_s < 1 ? 1 : retry_after_s);
    } else if (!r->client
                    .began) { /* a stream that broke has the engine's message, or response.c's */
        openai_error_set(&r->client.problem, 0, OPENAI_UPSTREAM, NULL,
                         "The engine failed before it answered.");
    }
}

void generate_on_mail(void *arg, struct mailbox_item *item)
{
    struct byte_loop *b = arg;
    struct request *r = CONTAINER_OF(item, struct request, mail.tell_item);
    mailbox_open(&b->mailbox, item);
    uint32_t tell = r->mail.tell;
    r->mail.tell = 0;
    struct target target = r->mail.tell_target, migrate = r->mail.tell_migrate;
    struct route_told told = r->mail.tell_route;
    int status = r->mail.tell_status;
    double retry_after_s = r->mail.tell_retry_after_s;
    double eta_s = r->mail.tell_eta_s;
    bool rate_limited = r->mail.tell_rate_limited, late = r->mail.tell_late;
    mailbox_unlock(&b->mailbox);

    if (!r->client.over && tell & TELL_SEND) {
        /* Usage keeps the first leg's cache hits, so the hits expected of it are kept too. */
        if (leg_generated(r) > 0) target.hit_tokens = r->client.target.hit_tokens;
        r->client.target = target;
        request_trace_told(r, &told);
        upstream_start(r);
    }
    if (!r->client.over && tell & TELL_TEXT) give_to_worker(r, run_prepare, done_prepare);
    if (!r->client.over && tell & TELL_MIGRATE) migrate_request_begin(r, &migrate);
    if (!r->client.over && (tell & (TELL_HELD | TELL_SEND | TELL_REFUSE)) == TELL_HELD)
        response_waiting(r, eta_s);
    if (!r->client.over && tell & TELL_REFUSE) {
        refusal(r, status, rate_limited, late, retry_after_s, eta_s);
        response_problem(r, retry_after_s);
        request_over(r);
    }
    if (tell & TELL_DONE) {
        if (r->is_question) question_answered(r);
        if (r->client.fan)
            fan_done(r);
        else
            request_release(r);
    }
}
