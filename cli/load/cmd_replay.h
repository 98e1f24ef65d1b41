/* cmd_replay.h - a routing policy decides again on recorded views: its choices, and their regret.
 *
 * Layer: cli (router/record.h, policies)
 * Rules: (1) one step only: the recorded request went where it went, and every later view is of the
 *            world that this made; so a time to first token of the other policy cannot be told, and is
 *            not
 *        (2) the policy's state is fed by the recorded events; its own notes with a request come back
 *            only where it agreed, for the others are not about its choice
 *        (3) regret is in the view's own estimate: predicted TTFT where it would send, less the
 *            least in that view
 */
#pragma once
#include "router/record.h"

/* NaN where no decision could be judged. */
struct route_replay_regret {
    double mean_s, p50_s, p99_s;
};

struct judgement {
    char recorded[64];  /* the policy that decided; "several" when it was changed */
    uint64_t entries;   /* read: rows, decisions, events */
    bool torn;          /* the record ends within a further one */
    uint64_t decisions; /* that placed a request */
    uint64_t agreed;
    uint64_t refused; /* placed in the record and not by the policy */
    uint64_t judged;  /* of the decisions, those where every candidate's speed was known */
    struct route_replay_regret regret, regret_recorded;
    double margin_s; /* mean TTFT of the recorded policy's second choice less its first's; or NaN */
    uint64_t prompt_tokens, hit_tokens, hit_tokens_recorded; /* believed cached where it would go */
};

/* -EINVAL for what is not a record, -ENODATA for one without a decision, -ENOMEM. */
int route_replay_record(struct str file, const struct route_policy *policy, uint64_t seed,
                        struct judgement *ret, struct err *err);
