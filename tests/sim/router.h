/* router.h - the product's director behind a shell of events, and the clients before it.
 *
 * Layer: tests/sim
 * Role:  feeds router/core/director.h and carries its verdicts out as messages; models the rest of the
 *        router's process: connections, timers by its own clock, syncs with the controller
 */
#pragma once
#include "base/wire/sync.h"
#include "fleet/controllers.h"
#include "router/core/director.h"
#include "router/core/failure.h"
#include "tests/sim/node.h"

#define SIM_HELD_MAX 64
#define SIM_HOLD_US (30 * SECOND)

struct request {
    struct director_request routed;
    uint32_t index, router;
    int64_t sent_us;    /* by its client, in the world's time */
    uint32_t output;    /* its true length in tokens */
    uint32_t attempt;   /* generation: a reply to an older one is dropped */
    uint32_t generated; /* tokens its client has; the next attempt goes on from there if it can */
    bool accepted, left, over, ok;
    int status;                       /* told to the client when it failed */
    char instance[DISPATCH_NAME_MAX]; /* where it was sent last */
    int64_t routed_us;                /* when it was sent there, in the world's time */
    struct silence silence;
    bool unread;       /* a heartbeat lies unread in the kernel of its stopped router */
    uint64_t look;     /* generation of the timer that looks for silence */
    int64_t stream_us; /* arrival of the newest message on its connection */
    int64_t arrived_us, first_us, last_us; /* by its router's clock */
};

struct router_node {
    struct director *director;
    struct dispatch *dispatch; /* the director's */
    struct node node;
    uint32_t index;
    uint64_t boot, seq;
    struct controllers controllers; /* where two share a store: which one it asks */
    bool knows_name;                /* it has resolved the controller's name once */
    bool hurried;
    int64_t heard_us; /* when a true sync of it last reached the controller */
    int64_t cut_up_us, cut_down_us;
    int64_t short_until;       /* it has no free descriptor until then: it begins no call */
    int64_t timer_us;          /* for held requests, by its own clock; INT64_MAX: none */
    uint64_t attempts_charged; /* retries, as the world saw their causes */
};

/* Returns the number of requests that its dispatch has taken since its start. */
uint64_t router_arrivals(const struct router_node *r);
void router_start(struct world *w, struct router_node *r);
void router_restart(struct world *w, struct router_node *r);
void router_arrive(struct world *w, struct request *r);
void router_client_left(struct world *w, struct request *r);
/* Takes `count` tokens; `index` is the position of the first of them in the whole output. */
void router_tokens(struct world *w, struct request *r, uint32_t attempt, uint32_t index,
                   uint32_t count, bool finished);
void router_head(struct world *w, struct request *r, uint32_t attempt);
void router_beat(struct world *w, struct request *r, uint32_t attempt);
void router_failed(struct world *w, struct request *r, uint32_t attempt, enum retry_failure f);
void router_hears(struct world *w, struct router_node *r, uint64_t boot, struct str rules);

/* Starts the arrivals, which last for the whole life of the world (clients.c). */
void clients_begin(struct world *w);
