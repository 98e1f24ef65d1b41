/* move_view.c - free pages, the queue's need and the time of a step from one told load.
 *
 * Of its queue an engine says how many wait and how many prompt tokens it owes: the first that waits
 * is taken to be one like the mean.
 */
#include "router/core/move_view.h"

#include "base/core/bits.h"

static uint32_t queue_pages(const struct move_place *p)
{
    const struct reported_load *load = p->load;
    if (load->waiting == 0) return 0;
    uint64_t tokens = min_u64(load->prefill_tokens / load->waiting, p->ep->kv_tokens_max);
    return (uint32_t)(tokens / p->page_tokens) + 1;
}

void move_view_fill(const struct move_place *p, int64_t now_us, struct migrate_instance *ret)
{
    const struct dispatch_endpoint *ep = p->ep;
    const struct reported_load *load = p->load;
    ret->present = false;
    ret->accepts = ep->ready && ep->role != ROLE_PREFILL;
    ret->draining = p->draining;
    ret->leaves_us = p->leaves_us;
    ret->receiving_pages = p->incoming_pages;
    ret->sending_pages = p->sending_pages;
    ret->pages_free = ret->queue_pages = ret->running = 0;
    ret->step_s = 0;
    if (!load || ep->kv_tokens_max == 0) return;
    bool idle = load->running == 0 && load->waiting == 0;
    bool settled = p->told_us > p->moved_us || now_us - p->moved_us > MOVE_SETTLE_US;
    uint64_t all = ep->kv_tokens_max / p->page_tokens;
    uint64_t held = load->kv_tokens / p->page_tokens + (load->kv_tokens % p->page_tokens > 0);
    ret->present = settled && (idle || now_us - p->told_us < LOAD_FRESH_US);
    ret->pages_free = (uint32_t)(all > held ? all - held : 0);
    ret->running = load->running;
    ret->queue_pages = queue_pages(p);
    if (ep->has_perf) {
        ret->step_s = ep->perf.step_s + ep->perf.decode_seq_s * (double)load->running +
                      ep->perf.kv_read_s * (double)load->kv_tokens;
    }
}
