/* migrate_view.c - derives an engine's free pages, its queue's need and its step time from its reported load,
 * and asks for one verdict for every group of engines that may exchange sessions.
 *
 * An engine reports how many pages the first request of its queue lacks. For an engine that does not (an older
 * release), that request is taken to be like the mean of those that wait. Pages count as on their way until the
 * transfer is over: only then does the target's load hold them.
 */
#include "fleet/migrate_view.h"

#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/wire/kv_wire.h"
#include "fleet/defaults.h"

#include <math.h>
#include <string.h>

static uint32_t queue_pages(const struct migrate_endpoint *ep)
{
    const struct reported_load *load = ep->load;
    if (load->waiting == 0) return 0;
    if (load->head_pages > 0)
        return (uint32_t)min_u64(load->head_pages, ep->kv_tokens_max / ep->page_tokens + 1);
    uint64_t tokens = min_u64(load->prefill_tokens / load->waiting, ep->kv_tokens_max);
    return (uint32_t)(tokens / ep->page_tokens) + 1;
}

void migrate_view_fill(const struct migrate_endpoint *ep, const struct kv_port *port,
                       int64_t now_us, struct migrate_instance *ret)
{
    const struct reported_load *load = ep->load;
    ret->present = false;
    ret->accepts = ep->ready && ep->role != ROLE_PREFILL;
    ret->draining = ep->draining;
    ret->leaves_us = ep->leaves_us;
    ret->receiving_pages = port->incoming_pages;
    ret->sending_pages = port->sending_pages;
    ret->pages_free = ret->queue_pages = ret->running = 0;
    ret->step_s = 0;
    if (!load || ep->kv_tokens_max == 0) return;
    bool idle = load->running == 0 && load->waiting == 0;
    bool settled = ep->told_us > port->moved_us || now_us - port->moved_us > MIGRATE_SETTLE_US;
    uint64_t all = ep->kv_tokens_max / ep->page_tokens;
    uint64_t held = load->kv_tokens / ep->page_tokens + (load->kv_tokens % ep->page_tokens > 0);
    ret->present = settled && (idle || now_us - ep->told_us < TOLD_FRESH_US);
    ret->pages_free = (uint32_t)(all > held ? all - held : 0);
    ret->running = load->running;
    ret->queue_pages = queue_pages(ep);
    if (!ep->perf) return;
    ret->step_s = ep->perf->step_s + ep->perf->decode_seq_s * (double)load->running +
                  ep->perf->kv_read_s * (double)load->kv_tokens;
}

/* ---- memory --------------------------------------------------------------------------------- */

enum part { PORT, ENDPOINT, INSTANCE, FIRST, NEXT, SESSION, TRANSFER, PARTS };

/* Sets where each part begins. Returns the bytes of all parts. */
static size_t divide(uint32_t slots, uint32_t sessions_max, size_t ret_from[PARTS])
{
    const size_t bytes[PARTS] = {
        [PORT] = slots * sizeof(struct kv_port),
        [ENDPOINT] = slots * sizeof(struct migrate_endpoint),
        [INSTANCE] = slots * sizeof(struct migrate_instance),
        [FIRST] = (slots + 1) * sizeof(uint32_t),
        [NEXT] = (slots + 1) * sizeof(uint32_t),
        [SESSION] = sessions_max * sizeof(struct migrate_session),
        [TRANSFER] = sessions_max * sizeof(struct kv_transfer *),
    };
    size_t at = 0;
    for (size_t i = 0; i < PARTS; i++) {
        ret_from[i] = at;
        at += (bytes[i] + 15) / 16 * 16;
    }
    return at;
}

size_t migrate_look_bytes(uint32_t slots, uint32_t sessions_max)
{
    size_t from[PARTS];
    return divide(slots, sessions_max, from);
}

void migrate_look_init(struct migrate_look *l, const struct migrate_policy *policy, uint32_t slots,
                       uint32_t sessions_max, uint64_t seed, void *memory)
{
    size_t from[PARTS];
    char *at = memory;
    must(policy->state_size <= sizeof l->state);
    divide(slots, sessions_max, from);
    *l = (struct migrate_look){ .policy = policy, .slots = slots, .sessions_max = sessions_max };
    l->port = (void *)(at + from[PORT]);
    l->endpoint = (void *)(at + from[ENDPOINT]);
    l->instance = (void *)(at + from[INSTANCE]);
    l->first = (void *)(at + from[FIRST]);
    l->next = (void *)(at + from[NEXT]);
    l->session = (void *)(at + from[SESSION]);
    l->transfer = (void *)(at + from[TRANSFER]);
    list_init(&l->decoding);
    rng_seed(&l->rng, seed);
}

/* ---- the sessions --------------------------------------------------------------------------- */

enum kv_transfer_act migrate_look_on(struct migrate_look *l, struct kv_transfer *x,
                                     enum kv_transfer_event event, struct kv_transfer_input in)
{
    in.port = l->port;
    return kv_transfer_on(x, event, &in);
}

void migrate_look_tokens(struct migrate_look *l, struct kv_transfer *x)
{
    x->stayed = false;
    if (!list_linked(&x->decoding)) list_push_back(&l->decoding, &x->decoding);
}

void migrate_look_gone(struct kv_transfer *x)
{
    if (list_linked(&x->decoding)) list_remove(&x->decoding);
}

/* Lists the decoding sessions whose instance still has its slot, ordered by slot. */
static void gather(struct migrate_look *l)
{
    memset(l->first, 0, (l->slots + 1) * sizeof *l->first);
    LIST_EACH (&l->decoding, node) {
        const struct kv_transfer *x = CONTAINER_OF(node, struct kv_transfer, decoding);
        l->first[x->from.slot + 1] += kv_port_of(l->port, x->from) != NULL;
    }
    for (uint32_t i = 0; i < l->slots; i++)
        l->first[i + 1] += l->first[i];
    must(l->first[l->slots] <= l->sessions_max); /* as many as the host has in flight */
    memcpy(l->next, l->first, (l->slots + 1) * sizeof *l->next);
    LIST_EACH (&l->decoding, node) {
        struct kv_transfer *x = CONTAINER_OF(node, struct kv_transfer, decoding);
        if (!kv_port_of(l->port, x->from)) continue;
        uint32_t at = l->next[x->from.slot]++;
        l->transfer[at] = x;
        l->session[at] =
            (struct migrate_session){ .id = at,
                                      .tokens = x->tokens,
                                      .movable = x->state == KVT_IDLE && !x->fixed && !x->stayed };
    }
}

/* ---- the look ------------------------------------------------------------------------------- */

static int64_t ask(struct migrate_look *l, const struct migrate_view *view,
                   const struct migrate_host *host, int64_t now_us)
{
    const struct migrate_config config = migrate_config_for(view->page_tokens);
    struct migrate_verdict v;
    l->policy->decide(l->state, &config, view, now_us, &l->rng, &v);
    for (uint32_t i = 0; i < v.count; i++) {
        const struct migrate_move *move = &v.move[i];
        if (l->port[move->to].incoming < KV_FETCHES_MAX)
            host->migrate(host->arg, l->transfer[move->session], move->to);
    }
    return v.again_us;
}

static bool may_exchange(const struct migrate_endpoint *a, const struct migrate_endpoint *b)
{
    return a->group != 0 && a->group == b->group && a->page_tokens == b->page_tokens;
}

/* Asks for a verdict on slot `from` and the slots that it may exchange sessions with, unless a slot
 * before it was in the same group. */
static int64_t look_at(struct migrate_look *l, uint32_t from, const struct migrate_host *host,
                       int64_t now_us)
{
    const struct migrate_endpoint *first = &l->endpoint[from];
    for (uint32_t i = 0; i < from; i++)
        if (may_exchange(&l->endpoint[i], first)) return INT64_MAX;
    struct migrate_view view = { .instance = l->instance, .page_tokens = first->page_tokens };
    for (uint32_t i = from; i < l->slots; i++) {
        const struct migrate_endpoint *ep = &l->endpoint[i];
        if (!may_exchange(ep, first)) continue;
        bool slower = view.link_bytes_s <= 0 || ep->link_bytes_s < view.link_bytes_s;
        if (ep->link_bytes_s > 0 && slower) view.link_bytes_s = ep->link_bytes_s;
        view.page_bytes = fmax(view.page_bytes, (double)ep->kv_bytes_per_token * view.page_tokens);
        struct migrate_instance *in = &l->instance[view.instance_count++];
        *in = (struct migrate_instance){ .id = i,
                                         .session = &l->session[l->first[i]],
                                         .session_count = l->first[i + 1] - l->first[i] };
        migrate_view_fill(ep, &l->port[i], now_us, in);
    }
    return ask(l, &view, host, now_us);
}

int64_t migrate_look(struct migrate_look *l, const struct migrate_host *host, int64_t now_us)
{
    const struct migrate_view none = { .instance = l->instance, .page_tokens = BLOCK_TOKENS };
    gather(l);
    for (uint32_t i = 0; i < l->slots; i++) {
        l->endpoint[i] = (struct migrate_endpoint){ 0 };
        if (!host->endpoint(host->arg, i, &l->endpoint[i])) l->endpoint[i].group = 0;
    }
    int64_t again_us = ask(l, &none, host, now_us);
    for (uint32_t i = 0; i < l->slots; i++)
        if (l->endpoint[i].group != 0) again_us = min_i64(again_us, look_at(l, i, host, now_us));
    return again_us;
}
