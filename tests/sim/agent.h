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

struct agent {
    uint32_t index;      /* of the provider's instance */
    char id[NAME_BYTES]; /* intent and instance */
    bool booted;         /* the machine runs its agent */
    bool gone;           /* the machine is gone */
    struct sup sup;
    struct engine engine;
    int64_t born_us, lease_until_us, healthy_us, draining_us;
    uint64_t boot, seq, engine_boot;
    int64_t heard_us;               /* when a true report of it last reached the controller */
    int64_t cut_up_us, cut_down_us; /* its links are cut until then */
};

/* The machine of provider's instance `index` exists and runs its agent from `ready_us` on. */
void agent_made(struct world *w, uint32_t index, const char *id, double speed, int64_t ready_us);
void agent_machine_gone(struct world *w, struct agent *a); /* power cut, or removed */

bool agent_serves(const struct agent *a);                  /* healthy, with requests in flight */
struct agent *agent_find(struct world *w, const char *id); /* one that lives, before any other */

/* An answer of the controller arrived. */
void agent_hears(struct world *w, struct agent *a, const struct agent_reply *reply);

/* Of the engine. */
void agent_engine_out(struct world *w, struct engine *e, const struct seq *s, enum engine_out out,
                      uint32_t count);
void agent_engine_exited(struct world *w, struct engine *e);
