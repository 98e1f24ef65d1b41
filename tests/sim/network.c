/* network.c - sends messages as events; their bytes go through the product's codecs. */
#include "tests/sim/network.h"

#include "base/core/bits.h"
#include "tests/sim/world.h"

#include <stdio.h>
#include <stdlib.h>

struct message {
    struct agent *agent;
    struct router_node *router;
    bool forged; /* made by a mutant: it proves nothing about its sender */
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

/* Returns true if the process can find the controller: an address once resolved stays in use, the first one
 * needs the resolver. */
static bool has_address(const struct world *w, bool *knows)
{
    *knows |= w->time.now_us >= w->no_names_us;
    return *knows;
}

/* Adds a field that only a newer release would send. */
static void say_more(struct world *w, struct buf *text)
{
    static const char more[] = "{\"of_tomorrow\":{\"a\":[1,null,\"x\"]},";
    if (!faults_hit(w, FAULT_VERSIONS, 0.3)) return;
    CLEANUP(buf_fini) struct buf said = { 0 };
    buf_append(&said, more, sizeof more - 1);
    buf_append(&said, text->data + 1, text->len - 1);
    buf_clear(text);
    buf_str(text, buf_view(&said));
    must(text->rc == 0);
}

static bool is_lost(struct world *w, int64_t cut_until_us)
{
    bool lost = faults_hit(w, FAULT_LOSS, 0.1);
    return lost || w->time.now_us < cut_until_us || w->time.now_us < w->cut_all_us;
}

static bool controller_is_short(const struct world *w)
{
    return w->time.now_us < w->controller->short_until;
}

/* ---- which controller ---- */

/* Returns true if the message waits for its controller, which is stopped, or is lost because that is short of
 * descriptors. Where there are two, a call to one that is stopped, short or dead ends without a reply. */
static bool not_taken(struct world *w, struct controllers *c)
{
    if (w->controller_count == 1)
        return node_defers(w, &w->controller->node, true) || controller_is_short(w);
    const struct controller_node *n = leaders_asked(w, c);
    if (n->alive && !node_is_stopped(w, &n->node) && w->time.now_us >= n->short_until) return false;
    controllers_missed(c);
    return true;
}

/* Returns true if the controller that is asked stands by. `lease_us` (may be NULL) is extended where it knows
 * no other that leads. */
static bool stands_by(struct world *w, struct controllers *c, int64_t *lease_us, int64_t now_us,
                      bool reply_lost)
{
    if (w->controller_count == 1) return false;
    const struct controller_node *n = leaders_asked(w, c);
    if (n->control && leaders_leads(n)) return false;
    if (reply_lost)
        controllers_missed(c);
    else if (!leaders_sends_on(w, n, c) && lease_us)
        *lease_us = now_us + SIM_LEASE_MS * MS;
    return true;
}

static void call_lost(const struct world *w, struct controllers *c)
{
    if (w->controller_count > 1) controllers_missed(c);
}

/* ---- agents and the controller ---- */

static void reply_arrives(struct world *w, const struct event *e)
{
    struct agent_reply reply = *(struct agent_reply *)e->payload;
    struct agent *a = e->who;
    if (node_defers(w, &a->node, true)) return;
    if (w->controller_count == 1 ||
        controllers_heard(&a->controllers, reply.epoch, node_mono_us(w, &a->node)))
        agent_hears(w, a, &reply);
}

static void report_arrives(struct world *w, const struct event *e)
{
    struct message *m = e->payload;
    struct agent *a = e->who;
    if (not_taken(w, &a->controllers)) return;
    bool reply_lost = w->controller_count > 1 && is_lost(w, a->cut_down_us);
    int64_t agent_us = node_mono_us(w, &a->node);
    if (stands_by(w, &a->controllers, &a->lease_until_us, agent_us, reply_lost)) return;
    struct agent_reply *reply = calloc(1, sizeof *reply);
    must(reply);
    bool heard = controller_report(w, message_text(m), reply);
    if (heard && !m->forged) a->heard_us = w->time.now_us;
    if (heard && !m->forged) a->heard_stopped_us = w->controller->node.stopped_us;
    if (heard && reply->stop && !a->gone) reasons_removal(w, a);
    if (!heard || reply_lost || (w->controller_count == 1 && is_lost(w, a->cut_down_us))) {
        call_lost(w, &a->controllers);
        free(reply);
        return;
    }
    timeline_carry(&w->time, w->time.now_us + call_delay_us(w), reply_arrives, a, 0, reply);
}

static uint32_t times(struct world *w)
{
    return faults_hit(w, FAULT_TWICE, 0.2) ? 2 : 1;
}

void network_report(struct world *w, struct agent *a, const struct agent_report *r)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct agent_report said = *r;
    bool lost = is_lost(w, max_i64(a->cut_up_us, a->short_until));
    lost |= !has_address(w, &a->knows_name);
    if (lost) call_lost(w, &a->controllers);
    if (lost && w->mutant != MUTANT_ABSENT_IS_ZERO) return;
    if (lost) said.engine.running = said.engine.waiting = 0;
    must(agent_report_encode(&said, &text) == 0);
    say_more(w, &text);
    for (uint32_t copies = times(w); copies > 0; copies--) {
        struct message *m = message_new(buf_view(&text));
        m->forged = lost;
        timeline_carry(&w->time, w->time.now_us + call_delay_us(w), report_arrives, a, 0, m);
    }
}

/* ---- routers and the controller ---- */

static void rules_arrive(struct world *w, const struct event *e)
{
    struct message *m = e->payload;
    struct router_node *r = e->who;
    if (!node_defers(w, &r->node, true)) router_hears(w, r, m->boot, message_text(m));
}

static void sync_arrives(struct world *w, const struct event *e)
{
    struct message *m = e->payload;
    struct router_node *r = e->who;
    if (not_taken(w, &r->controllers)) return;
    if (stands_by(w, &r->controllers, NULL, 0, false)) return;
    CLEANUP(buf_fini) struct buf rules = { 0 };
    if (!controller_sync(w, message_text(m), &rules)) return;
    if (!m->forged) r->heard_us = w->time.now_us;
    if (is_lost(w, r->cut_down_us)) {
        call_lost(w, &r->controllers);
        return;
    }
    say_more(w, &rules);
    struct message *back = message_new(buf_view(&rules));
    back->boot = m->boot;
    timeline_carry(&w->time, w->time.now_us + call_delay_us(w), rules_arrive, r, 0, back);
}

void network_sync(struct world *w, struct router_node *r, const struct buf *message,
                  const struct buf *forged)
{
    bool lost = is_lost(w, max_i64(r->cut_up_us, r->short_until));
    lost |= !has_address(w, &r->knows_name);
    if (lost) call_lost(w, &r->controllers);
    if (lost && w->mutant != MUTANT_ABSENT_IS_ZERO) return;
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_str(&text, buf_view(lost ? forged : message));
    say_more(w, &text);
    for (uint32_t copies = times(w); copies > 0; copies--) {
        struct message *m = message_new(buf_view(&text));
        m->forged = lost;
        m->boot = r->boot;
        timeline_carry(&w->time, w->time.now_us + call_delay_us(w), sync_arrives, r, 0, m);
    }
}

/* ---- requests ---- */

struct parcel {
    char instance[NAME_BYTES];
    uint32_t attempt;
    enum engine_out out;
    uint32_t index, count; /* of its tokens; index: of the first one in the whole output */
    enum retry_failure failure;
};

static const struct node *router_node_of(const struct world *w, const struct request *r)
{
    return &w->router[r->router].node;
}

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
    if (!node_defers(w, router_node_of(w, e->who), false))
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
    if (r->attempt != p->attempt || r->over) return; /* given up on its way */
    struct agent *a = agent_find(w, p->instance);
    if (a && w->time.now_us < a->cut_to_us[r->router]) {
        timeline_again(&w->time, a->cut_to_us[r->router]);
        return;
    }
    uint32_t known = w->continues && w->mutant != MUTANT_BEGINS_ANEW ? r->generated : 0;
    struct seq s = { r, p->attempt, r->routed.dispatch.prompt_tokens + known, r->output - known };
    enum engine_answer answer = ENGINE_UNREACHABLE;
    if (a && !a->gone && a->engine.phase == ENGINE_HUNG) {
        timeline_again(&w->time, w->time.now_us + SECOND); /* unread in the kernel */
        return;
    }
    if (a && !a->gone)
        answer =
            faults_hit(w, FAULT_OVERLOAD, 0.1) ? ENGINE_BUSY : engine_submit(w, &a->engine, &s);
    if (answer == ENGINE_TAKEN) network_answer(w, a, &s, ENGINE_HEAD, 0);
    if (answer == ENGINE_TAKEN) return;
    if (a) agent_blame(a, r->router, w->time.now_us);
    fail_back(w, r, p->attempt, answer == ENGINE_BUSY ? RETRY_OVERLOADED : RETRY_UNREACHABLE);
}

void network_send(struct world *w, struct request *r, const char *instance)
{
    struct parcel p = { .attempt = r->attempt };
    if (w->time.now_us < w->router[r->router].short_until) {
        bool far = w->mutant == MUTANT_SHORT_IS_FAR;
        fail_back(w, r, r->attempt, far ? RETRY_UNREACHABLE : RETRY_LOCAL);
        return;
    }
    snprintf(p.instance, sizeof p.instance, "%s", instance);
    timeline_carry(&w->time, w->time.now_us + stream_delay_us(w), request_arrives, r, 0,
                   parcel_new(&p));
}

static void cancel_arrives(struct world *w, const struct event *e)
{
    const struct request *r = e->who;
    for (uint32_t i = 0; i < w->agent_count; i++) {
        int64_t until_us = w->agent[i]->cut_to_us[r->router];
        if (w->time.now_us >= until_us)
            engine_cancel(w, &w->agent[i]->engine, r, (uint32_t)e->what);
        else
            timeline_again(&w->time, max_i64(until_us, w->time.again_us));
    }
}

void network_cancel(struct world *w, const struct request *r)
{
    timeline_at(&w->time, w->time.now_us + stream_delay_us(w), cancel_arrives,
                &w->request[r->index], r->attempt);
}

static void answer_arrives(struct world *w, const struct event *e)
{
    const struct parcel *p = e->payload;
    if (node_defers(w, router_node_of(w, e->who), false)) return;
    if (p->out == ENGINE_DIED)
        router_failed(w, e->who, p->attempt, RETRY_DIED);
    else if (p->out == ENGINE_HEAD)
        router_head(w, e->who, p->attempt);
    else
        router_tokens(w, e->who, p->attempt, p->index, p->count, p->out == ENGINE_FINISH);
}

static bool mutant_eats(struct world *w, enum engine_out out)
{
    bool eats = (w->mutant == MUTANT_LOST_END && out == ENGINE_FINISH) ||
                (w->mutant == MUTANT_LOST_TOKENS && out == ENGINE_TOKENS);
    return eats && w->time.now_us < w->heal_us && rng_below(&w->rng_net, 50) == 0;
}

/* Messages of one connection keep their order: a later one never overtakes. */
void network_answer(struct world *w, struct agent *a, const struct seq *s, enum engine_out out,
                    uint32_t count)
{
    struct request *r = s->request;
    if (mutant_eats(w, out)) return;
    struct parcel p = { .attempt = s->attempt,
                        .out = out,
                        .index = r->output - s->output_left - count,
                        .count = count };
    r->stream_us = max_i64(r->stream_us, w->time.now_us + stream_delay_us(w));
    if (out == ENGINE_DIED) agent_blame(a, r->router, w->time.now_us);
    r->stream_us = max_i64(r->stream_us, a->cut_from_us[r->router]);
    timeline_carry(&w->time, r->stream_us, answer_arrives, r, 0, parcel_new(&p));
}

static void beat_arrives(struct world *w, const struct event *e)
{
    const struct agent *a = e->who;
    if (e->what != a->engine.life) return;
    for (uint32_t i = 0; i < a->engine.count; i++) {
        const struct seq *s = &a->engine.seq[i];
        bool cut = w->time.now_us < a->cut_from_us[s->request->router];
        if (!cut) router_beat(w, s->request, s->attempt);
    }
}

void network_beat(struct world *w, struct agent *a)
{
    timeline_at(&w->time, w->time.now_us + stream_delay_us(w), beat_arrives, a, a->engine.life);
}
