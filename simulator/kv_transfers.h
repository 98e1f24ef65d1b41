/* kv_transfers.h - carries out a run's KV transfers (fetches, handoffs, migrations) in time and over the network.
 *
 * Layer: simulator; internal to a run
 *
 * fleet/kv_transfer.h decides the stages of a transfer, and fleet/migrate_view.h builds the view by which the
 * policy chooses the sessions that migrate: each router looks at its own requests and at the loads told to it.
 */
#pragma once
#include "fleet/migrate_view.h"
#include "simulator/config.h"
#include "simulator/flight.h"
#include "simulator/instance.h"

/* An engine's load as its stream of events told it last. */
struct kv_told {
    bool told;
    int64_t at_us;
    struct reported_load load;
};

struct kv_transfers {
    struct kv_link link;
    struct heap_node due, look_at, tell; /* events: a copy is over, a look, loads are told */
    struct migrate_look look[SIM_ROUTERS_MAX];
    void *memory[SIM_ROUTERS_MAX]; /* of the looks */
    struct kv_told *told;          /* by place */
    bool looks;                    /* a policy migrates: it is shown what decodes */
};

struct run;
int kv_transfers_start(struct run *run, struct err *err);
void kv_transfers_stop(struct run *run);
void kv_transfers_over(struct run *run); /* ends copies that are there or late */
void kv_transfers_tell(struct run *run); /* engines tell their loads */
void kv_transfers_look(struct run *run); /* the migrate policy looks */

/* Begins a fetch from the verdict's peer if it has something to send; then returns true, and the flight
 * is delivered after it. */
bool kv_transfers_fetch(struct run *run, struct flight *f);
void kv_transfers_sent(struct run *run, struct flight *f);   /* to its instance, by its router */
void kv_transfers_tokens(struct run *run, struct flight *f); /* some came */
void kv_transfers_forget(struct run *run, struct flight *f); /* it is over, or its attempt is */

/* For hooks of instances. */
void kv_transfers_prefilled(struct run *run, struct flight *f);
void kv_transfers_stands(struct run *run, struct flight *f);

/* An instance has its place from now on; it is gone; the number of transfers on their way to it. */
void kv_transfers_instance_new(struct run *run, const struct instance *in);
void kv_transfers_instance_gone(struct run *run, const struct instance *in);
uint32_t kv_transfers_incoming(const struct run *run, const struct instance *in);
