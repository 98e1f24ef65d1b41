/* kv_transfer.c - a table of state x event; each cell is a function that returns the next action.
 *
 * The router follows one transfer in two places: the decision thread knows which instance has the request
 * and which ports are busy, the byte loop knows which stage is under way. Neither sees all events, so some
 * cells skip a state that their host did not see (COPYING x STOPPED). The simulator sees all events.
 *
 * A stage without progress ends a migration: the target would compute what the source has computed.
 */
#include "fleet/kv_transfer.h"

#include "base/core/bits.h"
#include "base/core/err.h"

typedef enum kv_transfer_act (*kvt_cell)(struct kv_transfer *x, const struct kv_transfer_input *in);

struct kv_port *kv_port_of(struct kv_port *port, struct kv_end end)
{
    if (!port || end.serial == 0 || port[end.slot].serial != end.serial) return NULL;
    return &port[end.slot];
}

void kv_transfer_at(struct kv_transfer *x, struct kv_end at)
{
    must(x->state == KVT_IDLE);
    x->from = at;
}

/* ---- ports ---------------------------------------------------------------------------------- */

static void aim(struct kv_transfer *x, struct kv_end to, uint32_t pages, struct kv_port *ports)
{
    struct kv_port *source = kv_port_of(ports, x->from), *target = kv_port_of(ports, to);
    x->to = to;
    x->pages = pages;
    if (source) source->sending_pages += pages;
    if (target) target->incoming++;
    if (target) target->incoming_pages += pages;
}

static void free_source(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    struct kv_port *source = kv_port_of(in->port, x->from);
    if (source && x->state != KVT_WAITING) source->sending_pages -= x->pages;
}

/* Takes the transfer off both ports. */
static void release(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    struct kv_port *target = kv_port_of(in->port, x->to);
    free_source(x, in);
    if (target) target->incoming--;
    if (target) target->incoming_pages -= x->pages;
    x->pages = 0;
    x->state = KVT_IDLE;
}

/* ---- cells ---------------------------------------------------------------------------------- */

static enum kv_transfer_act ignore(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    (void)x, (void)in;
    return KVT_NOTHING;
}

static enum kv_transfer_act fetch(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    x->from = in->from;
    aim(x, in->to, 0, in->port);
    x->copied = in->copied;
    x->wanted = in->pages;
    x->state = KVT_FETCHING;
    return KVT_COPY;
}

static enum kv_transfer_act prefill(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    (void)in;
    x->state = KVT_PREFILLING;
    return KVT_NOTHING;
}

static enum kv_transfer_act hand_off(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    aim(x, in->to, 0, in->port);
    x->copied = 0;
    x->wanted = in->pages;
    x->state = KVT_HANDOFF;
    return KVT_COPY;
}

/* Lets the instance that has computed the prompt decode too. */
static enum kv_transfer_act go_on(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    x->to = x->from;
    x->copied = x->wanted = in->pages;
    x->state = KVT_IDLE;
    return KVT_BEGIN;
}

static enum kv_transfer_act next_stage(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    const struct migrate_config config = migrate_config_for(in->page_tokens);
    x->wanted = in->pages;
    bool stops = migrate_stops(&config, x->stage++, x->wanted - min_u32(x->copied, x->wanted));
    x->state = stops ? KVT_STOPPING : KVT_COPYING;
    return stops ? KVT_STOP : KVT_COPY;
}

static enum kv_transfer_act migrate(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    aim(x, in->to, ceil_div_u32(in->tokens + 1, in->page_tokens), in->port);
    x->copied = x->stage = 0;
    return next_stage(x, in);
}

/* Ends a migration without a move. Mostly the source has preempted the session, which the router does
 * not see. */
static enum kv_transfer_act stay(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    release(x, in);
    x->stayed = true;
    return KVT_STAY;
}

static enum kv_transfer_act staged(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    if (in->copied <= x->copied) return stay(x, in);
    x->copied = in->copied;
    return next_stage(x, in);
}

static enum kv_transfer_act stopped(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    struct kv_port *source = kv_port_of(in->port, x->from);
    if (source) source->moved_us = in->now_us;
    x->wanted = in->pages;
    x->state = KVT_ARRIVING;
    return KVT_COPY;
}

static enum kv_transfer_act resume(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    release(x, in);
    x->stayed = true;
    return KVT_RESUME;
}

static enum kv_transfer_act fetched(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    x->copied = in->copied;
    release(x, in);
    x->from = x->to;
    return KVT_BEGIN;
}

/* Begins the session at the target. Its pages count as on their way until the target sends a token:
 * only then does the load that the target reports include them. */
static enum kv_transfer_act arrived(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    x->copied = in->copied;
    free_source(x, in);
    x->from = x->to;
    x->state = KVT_WAITING;
    return KVT_BEGIN;
}

/* Ends a transfer by a token of the target. A load that the target reported before it is out of date. */
static enum kv_transfer_act runs(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    struct kv_port *target = kv_port_of(in->port, x->to);
    if (target && x->pages > 0) target->moved_us = in->now_us;
    release(x, in);
    x->from = x->to;
    return KVT_NOTHING;
}

static enum kv_transfer_act reroute(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    release(x, in);
    return KVT_REROUTE;
}

static enum kv_transfer_act reroute_whole(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    (void)in;
    x->state = KVT_IDLE;
    return KVT_REROUTE;
}

static enum kv_transfer_act over(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    release(x, in);
    return KVT_NOTHING;
}

static enum kv_transfer_act over_whole(struct kv_transfer *x, const struct kv_transfer_input *in)
{
    (void)in;
    x->state = KVT_IDLE;
    return KVT_NOTHING;
}

/* ---- the table ------------------------------------------------------------------------------ */

/* clang-format off */
static const kvt_cell on[KVT_STATE_COUNT][KVT_EVENT_COUNT] = {
    [KVT_IDLE] = {
        [KVT_FETCH] = fetch, [KVT_PREFILL] = prefill, [KVT_MIGRATE] = migrate,
        [KVT_TOKENS] = ignore, [KVT_ENDED] = ignore,
    },
    [KVT_FETCHING] = {
        [KVT_COPIED] = fetched, [KVT_LOST] = fetched, [KVT_SOURCE_GONE] = fetched,
        [KVT_TARGET_GONE] = reroute, [KVT_ENDED] = over,
    },
    [KVT_PREFILLING] = {
        [KVT_PREFILLED] = hand_off, [KVT_UNPLACED] = go_on, [KVT_TOKENS] = ignore,
        [KVT_SOURCE_GONE] = reroute_whole, [KVT_ENDED] = over_whole,
    },
    [KVT_HANDOFF] = {
        [KVT_COPIED] = arrived, [KVT_TOKENS] = runs, [KVT_LOST] = arrived,
        [KVT_SOURCE_GONE] = arrived, [KVT_TARGET_GONE] = reroute, [KVT_ENDED] = over,
    },
    [KVT_COPYING] = {
        [KVT_COPIED] = staged, [KVT_STOPPED] = stopped, [KVT_TOKENS] = ignore, [KVT_LOST] = stay,
        [KVT_SOURCE_GONE] = reroute, [KVT_TARGET_GONE] = stay, [KVT_ENDED] = over,
    },
    [KVT_STOPPING] = {
        [KVT_STOPPED] = stopped, [KVT_TOKENS] = ignore, [KVT_LOST] = resume,
        [KVT_SOURCE_GONE] = reroute, [KVT_TARGET_GONE] = resume, [KVT_ENDED] = over,
    },
    [KVT_ARRIVING] = {
        [KVT_COPIED] = arrived, [KVT_TOKENS] = runs, [KVT_LOST] = arrived,
        [KVT_SOURCE_GONE] = arrived, [KVT_TARGET_GONE] = reroute, [KVT_ENDED] = over,
    },
    [KVT_WAITING] = {
        [KVT_TOKENS] = runs, [KVT_ENDED] = over,
    },
};
/* clang-format on */

bool kv_transfer_takes(enum kv_transfer_state state, enum kv_transfer_event event)
{
    return on[state][event] != NULL;
}

enum kv_transfer_act kv_transfer_on(struct kv_transfer *x, enum kv_transfer_event event,
                                    const struct kv_transfer_input *in)
{
    must(kv_transfer_takes(x->state, event));
    return on[x->state][event](x, in);
}
