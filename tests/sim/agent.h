/* agent.h - one instance: the product's supervisor (agent/core) around a modelled engine.
 *
 * Layer: tests/sim
 * Role:  the shell of the agent and nothing more: it feeds sup_feed and sup_tick, carries out what
 *        they answer, and reports each second
 */
#pragma once
#include "agent/core/supervise.h"
#include "base/wire/report.h"
#include "controller/core/intent.h"
#include "tests/sim/engine.h"
#include "tests/sim/node.h"

struct agent {
    uint32_t index;      /* of the provider's instance */
    char id[NAME_BYTES]; /* intent and instance */
    bool knows_name;     /* of the controller: it has an address that was good once */
    bool booted;         /* the machine runs its agent */
    bool gone;           /* the machine is gone */
    struct node node;
    struct sup sup;
    struct engine engine;
    int64_t born_us, lease_until_us, healthy_us; /* by its own clock */
    uint64_t boot, seq, engine_boot;

    /* The truth about it, in the world's time. */
    int64_t made_us, draining_us;
    int64_t heard_us;               /* when a true report of it last reached the controller */
    int64_t heard_stopped_us;       /* stopped time of that controller until then */
    int64_t told_us;                /* when an answer of the controller last reached it */
    int64_t cut_up_us, cut_down_us; /* its links are cut until then */
    int64_t cut_from_us[SIM_ROUTERS_MAX],
        cut_to_us[SIM_ROUTERS_MAX];     /* the engine's, with routers */
    int64_t blamed_us[SIM_ROUTERS_MAX]; /* when it last failed that router's requests */
    int64_t short_until;                /* of descriptors: it can begin no call */
    int64_t asked_us;                   /* when a probe last said anything, by its own clock */
    bool noticed;                       /* the provider has said that it takes it */
    bool judged;                        /* its removal is under way and was looked at */
    bool unwanted;                      /* the plan wants it gone */
    bool late;                          /* made after its intent was over */
    const char *end_reason;             /* why it is being removed; NULL: it is not */
};

/* The machine of provider's instance `index` exists and runs its agent from `ready_us` on. */
void agent_made(struct world *w, uint32_t index, const char *id, double speed, int64_t ready_us);
void agent_machine_gone(struct world *w, struct agent *a); /* power cut, or removed */

/* Well for some looks of its agent, with requests that were sent to it for_us ago at least. */
bool agent_serves(const struct world *w, const struct agent *a, int64_t for_us);
/* The truth: until then its engine fails requests of that router, or of all (SIM_ROUTERS_MAX). */
void agent_blame(struct agent *a, uint32_t router, int64_t until_us);
struct agent *agent_find(struct world *w, const char *id); /* one that lives, before any other */

/* An answer of the controller arrived. */
void agent_hears(struct world *w, struct agent *a, const struct agent_reply *reply);

/* Of the engine. */
void agent_engine_out(struct world *w, struct engine *e, const struct seq *s, enum engine_out out,
                      uint32_t count);
void agent_engine_beats(struct world *w, struct engine *e); /* each second while it is well */
void agent_engine_exited(struct world *w, struct engine *e);
