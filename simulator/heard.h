/* heard.h - keeps the reports of a run's routers and agents, as old as a controller would have them; role and
 * power policies see these.
 *
 * Layer: simulator; internal to a run
 * Rules: (1) a router reports every SYNC_PERIOD_US, and URGENT_SYNC_US after it holds a request; an
 *            agent with its engine's report, and at once when its engine has become ready
 *        (2) reports are kept only if such a policy reads them
 */
#pragma once
#include "base/core/heap.h"
#include "controller/core/merge.h"
#include "fleet/demand.h"

struct run;
struct instance;

/* An agent's last report. */
struct heard_agent {
    uint32_t serial; /* its instance's, plus 1; 0: none yet */
    struct sighting seen;
    struct wire_work work;
    double clock;
};

struct heard {
    bool on;
    struct heap_node sync;
    int64_t *sync_us;          /* each router's next */
    struct heard_agent *agent; /* by place */
    struct demand_seen *seen;  /* [router * services + service] */
    int64_t *heard_us;         /* likewise; 0: never */
    struct demand_counted *counted;
};

int heard_start(struct run *run, struct err *err);
void heard_stop(struct run *run);
void heard_sync(struct run *run);                   /* routers that are due report */
void heard_hurry(struct run *run, uint32_t router); /* it holds a request */
void heard_report(struct run *run);                 /* every agent */
void heard_ready(struct run *run, struct instance *in);

/* Returns the last report of an instance's agent; NULL: none yet. */
const struct heard_agent *heard_agent(const struct run *run, const struct instance *in);

/* Fills the routers' reports of a service, at most SIM_ROUTERS_MAX; returns how many there are. */
uint32_t heard_demand(const struct run *run, uint32_t service, struct demand_source *ret);
