/* entry.c - mail there and back; the limits are those of requests. */
#include "router/entry.h"

#include "base/core/bits.h"

void entry_ask(struct entry *e, struct lane *to, enum entry_ask what)
{
    lane_lock(to);
    e->ask |= what;
    lane_send(to, &e->ask_item);
    lane_unlock(to);
}

uint32_t entry_told(struct lane *home, struct lane_item *item, double *ret_wait_s)
{
    struct entry *e = CONTAINER_OF(item, struct entry, tell_item);
    lane_open(home, item);
    uint32_t tell = e->tell;
    e->tell = 0;
    *ret_wait_s = e->wait_s;
    lane_unlock(home);
    return tell;
}

static void tell(struct entry *e, enum entry_tell what, double wait_s)
{
    struct lane *home = e->home; /* once told, the entry may be gone */
    lane_lock(home);
    e->tell |= what;
    e->wait_s = wait_s;
    lane_send(home, &e->tell_item);
    lane_unlock(home);
}

bool entry_decide(struct lane *from, struct lane_item *item, struct tenants *tenants,
                  int64_t now_us)
{
    struct entry *e = CONTAINER_OF(item, struct entry, ask_item);
    lane_open(from, item);
    uint32_t ask = e->ask;
    e->ask = 0;
    lane_unlock(from);
    if (ask & ENTRY_END) {
        const struct usage none = { 0 };
        tenant_end(e->tenant, &none);
        tell(e, ENTRY_OVER, 0);
        return true;
    }
    double wait_s = 0;
    e->tenant = tenants_find(tenants, e->tenant_name);
    bool may = tenant_enter(e->tenant, now_us, &wait_s);
    tell(e, may ? ENTRY_MAY : ENTRY_REFUSED, wait_s);
    return may;
}
