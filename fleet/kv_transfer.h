/* kv_transfer.h - the state machine of one KV transfer: a fetch, a handoff or a live migration.
 *
 * Layer:    fleet (policies/migrate, base/core)
 * Threads:  pure functions over the caller's structs
 * Hosts:    the router's decision thread (where a request is, what ports are busy with), its byte loop
 *           (the stages of a copy) and the simulator (both): each feeds the events that it sees
 * Rules:    (1) a session is at one end at any time: at `from` until KVT_BEGIN, at `to` from then on
 *           (2) a transfer that comes to nothing costs what it has copied, and nothing else; its session
 *               is not tried again before it has shown by a token that it decodes
 *           (3) a pair of state and event without a cell cannot happen: no host feeds it
 *
 *     fetch      IDLE ─FETCH─► FETCHING ─COPIED─► IDLE: the prompt begins, the rest of it is computed
 *     handoff    IDLE ─PREFILL─► PREFILLING ─PREFILLED─► HANDOFF ─COPIED─► WAITING ─TOKENS─► IDLE
 *     migration  IDLE ─MIGRATE─► COPYING ─COPIED─► ... ─► STOPPING ─STOPPED─► ARRIVING ─COPIED─► WAITING
 *
 * Whole pages are copied; what lies behind the last of them is computed again by the target.
 */
#pragma once
#include "base/core/list.h"
#include "policies/migrate/migrate.h"

#define KVT_STAGE_US_MAX 15000000 /* the target gives up its fetch before (KV_FETCH_US_MAX) */

enum kv_transfer_state {
    KVT_IDLE,
    KVT_FETCHING,   /* a peer's pages come before the prompt is computed */
    KVT_PREFILLING, /* at a prefill instance, where it shall not stay */
    KVT_HANDOFF,    /* the prompt is done; its pages go to a decode instance */
    KVT_COPYING,    /* a stage of a migration, while it decodes at its source */
    KVT_STOPPING,   /* little is left: the source is to stop it */
    KVT_ARRIVING,   /* stopped; the last stage */
    KVT_WAITING,    /* at its target, which has told no token of it yet */
    KVT_STATE_COUNT
};

enum kv_transfer_event {
    KVT_FETCH,     /* routed, and a peer has pages of its prompt */
    KVT_PREFILL,   /* sent to a prefill instance */
    KVT_MIGRATE,   /* a migrate policy wants it elsewhere */
    KVT_PREFILLED, /* its first token is there, and a decode instance takes it */
    KVT_UNPLACED,  /* its first token is there, and no other instance takes it */
    KVT_COPIED,    /* what was to be copied is at the target, or as much as came in time */
    KVT_STOPPED,   /* the source has stopped it */
    KVT_TOKENS,    /* tokens came from where it is; a router, which sees no copies, ends by them */
    KVT_LOST,      /* the copy cannot go on */
    KVT_SOURCE_GONE, /* with all that it held */
    KVT_TARGET_GONE,
    KVT_ENDED, /* the session is over, or its leg has failed */
    KVT_EVENT_COUNT
};

/* What the host does next. */
enum kv_transfer_act {
    KVT_NOTHING,
    KVT_COPY,    /* copy the pages from `copied` to `wanted` */
    KVT_STOP,    /* stop it at its source, then KVT_STOPPED */
    KVT_BEGIN,   /* it is at `to` now, with what was copied; what is missing is computed */
    KVT_STAY,    /* it goes on at its source as if nothing had been */
    KVT_RESUME,  /* the same, and the source had been told to stop it */
    KVT_REROUTE, /* the instance that it was for is gone: the router decides anew */
};

/* An instance. A slot may be given to another one, a serial never. */
struct kv_end {
    uint32_t slot;
    uint64_t serial;
};

/* What the transfers of one host occupy at an instance; an array by slot. */
struct kv_port {
    uint64_t serial;         /* of the instance; 0: none has the slot */
    uint32_t incoming;       /* transfers on their way here, */
    uint32_t incoming_pages; /* pages of those that are migrations, */
    uint32_t sending_pages;  /* and of migrations from here, as when they began */
    int64_t moved_us; /* when a migration last stopped a session here, or one runs; 0: never */
};

struct kv_transfer {
    struct list decoding; /* of migrate_look; linked from the first token to the end */
    enum kv_transfer_state state;
    struct kv_end from, to;  /* `from` is where its session is; FETCHING: the peer that is read */
    uint32_t pages;          /* counted at both ports, while it migrates */
    uint32_t copied, wanted; /* whole pages from the beginning: at the target, and once all came */
    uint32_t stage;          /* of a migration */
    uint32_t tokens;         /* with K and V, for migrate_look */
    bool fixed;              /* no migration */
    bool stayed;             /* the last one came to nothing, and no token has come since */
};

/* Beside the event; what an event does not name is not read. */
struct kv_transfer_input {
    struct kv_end from, to; /* FETCH: the peer, where it was sent; PREFILLED, MIGRATE: to */
    uint32_t pages;  /* FETCH, PREFILLED, MIGRATE, COPIED, STOPPED: whole ones, at the source */
    uint32_t copied; /* FETCH: of them, at the target already; COPIED, LOST, SOURCE_GONE: by now */
    uint32_t tokens; /* MIGRATE: that its target must have room for, and one more */
    uint32_t page_tokens; /* MIGRATE, COPIED */
    struct kv_port *port; /* by slot; NULL: this host counts nothing */
    int64_t now_us;
};

/* `from` of a session that is sent to an instance; only while it is IDLE. */
void kv_transfer_at(struct kv_transfer *x, struct kv_end at);

enum kv_transfer_act kv_transfer_on(struct kv_transfer *x, enum kv_transfer_event event,
                                    const struct kv_transfer_input *in);

/* Whether the pair has a cell. */
bool kv_transfer_takes(enum kv_transfer_state state, enum kv_transfer_event event);

/* NULL: another instance has the slot now, or none. */
struct kv_port *kv_port_of(struct kv_port *port, struct kv_end end);
