/* kv_transfers.h - sessions that go on elsewhere: handed over after their prompt, or migrated live.
 *
 * Layer: simulator; internal to a run
 */
#pragma once
#include "simulator/flight.h"
#include "simulator/instance.h"
#include "simulator/kv_link.h"

#define KV_TRANSFERS_STATE_BYTES 1024 /* of a migration row */

struct kv_transfers {
    struct kv_link link;
    struct heap_node due, look; /* the run's events: a copy arrives; a migration row looks */
    struct list stranded;       /* prompts that no decode instance takes yet */
    const struct migrate_policy *row;
    struct migrate_config config;
    struct rng rng;
    struct migrate_instance *instance; /* of one look; as many as places */
    struct migrate_session *session;   /* of one look, with the flights behind them */
    struct flight **flight;
    uint32_t session_max;
    _Alignas(8) unsigned char state[KV_TRANSFERS_STATE_BYTES];
};

struct run;
int kv_transfers_start(struct run *run, struct err *err);
void kv_transfers_stop(struct run *run);
void kv_transfers_arrived(struct run *run); /* copies whose last byte is there */
void kv_transfers_look(struct run *run);    /* what the migration row wants */
void kv_transfers_stranded(struct run *run);

/* Whether the verdict's peer has something to send first; if so the flight follows it. */
bool kv_transfers_fetch(struct run *run, struct flight *f);

/* What instances tell. */
void kv_transfers_prefilled(struct run *run, struct flight *f);
void kv_transfers_stands(struct run *run, struct flight *f);

/* The request is over, or its instance is. */
void kv_transfers_forget(struct run *run, struct flight *f);
/* Copies to it find another target, or their sessions stay; who fetched from it goes without. */
void kv_transfers_instance_gone(struct run *run, const struct instance *in);
