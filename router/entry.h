/* entry.h - a tenant's leave to have work done by the router itself, which no engine sees.
 *
 * Layer:   router
 * Threads: a byte loop asks, the decision thread, which holds the limits, answers by mail; each has
 *          a lane of its own for entries
 * Rules:   (1) ENTRY_ENTER is answered by ENTRY_MAY or ENTRY_REFUSED, and ENTRY_END, asked once after
 *              ENTRY_MAY, by ENTRY_OVER
 *          (2) the memory is the asker's, and stays until ENTRY_REFUSED or ENTRY_OVER has come
 *          (3) it counts as a request of its tenant and as one in flight; its tokens are nobody's,
 *              because no model computes them
 */
#pragma once
#include "base/io/lane.h"
#include "router/tenants.h"

enum entry_ask { ENTRY_ENTER = 1, ENTRY_END = 2 };
enum entry_tell { ENTRY_MAY = 1, ENTRY_REFUSED = 2, ENTRY_OVER = 4 };

struct entry {
    struct lane_item ask_item, tell_item;
    struct lane *home; /* the asker's, for what is told */
    char tenant_name[TENANT_NAME_MAX];
    uint32_t ask, tell;
    double wait_s;         /* with ENTRY_REFUSED: until it may */
    struct tenant *tenant; /* the decision thread's */
};

/* By the asker: `to` is the decision thread's lane. */
void entry_ask(struct entry *e, struct lane *to, enum entry_ask what);
/* By the asker, for an item of its lane: what was told, and the seconds. */
uint32_t entry_told(struct lane *home, struct lane_item *item, double *ret_wait_s);

/* By the decision thread, for an item of its lane. False: the tenant may not. */
bool entry_decide(struct lane *from, struct lane_item *item, struct tenants *tenants,
                  int64_t now_us);
