/* cmd_replay.h - lets a routing policy decide again on recorded views, and reports its choices and regret.
 *
 * Layer: cli (router/record.h, policies)
 * Rules: (1) each decision is judged alone: the recorded choice stands, and every later view shows its
 *            effects; so the TTFT that the other policy would have had cannot be known, and is not
 *            reported
 *        (2) the recorded events feed the policy's state; its own notes with a request come back only
 *            where it agreed, because other outcomes do not belong to its choice
 *        (3) regret is in the view's own estimate: predicted TTFT where it would send, less the
 *            least in that view
 */
#pragma once
#include "router/record.h"

/* Regret over the judged decisions; NaN when there is none. */
struct route_replay_regret {
    double mean_s, p50_s, p99_s;
};

struct judgement {
    char recorded[64];  /* the policy that decided; "several" when it was changed */
    uint64_t entries;   /* read: policies, decisions, events */
    bool torn;          /* the record ends in the middle of an entry */
    uint64_t decisions; /* that placed a request */
    uint64_t agreed;
    uint64_t refused; /* placed in the record and not by the policy */
    uint64_t judged;  /* of the decisions, those where every candidate's speed was known */
    struct route_replay_regret regret, regret_recorded;
    double margin_s; /* mean TTFT of the recorded policy's second choice less its first's; or NaN */
    uint64_t prompt_tokens, hit_tokens, hit_tokens_recorded; /* believed cached where it would go */
};

/* Judges the policy on a record. -EINVAL when `file` is not a record, -ENODATA when it has no decision,
 * -ENOMEM. */
int route_replay_record(struct str file, const struct route_policy *policy, uint64_t seed,
                        struct judgement *ret, struct err *err);
