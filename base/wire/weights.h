/* weights.h - defines what an agent says of its engine's model file, and what it is told of agents that have it.
 *
 * Layer: base/wire (base/core)
 * Use:   parts of an agent's report and of the reply to it (report.h)
 */
#pragma once
#include "base/wire/field.h"

#define WIRE_SEEDS_MAX 8u /* agents that one agent is told of */

/* The model that an agent fetches, or has fetched. The times are of this start of the agent; 0: not known. */
struct wire_weights {
    struct str sha256;     /* of the model (docs/models.md), in hex; empty: no digest is expected */
    bool whole;            /* it is there, and was compared */
    uint64_t bytes, total; /* that are there; of all files, 0: not known yet */
    uint64_t seed_bytes;   /* of these, from other agents */
    double rate;           /* bytes a second of the last seconds; 0 once it is whole */
    double fetch_s;        /* from the start of the fetch to its end, or until now */
    double load_s;         /* from the engine's start to its first ready */
    uint32_t port;         /* where the agent gives it to others; 0: nowhere */
};
extern const struct field_set wire_weights_set;

/* Another agent that has the model. */
struct wire_seed {
    struct str host;
    uint32_t port;
    bool tls;
    struct str id,
        key; /* to sign as, and the key of that id in hex (auth.h); empty: nothing is signed */
};
extern const struct field_set wire_seed_set;
