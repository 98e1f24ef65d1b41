/* look.c - one round of questions to an engine, and whether it has started again meanwhile.
 *
 * An engine of another kind has no boot id. Its process start says when it was started, where its metrics
 * have that; else counters that fall, and an address that refused a connection, say that it is new. */
#include "agent/look.h"

#include "base/io/log.h"

#include <stdio.h>
#include <sys/random.h>

#define RESTART_S 1.0 /* start times that differ by less are one: dates are rounded */

static uint64_t draw_boot(void)
{
    uint64_t boot = 0;
    if (getrandom(&boot, sizeof boot, 0) != sizeof boot) boot = 0;
    return boot | 1;
}

void look_init(struct look *l, struct loop *loop, struct signer *signer,
               const struct engine_driver *driver)
{
    *l = (struct look){ .loop = loop, .signer = signer };
    l->sight.driver = driver;
    for (int i = 0; i < 2; i++)
        arena_init(&l->sight.arena[i], ENGINE_REPLY_BYTES_MAX);
    look_forget(l);
}

void look_fini(struct look *l)
{
    peer_call_fini(&l->call);
    for (int i = 0; i < 2; i++)
        arena_fini(&l->sight.arena[i]);
}

static void start_over(struct look *l)
{
    struct engine_sight *s = &l->sight;
    l->known = 0;
    s->context_tokens = s->seqs_max = s->page_tokens = 0;
    s->started_s = 0;
    l->boot = draw_boot();
}

void look_forget(struct look *l)
{
    peer_call_cancel(&l->call);
    l->has_report = l->refused = false;
    l->sight.report = (struct engine_report){ 0 };
    start_over(l);
}

bool look_knows_load(const struct look *l)
{
    const struct engine_sight *s = &l->sight;
    return l->has_report &&
           (engine_traits[s->driver->kind].serves_itself || s->meters.has[METER_RUNNING]);
}

/* ---- ends of a round ---- */

static void silent(struct look *l, enum http_end http, const char *why)
{
    /* Nothing listens there: the next to answer is another process. */
    if (http == HTTP_END_CONNECT_FAILED) l->refused = true;
    snprintf(l->why, sizeof l->why, "%s", why);
    l->on_seen(l->arg, LOOK_SILENT, http);
}

static bool has_started_again(const struct look *l)
{
    const struct engine_sight *s = &l->sight;
    if (!l->has_report || engine_traits[s->driver->kind].serves_itself) return false;
    if (l->before_started_s > 0 && s->started_s > 0)
        return s->started_s - l->before_started_s > RESTART_S;
    return l->refused || s->report.prompt_tokens_total < l->before.prompt_tokens_total ||
           s->report.generated_tokens_total < l->before.generated_tokens_total;
}

static void ask(struct look *l);

static void whole(struct look *l)
{
    struct engine_sight *s = &l->sight;
    if (has_started_again(l)) {
        log_event(LOG_WARN, "engine_restarted", "kind=%s model=%s",
                  engine_kind_names[s->driver->kind], s->model);
        l->has_report = l->refused = false;
        start_over(l);
        l->at = 0;
        ask(l);
        return;
    }
    l->has_report = true;
    l->refused = false;
    l->before = s->report;
    l->before_started_s = s->started_s;
    if (!engine_traits[s->driver->kind].serves_itself) s->report.boot = l->boot;
    l->why[0] = 0;
    l->on_seen(l->arg, LOOK_SEEN, HTTP_END_OK);
}

/* ---- questions ---- */

static const struct engine_ask *asked(const struct look *l)
{
    return &l->sight.driver->ask[l->at];
}

static void next(struct look *l)
{
    l->at++;
    ask(l);
}

static void on_reply(struct peer_call *call, enum http_end http)
{
    struct look *l = CONTAINER_OF(call, struct look, call);
    const struct engine_ask *q = asked(l);
    struct err err = { "" };
    if (http == HTTP_END_LOCAL || http == HTTP_END_NAME || http == HTTP_END_TLS) {
        l->on_seen(l->arg, LOOK_LOCAL, http);
    } else if (http == HTTP_END_OK && q->optional && call->status >= 400 && call->status < 500) {
        l->known |= (uint64_t)q->once << l->at;
        next(l);
    } else if (!peer_call_is_good(call, http)) {
        silent(l, http, "");
    } else if (q->take(&l->sight, buf_view(&call->body), &err) < 0) {
        silent(l, http, err.text);
    } else {
        l->known |= (uint64_t)q->once << l->at;
        next(l);
    }
}

/* Asks the next question that is due; after the last the round is whole. */
static void ask(struct look *l)
{
    const struct engine_driver *d = l->sight.driver;
    while (l->at < d->ask_count && l->known >> l->at & 1)
        l->at++;
    if (l->at == d->ask_count) {
        whole(l);
        return;
    }
    l->where.path = str_from(asked(l)->path);
    l->where.reply_max = ENGINE_REPLY_BYTES_MAX;
    l->where.deadline_us = l->deadline_us;
    if (peer_call_start(&l->call, l->signer, &l->where, on_reply, NULL) < 0)
        l->on_seen(l->arg, LOOK_LOCAL, HTTP_END_LOCAL);
}

bool look_begin(struct look *l, const struct peer_question *where, int64_t deadline_us)
{
    if (l->call.call) return true;
    l->where = *where;
    l->deadline_us = deadline_us;
    l->at = 0;
    while (l->known >> l->at & 1)
        l->at++;
    l->where.path = str_from(asked(l)->path);
    l->where.reply_max = ENGINE_REPLY_BYTES_MAX;
    l->where.deadline_us = deadline_us;
    return peer_call_start(&l->call, l->signer, &l->where, on_reply, NULL) == 0;
}
