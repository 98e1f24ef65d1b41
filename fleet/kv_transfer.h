/* kv_transfer.h - the state machine of one KV transfer: a fetch, a handoff or a live migration.
 *
 * Layer:    fleet (policies/migrate, base/core)
 * Threads:  pure functions over the caller's structs
 * Hosts:    the router's decision thread (place of a request, load of ports), its byte loop (stages of a
 *           copy) and the simulator (both): each feeds the events that it sees
 * Rules:    (1) a session is at one end at any time: at `from` until KVT_BEGIN, at `to` from then on
 *           (2) a transfer that fails costs only the bytes it has copied; its session is not migrated
 *               again before a new token shows that it decodes
 *           (3) a pair of state and event without a cell cannot happen: no host feeds it
 *
 *     fetch      IDLE ─FETCH─► FETCHING ─COPIED─► IDLE: the prompt begins, the rest of it is computed
 *     handoff    IDLE ─PREFILL─► PREFILLING ─PREFILLED─► HANDOFF ─COPIED─► WAITING ─TOKENS─► IDLE
 *     migration  IDLE ─MIGRATE─► COPYING ─COPIED─► ... ─► STOPPING ─STOPPED─► ARRIVING ─COPIED─► WAITING
 *
 * Whole pages are copied; the target computes the tokens behind the last whole page again.
 */
#pragma once
#include "base/core/list.h"
#include "policies/migrate/migrate.h"

#define KVT_STAGE_US_MAX 15000000 /* the target gives up its fetch before (KV_FETCH_US_MAX) */

enum kv_transfer_state {
    KVT_IDLE,
    KVT_FETCHING,   /* pages of a peer are read before the prompt is computed */
    KVT_PREFILLING, /* at a prefill instance, which hands it off after the prompt */
    KVT_HANDOFF,    /* the prompt is done; its pages go to a decode instance */
    KVT_COPYING,    /* a stage of a migration, while it decodes at its source */
    KVT_STOPPING,   /* little is left to copy: the source is to stop it */
    KVT_ARRIVING,   /* stopped; the last stage is copied */
    KVT_WAITING,    /* at its target, which has sent no token of it yet */
    KVT_STATE_COUNT
};

enum kv_transfer_event {
    KVT_FETCH,     /* routed, and a peer has pages of its prompt */
    KVT_PREFILL,   /* sent to a prefill instance */
    KVT_MIGRATE,   /* a migrate policy wants it elsewhere */
    KVT_PREFILLED, /* its first token has come, and a decode instance takes it */
    KVT_UNPLACED,  /* its first token has come, and no other instance takes it */
    KVT_COPIED,    /* the pages are at the target, or as many as came in time */
    KVT_STOPPED,   /* the source has stopped it */
    KVT_TOKENS,    /* tokens came from its instance; a router, which sees no copies, ends by them */
    KVT_LOST,      /* the copy cannot go on */
    KVT_SOURCE_GONE, /* with all the pages that it held */
    KVT_TARGET_GONE,
    KVT_ENDED, /* the session is over, or its leg has failed */
    KVT_EVENT_COUNT
};

/* The host's next action. */
enum kv_transfer_act {
    KVT_NOTHING,
    KVT_COPY,    /* copy the pages from `copied` to `wanted` */
    KVT_STOP,    /* stop it at its source, then KVT_STOPPED */
    KVT_BEGIN,   /* it continues at `to` with the copied pages; the rest is computed there */
    KVT_STAY,    /* it continues at its source, which was not told to stop it */
    KVT_RESUME,  /* it continues at its source, which was told to stop it */
    KVT_REROUTE, /* the instance that has or awaits it is gone: the router chooses another */
};

/* Names an instance. A slot is reused for other instances, a serial never is. */
struct kv_end {
    uint32_t slot;
    uint64_t serial;
};

/* The load that one host's transfers put on an instance; an array by slot. */
struct kv_port {
    uint64_t serial;         /* of the instance; 0: none has the slot */
    uint32_t incoming;       /* transfers on their way here */
    uint32_t incoming_pages; /* pages of the migrations among them, counted when they began */
    uint32_t sending_pages;  /* pages of migrations from here, counted when they began */
    int64_t moved_us;        /* when a migration last stopped or started a session here; 0: never */
};

struct kv_transfer {
    struct list decoding; /* of migrate_look; linked from the first token to the end */
    enum kv_transfer_state state;
    struct kv_end from, to;  /* `from`: the session's instance; FETCHING: the peer that is read */
    uint32_t pages;          /* counted at both ports while it migrates */
    uint32_t copied, wanted; /* whole pages from the beginning: at the target; to be there */
    uint32_t stage;          /* of a migration */
    uint32_t tokens;         /* that have K and V, for migrate_look */
    bool fixed;              /* must not migrate */
    bool stayed;             /* the last migration failed, and no token has come since */
};

/* The arguments of an event. A member is read only for the events that its comment names. */
struct kv_transfer_input {
    struct kv_end from, to; /* FETCH: peer, and the session's instance; PREFILLED, MIGRATE: to */
    uint32_t pages;  /* FETCH, PREFILLED, MIGRATE, COPIED, STOPPED: whole pages at the source */
    uint32_t copied; /* FETCH: those at the target already; COPIED, LOST, SOURCE_GONE: by now */
    uint32_t tokens; /* MIGRATE: its target needs room for these and one more */
    uint32_t page_tokens; /* MIGRATE, COPIED */
    struct kv_port *port; /* by slot; NULL: this host counts nothing */
    int64_t now_us;
};

/* Sets `from` when a session is sent to an instance; only while it is IDLE. */
void kv_transfer_at(struct kv_transfer *x, struct kv_end at);

enum kv_transfer_act kv_transfer_on(struct kv_transfer *x, enum kv_transfer_event event,
                                    const struct kv_transfer_input *in);

/* Returns true if the pair of state and event has a cell. */
bool kv_transfer_takes(enum kv_transfer_state state, enum kv_transfer_event event);

/* Returns the instance's port; NULL if another instance has the slot now, or none. */
struct kv_port *kv_port_of(struct kv_port *port, struct kv_end end);
