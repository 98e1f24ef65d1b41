/* reasons.c - knows the valid reasons for an end, and checks the fact behind each. */
#include "tests/sim/reasons.h"

#include "base/core/bits.h"
#include "tests/sim/world.h"

#include <string.h>

#define SLACK_US (2 * SECOND) /* a tick, and messages that overtake each other */

static const struct intent *intent_of(const struct world *w, const struct agent *a)
{
    const struct control *c = w->controller->control;
    uint32_t at = c ? control_find(c, a->id) : UINT32_MAX;
    return at == UINT32_MAX ? NULL : &c->money.intent[at];
}

/* Records which instances the plan wants gone; their removal may come much later. */
static void keep_wishes(struct world *w)
{
    const struct control *c = w->controller->control;
    for (uint32_t i = 0; i < c->desired.plan.action_count; i++) {
        const struct plan_action *p = &c->desired.plan.action[i];
        if (p->act == PLAN_LAUNCH) continue;
        const char *id = c->money.intent[c->desired.view_slot[p->instance]].id;
        for (uint32_t k = 0; k < w->agent_count; k++)
            if (strcmp(w->agent[k]->id, id) == 0) w->agent[k]->unwanted = p->act != PLAN_KEEP;
    }
}

static bool has_twin(const struct world *w, const struct agent *a)
{
    for (uint32_t i = 0; i < w->agent_count; i++)
        if (w->agent[i] != a && strcmp(w->agent[i]->id, a->id) == 0 && cloud_runs(w, i))
            return true;
    return false;
}

/* Returns for how long this controller has listened for `a` in vain. */
static int64_t silence_us(const struct world *w, const struct agent *a)
{
    const struct controller_node *c = w->controller;
    bool known = max_i64(a->heard_us, a->made_us) > c->born_us;
    int64_t stopped_us = c->node.stopped_us - (known ? a->heard_stopped_us : 0);
    int64_t from_us = max_i64(max_i64(w->controller->born_us, a->heard_us), a->made_us);
    return w->time.now_us - from_us - stopped_us;
}

/* Returns the true reason for removing `a`; NULL: there is none. */
static const char *removal_reason(const struct world *w, const struct agent *a)
{
    const struct merge_config *m = &w->controller->setup.merge;
    const struct intent *i = intent_of(w, a);
    if (damage_hides(w, a)) return NULL;
    if (a->end_reason) return a->end_reason;
    if (!i) return NULL;
    if (a->unwanted) return "the plan wants fewer";
    if (a->noticed) return "the provider takes it away";
    if (i->drain_us) return "drained";
    if (a->sup.state == SUP_ENDED) return "its agent has ended";
    if (has_twin(w, a)) return "a second one of the same intent";
    if (a->late) return "made after its intent was over";
    if (!i->made_us && controller_now_us(w) - i->wanted_us >= m->boot_us)
        return "its create call was not confirmed within the boot deadline";
    int64_t deadline_us = i->registered_us ? m->silent_us : m->boot_us;
    return silence_us(w, a) >= deadline_us - SLACK_US ? "silent for too long" : NULL;
}

void reasons_removal(struct world *w, struct agent *a)
{
    keep_wishes(w);
    a->end_reason = removal_reason(w, a);
    history_instance_ended(&w->history, a->id, a->end_reason, w->time.now_us);
    check_history(w);
}

/* Judges an end that is written but not carried out: the controller may have died before it made the call. */
static void ending(struct world *w, struct agent *a)
{
    if (!a->end_reason) reasons_removal(w, a);
}

void reasons_after_tick(struct world *w)
{
    keep_wishes(w);
    for (uint32_t k = 0; k < w->agent_count; k++) {
        struct agent *a = w->agent[k];
        const struct intent *i = intent_of(w, a);
        if (!i || !cloud_runs(w, k)) continue;
        if (i->state == INTENT_ENDING) ending(w, a);
        if (i->state != INTENT_ENDED || a->late) continue;
        /* A repeated create was refused, while an earlier one had gone through unseen. */
        a->late = i->made_us == 0;
        if (!a->late) history_instance_ended(&w->history, a->id, NULL, w->time.now_us);
    }
    check_history(w);
}

/* A create call may go through so late that its intent is already unknown or ending. */
bool reasons_is_late(const struct world *w, const struct agent *a)
{
    const struct intent *i = intent_of(w, a);
    return !i || i->state >= INTENT_ENDING;
}

void reasons_self_end(struct world *w, struct agent *a)
{
    const char *why = a->sup.why;
    bool forsaken = strcmp(why, sup_event_text(SUP_FORSAKEN)) == 0;
    if (forsaken && w->time.now_us - a->told_us < SIM_GRACE_US + SIM_LEASE_MS * MS) why = NULL;
    bool told = strcmp(a->sup.why, sup_event_text(SUP_WANT_DOWN)) == 0;
    if (told) why = a->end_reason;
    history_instance_ended(&w->history, a->id, why, w->time.now_us);
    check_history(w);
}
