/* network.c - messages as events; their bytes go through the product's codecs. */
#include "tests/sim/network.h"

#include "base/core/bits.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>

struct message {
    struct agent *agent;
    struct router_node *router;
    bool forged; /* a mutant's: it proves nothing */
    uint64_t boot;
    size_t len;
    char bytes[];
};

static struct message *message_new(struct str bytes)
{
    struct message *m = calloc(1, sizeof *m + bytes.len);
    must(m);
    m->len = bytes.len;
    if (bytes.len) memcpy(m->bytes, bytes.data, bytes.len);
    return m;
}

static struct str message_text(const struct message *m)
{
    return (struct str){ m->bytes, m->len };
}

static int64_t call_delay_us(struct world *w)
{
    int64_t us = 200 + (int64_t)rng_below(&w->rng_net, 3000);
    if (faults_hit(w, FAULT_SLOW_NET, 0.2)) us += (int64_t)rng_below(&w->rng_net, 6 * SECOND);
    return us;
}

static bool is_lost(struct world *w, int64_t cut_until_us)
{
    bool lost = faults_hit(w, FAULT_LOSS, 0.1);
    return lost || w->time.now_us < cut_until_us || w->time.now_us < w->cut_all_us;
}

/* ---- agents and the controller ---- */

static void reply_arrives(struct world *w, const struct event *e)
{
    struct agent_reply reply = *(struct agent_reply *)e->payload;
    agent_hears(w, e->who, &reply);
}

static void report_arrives(struct world *w, const struct event *e)
{
    struct message *m = e->payload;
    struct agent *a = e->who;
    struct agent_reply *reply = calloc(1, sizeof *reply);
    must(reply);
    bool heard = controller_report(w, message_text(m), reply);
    if (heard && !m->forged) a->heard_us = w->time.now_us;
    if (!heard || is_lost(w, a->cut_down_us)) {
        free(reply);
        return;
    }
    timeline_carry(&w->time, w->time.now_us + call_delay_us(w), reply_arrives, a, 0, reply);
}

void network_report(struct world *w, struct agent *a, const struct agent_report *r)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct agent_report said = *r;
    bool lost = is_lost(w, a->cut_up_us);
    if (lost && w->mutant != MUTANT_ABSENT_IS_ZERO) return;
    if (lost) said.engine.running = said.engine.waiting = 0;
    must(agent_report_encode(&said, &text) == 0);
    struct message *m = message_new(buf_view(&text));
    m->forged = lost;
    timeline_carry(&w->time, w->time.now_us + call_delay_us(w), report_arrives, a, 0, m);
}

/* ---- routers and the controller ---- */

static void rules_arrive(struct world *w, const struct event *e)
{
    struct message *m = e->payload;
    router_hears(w, e->who, m->boot, message_text(m));
}

static void sync_arrives(struct world *w, const struct event *e)
{
    struct message *m = e->payload;
    struct router_node *r = e->who;
    CLEANUP(buf_fini) struct buf rules = { 0 };
    if (!controller_sync(w, message_text(m), &rules)) return;
    if (!m->forged) r->heard_us = w->time.now_us;
    if (is_lost(w, r->cut_down_us)) return;
    struct message *back = message_new(buf_view(&rules));
    back->boot = m->boot;
    timeline_carry(&w->time, w->time.now_us + call_delay_us(w), rules_arrive, r, 0, back);
}

void network_sync(struct world *w, struct router_node *r, const struct buf *message,
                  const struct buf *forged)
{
    bool lost = is_lost(w, r->cut_up_us);
    if (lost && w->mutant != MUTANT_ABSENT_IS_ZERO) return;
    struct message *m = message_new(buf_view(lost ? forged : message));
    m->forged = lost;
    m->boot = r->boot;
    timeline_carry(&w->time, w->time.now_us + call_delay_us(w), sync_arrives, r, 0, m);
}

/* ---- requests ---- */

struct parcel {
    char instance[NAME_BYTES];
    uint32_t attempt;
    enum engine_out out;
    uint32_t count;
    enum retry_failure failure;
};

static int64_t stream_delay_us(struct world *w)
{
    return 500 + (int64_t)rng_below(&w->rng_net, 500);
}

static struct parcel *parcel_new(const struct parcel *from)
{
    struct parcel *p = malloc(sizeof *p);
    must(p);
    *p = *from;
    return p;
}

static void failure_arrives(struct world *w, const struct event *e)
{
    const struct parcel *p = e->payload;
    router_failed(w, e->who, p->attempt, p->failure);
}

static void fail_back(struct world *w, struct request *r, uint32_t attempt, enum retry_failure f)
{
    struct parcel p = { .attempt = attempt, .failure = f };
    timeline_carry(&w->time, w->time.now_us + stream_delay_us(w), failure_arrives, r, 0,
                   parcel_new(&p));
}

static void request_arrives(struct world *w, const struct event *e)
{
    const struct parcel *p = e->payload;
    struct request *r = e->who;
    if (r->attempt != p->attempt || r->ends) return; /* given up on its way */
    struct agent *a = agent_find(w, p->instance);
    struct seq s = { r, p->attempt, r->core.prompt_tokens, r->output };
    enum engine_answer answer = ENGINE_UNREACHABLE;
    if (a && !a->gone)
        answer =
            faults_hit(w, FAULT_OVERLOAD, 0.1) ? ENGINE_BUSY : engine_submit(w, &a->engine, &s);
    if (answer == ENGINE_TAKEN) return;
    fail_back(w, r, p->attempt, answer == ENGINE_BUSY ? RETRY_OVERLOADED : RETRY_UNREACHABLE);
}

void network_send(struct world *w, struct request *r, const char *instance)
{
    struct parcel p = { .attempt = r->attempt };
    snprintf(p.instance, sizeof p.instance, "%s", instance);
    timeline_carry(&w->time, w->time.now_us + stream_delay_us(w), request_arrives, r, 0,
                   parcel_new(&p));
}

static void cancel_arrives(struct world *w, const struct event *e)
{
    for (uint32_t i = 0; i < w->agent_count; i++)
        engine_cancel(w, &w->agent[i]->engine, e->who, (uint32_t)e->what);
}

void network_cancel(struct world *w, const struct request *r)
{
    timeline_at(&w->time, w->time.now_us + stream_delay_us(w), cancel_arrives,
                &w->request[r->index], r->attempt);
}

static void answer_arrives(struct world *w, const struct event *e)
{
    const struct parcel *p = e->payload;
    if (p->out == ENGINE_DIED)
        router_failed(w, e->who, p->attempt, RETRY_DIED);
    else
        router_tokens(w, e->who, p->attempt, p->count, p->out == ENGINE_FINISH);
}

static bool mutant_eats(struct world *w, enum engine_out out)
{
    bool eats = (w->mutant == MUTANT_LOST_END && out == ENGINE_FINISH) ||
                (w->mutant == MUTANT_LOST_TOKENS && out == ENGINE_TOKENS);
    return eats && w->time.now_us < w->heal_us && rng_below(&w->rng_net, 50) == 0;
}

/* In order on one connection: the later message never overtakes. */
void network_answer(struct world *w, const struct seq *s, enum engine_out out, uint32_t count)
{
    struct request *r = s->request;
    if (mutant_eats(w, out)) return;
    struct parcel p = { .attempt = s->attempt, .out = out, .count = count };
    r->stream_us = max_i64(r->stream_us, w->time.now_us + stream_delay_us(w));
    timeline_carry(&w->time, r->stream_us, answer_arrives, r, 0, parcel_new(&p));
}
