/* refused.c - prompts that killed engines: what each router refuses, told to all the others.
 *
 * A router's list replaces what it said before under the same boot id. What it said under an earlier one
 * stays until its time is over, and is told to that router too: it has forgotten it. Nothing is kept
 * in the store; a controller that starts again hears it from the routers. */
#include "base/core/bits.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#include <string.h>

static void drop(struct router *r, uint32_t at)
{
    r->refused_count--;
    memmove(&r->refused[at], &r->refused[at + 1], (r->refused_count - at) * sizeof *r->refused);
}

/* The place of one more: at the bound that of the one whose time is over first. */
static struct refused_seen *place(struct router *r)
{
    if (r->refused_count == SYNC_REFUSED_MAX) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < r->refused_count; i++)
            if (r->refused[i].until_us < r->refused[first].until_us) first = i;
        drop(r, first);
    }
    return &r->refused[r->refused_count++];
}

void refused_take(struct router *r, const struct router_sync *s, int64_t now_us)
{
    for (uint32_t i = r->refused_count; i-- > 0;)
        if (r->refused[i].boot == s->boot || r->refused[i].until_us <= now_us) drop(r, i);
    for (uint32_t i = 0; i < s->refused_count; i++) {
        const struct refused_prompt *p = &s->refused[i];
        *place(r) = (struct refused_seen){ p->fingerprint, s->boot, now_us + p->left_ms * 1000LL };
    }
}

int refused_rules(const struct control *c, const struct router *me, int64_t now_us,
                  struct arena *arena, struct router_rules *ret)
{
    struct refused_prompt *list = NULL;
    for (uint32_t k = 0; k < CONTROL_ROUTERS_MAX; k++) {
        const struct router *r = &c->router[k];
        if (!r->id[0] || r->refused_count == 0) continue;
        if (!list) list = arena_array(arena, SYNC_ELSEWHERE_MAX, sizeof *list);
        if (!list) return -ENOMEM;
        for (uint32_t i = 0; i < r->refused_count; i++) {
            const struct refused_seen *p = &r->refused[i];
            int64_t left_us = p->until_us - now_us;
            if (left_us <= 0 || (r == me && p->boot == me->boot)) continue;
            list[ret->refused_count++] =
                (struct refused_prompt){ p->fingerprint, (uint32_t)(left_us / 1000) };
        }
    }
    ret->refused = list;
    return 0;
}

void control_quarantine_clear(struct control *c, uint64_t fingerprint)
{
    uint32_t cleared = 0;
    for (uint32_t k = 0; k < CONTROL_ROUTERS_MAX; k++) {
        struct router *r = &c->router[k];
        for (uint32_t i = r->refused_count; i-- > 0;) {
            if (fingerprint != 0 && r->refused[i].fingerprint != fingerprint) continue;
            drop(r, i);
            cleared++;
        }
    }
    log_event(LOG_INFO, "quarantine_cleared", "prompts=%u", cleared);
}
