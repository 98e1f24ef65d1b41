/* agent.h - one instance: the product's supervisor (agent/core) around a modelled engine.
 *
 * Layer: tests/sim
 * Role:  the shell of the agent and nothing more: it feeds sup_feed and sup_tick, carries out the
 *        actions they return, and reports each second
 */
#pragma once
#include "agent/core/supervise.h"
#include "base/wire/report.h"
#include "controller/core/intent.h"
#include "fleet/controllers.h"
#include "tests/sim/engine.h"
#include "tests/sim/node.h"

struct agent {
    uint32_t index;                 /* of the provider's machine */
    char id[NAME_BYTES];            /* of its intent and of the instance */
    struct controllers controllers; /* where two share a store: which one it asks */
    bool knows_name; /* it has resolved the controller's name once and keeps that address */
    bool booted;     /* the machine runs its agent */
    bool gone;       /* the machine is gone */
    struct node node;
    struct sup sup;
    struct engine engine;
    int64_t born_us, lease_until_us, healthy_us; /* by its own clock */
    uint64_t boot, seq, engine_boot;

    /* The truth about it, in the world's time unless said otherwise. */
    int64_t made_us, draining_us;
    int64_t heard_us;               /* when a true report of it last reached the controller */
    int64_t heard_stopped_us;       /* for how long the controller had been stopped by then */
    int64_t told_us;                /* when a reply of the controller last reached it */
    int64_t cut_up_us, cut_down_us; /* its links with the controller are cut until then */
    /* The links of its engine with routers, likewise. */
    int64_t cut_from_us[SIM_ROUTERS_MAX], cut_to_us[SIM_ROUTERS_MAX];
    int64_t blamed_us[SIM_ROUTERS_MAX]; /* until when its engine fails that router's requests */
    int64_t short_until;                /* it is short of descriptors until then: no call */
    int64_t asked_us;                   /* when a probe last had a result, by its own clock */
    bool noticed;                       /* the provider has given notice that it takes it away */
    bool judged;                        /* its removal is under way and has been judged */
    bool unwanted;                      /* the plan wants it gone */
    bool late;                          /* made after its intent was over */
    const char *end_reason;             /* the true reason of its removal; NULL: it has none */
};

/* Adds the provider's machine `index`, which runs its agent from `ready_us` on. */
void agent_made(struct world *w, uint32_t index, const char *id, double speed, int64_t ready_us);
void agent_machine_gone(struct world *w, struct agent *a); /* power cut, or removed */

/* Returns true if its engine has been well for some looks of its agent and works on requests that were
 * sent to it for_us ago at least and that a router still waits for. */
bool agent_serves(const struct world *w, const struct agent *a, int64_t for_us);
/* Records the truth that its engine fails the requests of one router, or of all (SIM_ROUTERS_MAX), until
 * until_us. */
void agent_blame(struct agent *a, uint32_t router, int64_t until_us);
struct agent *agent_find(struct world *w, const char *id); /* a live one before a dead one */

/* Takes a reply of the controller. */
void agent_hears(struct world *w, struct agent *a, const struct agent_reply *reply);

/* Called by the engine. */
void agent_engine_out(struct world *w, struct engine *e, const struct seq *s, enum engine_out out,
                      uint32_t count);
void agent_engine_beats(struct world *w, struct engine *e); /* each second while it is well */
void agent_engine_exited(struct world *w, struct engine *e);
