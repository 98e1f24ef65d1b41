/* decide_quarantine.c - who hears of the decision thread's quarantine: people by the board and the
 * metrics, other routers by the controller; and what they order and tell in turn. */
#include "base/io/log.h"
#include "router/decide.h"

void decide_quarantine_tell(struct decide *d)
{
    const struct quarantine *q = core_quarantine(d->core);
    struct quarantine_counts now, *told = &d->quarantine_told;
    int64_t now_us = loop_now_us(d->loop);
    quarantine_counts_get(q, now_us, &now);
    const struct str refused = STR("refused"), suspect = STR("suspect");
    metric_set(metric_series(d->metrics, RM_QUARANTINED, &refused), now.refused_now);
    metric_set(metric_series(d->metrics, RM_QUARANTINED, &suspect), now.suspects);
    metric_add(metric_of(d->metrics, RM_QUARANTINE_REFUSED),
               (double)(now.refusals - told->refusals));
    metric_add(metric_of(d->metrics, RM_QUARANTINE_FORGOTTEN),
               (double)(now.forgotten - told->forgotten));
    if (now.caught > told->caught) {
        log_event(LOG_WARN, "prompts_quarantined", "new=%lu now=%u",
                  (unsigned long)(now.caught - told->caught), now.refused_now);
    }
    *told = now;
    quarantine_board_publish(&d->quarantine, q, now_us);
}

static void clear_from_ask(void *arg)
{
    struct decide *d = arg;
    uint32_t cleared = quarantine_board_orders(&d->quarantine, core_quarantine(d->core));
    log_event(LOG_INFO, "quarantine_cleared", "prompts=%u", cleared);
    decide_quarantine_tell(d);
    decide_held_again(d);
}

int decide_quarantine_clear(struct decide *d, uint64_t fingerprint)
{
    int rc = quarantine_board_ask(&d->quarantine, fingerprint);
    return rc < 0 ? rc : loop_post(d->loop, clear_from_ask, d);
}

uint32_t decide_quarantine_list(struct decide *d, struct refused_prompt *ret)
{
    struct quarantine_item item[QUARANTINE_MAX];
    uint32_t items =
        quarantine_list(core_quarantine(d->core), loop_now_us(d->loop), item, QUARANTINE_MAX);
    uint32_t count = 0;
    for (uint32_t i = 0; i < items && count < SYNC_REFUSED_MAX; i++) {
        if (!item[i].refused || item[i].told) continue;
        ret[count++] =
            (struct refused_prompt){ item[i].fingerprint, (uint32_t)(item[i].left_us / 1000) };
    }
    return count;
}

void decide_quarantine_told(struct decide *d, const struct router_rules *rules)
{
    struct quarantine_item item[SYNC_ELSEWHERE_MAX];
    for (uint32_t i = 0; i < rules->refused_count; i++)
        item[i] = (struct quarantine_item){ .fingerprint = rules->refused[i].fingerprint,
                                            .left_us = rules->refused[i].left_ms * INT64_C(1000) };
    quarantine_told(core_quarantine(d->core), item, rules->refused_count, loop_now_us(d->loop));
    decide_quarantine_tell(d);
}
