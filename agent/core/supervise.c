/* supervise.c - holds the supervisor's table and finds the events that time brings.
 *
 * Events of the shell may come in any state (a wish can arrive late), so each has a cell in each state.
 * sup_tick looks for its events only in states where they mean something; the other cells are
 * impossible and say so. */
#include "agent/core/supervise.h"

#include "base/core/err.h"

static const char *const state_names[SUP_STATE_COUNT] = {
    [SUP_DOWN] = "down",         [SUP_STARTING] = "starting", [SUP_UP] = "ready",
    [SUP_DRAINING] = "draining", [SUP_CURING] = "curing",     [SUP_BACK_OFF] = "back_off",
    [SUP_STOPPING] = "stopping", [SUP_ENDED] = "ended",
};

static const char *const event_names[SUP_EVENT_COUNT] = {
    [SUP_WANT_UP] = "an engine is wanted",
    [SUP_WANT_DOWN] = "told to end",
    [SUP_DRAIN] = "told to drain",
    [SUP_KEEP] = "told to stay after all",
    [SUP_EXITED] = "the engine's process ended",
    [SUP_FAULT] = "a fault of its GPU",
    [SUP_READY] = "the engine is ready",
    [SUP_SICK] = "the engine does not answer",
    [SUP_EMPTY] = "nothing is in flight any more",
    [SUP_DRAIN_LATE] = "the drain took too long",
    [SUP_STOP_LATE] = "the engine did not stop when told",
    [SUP_RETRY] = "the back-off is over",
    [SUP_HOPELESS] = "too many failures in a row",
    [SUP_STABLE] = "up for long enough",
    [SUP_FORSAKEN] = "no lease and nothing to serve",
    [SUP_AGED] = "over its age limit and nothing to serve",
};

// clang-format off
#define GO(next_state, bits) { true, SUP_##next_state, (bits) }
#define STAY(state)          { true, SUP_##state, 0 }
#define NEVER                { false, SUP_DOWN, 0 }
#define SPAWN   SUP_ACT_SPAWN
#define TERM    SUP_ACT_TERM
#define KILL    SUP_ACT_KILL
#define REPORT  SUP_ACT_REPORT
#define END     SUP_ACT_END
#define WAIT    SUP_ACT_WAIT
#define FORGIVE SUP_ACT_FORGIVE

static const struct sup_cell table[SUP_STATE_COUNT][SUP_EVENT_COUNT] = {
    [SUP_DOWN] = {
        [SUP_WANT_UP]    = GO(STARTING, SPAWN | REPORT),
        [SUP_WANT_DOWN]  = GO(ENDED, END | REPORT),
        [SUP_DRAIN]      = GO(ENDED, END | REPORT),
        [SUP_KEEP]       = STAY(DOWN),
        [SUP_EXITED]     = STAY(DOWN),
        [SUP_FAULT]      = STAY(DOWN),
        [SUP_READY]      = NEVER, [SUP_SICK]      = NEVER, [SUP_EMPTY]    = NEVER,
        [SUP_DRAIN_LATE] = NEVER, [SUP_STOP_LATE] = NEVER, [SUP_RETRY]    = NEVER,
        [SUP_HOPELESS]   = NEVER, [SUP_STABLE]    = NEVER,
        [SUP_FORSAKEN]   = GO(ENDED, END | REPORT),
        [SUP_AGED]       = GO(ENDED, END | REPORT),
    },
    [SUP_STARTING] = {
        [SUP_WANT_UP]    = STAY(STARTING),
        [SUP_WANT_DOWN]  = GO(STOPPING, TERM | REPORT),
        [SUP_DRAIN]      = GO(STOPPING, TERM | REPORT), /* it serves nothing yet */
        [SUP_KEEP]       = STAY(STARTING),
        [SUP_EXITED]     = GO(BACK_OFF, WAIT | REPORT),
        [SUP_FAULT]      = GO(CURING, KILL | REPORT),
        [SUP_READY]      = GO(UP, REPORT),
        [SUP_SICK]       = GO(CURING, KILL | REPORT),
        [SUP_EMPTY]      = NEVER, [SUP_DRAIN_LATE] = NEVER, [SUP_STOP_LATE] = NEVER,
        [SUP_RETRY]      = NEVER, [SUP_HOPELESS]   = NEVER, [SUP_STABLE]    = NEVER,
        [SUP_FORSAKEN]   = GO(STOPPING, TERM | REPORT),
        [SUP_AGED]       = GO(STOPPING, TERM | REPORT),
    },
    [SUP_UP] = {
        [SUP_WANT_UP]    = STAY(UP),
        [SUP_WANT_DOWN]  = GO(STOPPING, TERM | REPORT),
        [SUP_DRAIN]      = GO(DRAINING, REPORT),
        [SUP_KEEP]       = STAY(UP),
        [SUP_EXITED]     = GO(BACK_OFF, WAIT | REPORT),
        [SUP_FAULT]      = GO(CURING, KILL | REPORT),
        [SUP_READY]      = NEVER,
        [SUP_SICK]       = GO(CURING, KILL | REPORT),
        [SUP_EMPTY]      = NEVER, [SUP_DRAIN_LATE] = NEVER, [SUP_STOP_LATE] = NEVER,
        [SUP_RETRY]      = NEVER, [SUP_HOPELESS]   = NEVER,
        [SUP_STABLE]     = GO(UP, FORGIVE),
        [SUP_FORSAKEN]   = GO(STOPPING, TERM | REPORT),
        [SUP_AGED]       = GO(STOPPING, TERM | REPORT),
    },
    [SUP_DRAINING] = {
        [SUP_WANT_UP]    = STAY(DRAINING),
        [SUP_WANT_DOWN]  = GO(STOPPING, TERM | REPORT),
        [SUP_DRAIN]      = STAY(DRAINING),
        [SUP_KEEP]       = GO(UP, REPORT),
        [SUP_EXITED]     = GO(ENDED, END | REPORT), /* it was to end anyway: no restart */
        [SUP_FAULT]      = GO(STOPPING, KILL | REPORT),
        [SUP_READY]      = NEVER,
        [SUP_SICK]       = GO(STOPPING, KILL | REPORT),
        [SUP_EMPTY]      = GO(STOPPING, TERM | REPORT),
        [SUP_DRAIN_LATE] = GO(STOPPING, TERM | REPORT),
        [SUP_STOP_LATE]  = NEVER, [SUP_RETRY]  = NEVER, [SUP_HOPELESS] = NEVER,
        [SUP_STABLE]     = NEVER,
        [SUP_FORSAKEN]   = GO(STOPPING, TERM | REPORT),
        [SUP_AGED]       = GO(STOPPING, TERM | REPORT),
    },
    [SUP_CURING] = {
        [SUP_WANT_UP]    = STAY(CURING),
        [SUP_WANT_DOWN]  = GO(STOPPING, KILL | REPORT),
        [SUP_DRAIN]      = GO(STOPPING, KILL | REPORT),
        [SUP_KEEP]       = STAY(CURING),
        [SUP_EXITED]     = GO(BACK_OFF, WAIT | REPORT),
        [SUP_FAULT]      = STAY(CURING),
        [SUP_READY]      = NEVER, [SUP_SICK]     = NEVER, [SUP_EMPTY]  = NEVER,
        [SUP_DRAIN_LATE] = NEVER,
        [SUP_STOP_LATE]  = GO(CURING, KILL),
        [SUP_RETRY]      = NEVER, [SUP_HOPELESS] = NEVER, [SUP_STABLE] = NEVER,
        [SUP_FORSAKEN]   = NEVER, [SUP_AGED]     = NEVER,
    },
    [SUP_BACK_OFF] = {
        [SUP_WANT_UP]    = STAY(BACK_OFF),
        [SUP_WANT_DOWN]  = GO(ENDED, END | REPORT),
        [SUP_DRAIN]      = GO(ENDED, END | REPORT),
        [SUP_KEEP]       = STAY(BACK_OFF),
        [SUP_EXITED]     = STAY(BACK_OFF),
        [SUP_FAULT]      = STAY(BACK_OFF),
        [SUP_READY]      = NEVER, [SUP_SICK]      = NEVER, [SUP_EMPTY] = NEVER,
        [SUP_DRAIN_LATE] = NEVER, [SUP_STOP_LATE] = NEVER,
        [SUP_RETRY]      = GO(STARTING, SPAWN | REPORT),
        [SUP_HOPELESS]   = GO(ENDED, END | REPORT),
        [SUP_STABLE]     = NEVER,
        [SUP_FORSAKEN]   = GO(ENDED, END | REPORT),
        [SUP_AGED]       = GO(ENDED, END | REPORT),
    },
    [SUP_STOPPING] = {
        [SUP_WANT_UP]    = STAY(STOPPING),
        [SUP_WANT_DOWN]  = STAY(STOPPING),
        [SUP_DRAIN]      = STAY(STOPPING),
        [SUP_KEEP]       = STAY(STOPPING), /* too late: the engine refuses work by now */
        [SUP_EXITED]     = GO(ENDED, END | REPORT),
        [SUP_FAULT]      = STAY(STOPPING),
        [SUP_READY]      = NEVER, [SUP_SICK]     = NEVER, [SUP_EMPTY]  = NEVER,
        [SUP_DRAIN_LATE] = NEVER,
        [SUP_STOP_LATE]  = GO(STOPPING, KILL),
        [SUP_RETRY]      = NEVER, [SUP_HOPELESS] = NEVER, [SUP_STABLE] = NEVER,
        [SUP_FORSAKEN]   = NEVER, [SUP_AGED]     = NEVER,
    },
    [SUP_ENDED] = {
        [SUP_WANT_UP]    = STAY(ENDED), [SUP_WANT_DOWN] = STAY(ENDED),
        [SUP_DRAIN]      = STAY(ENDED), [SUP_KEEP]      = STAY(ENDED),
        [SUP_EXITED]     = STAY(ENDED),
        [SUP_FAULT]      = STAY(ENDED),
        [SUP_READY]      = NEVER, [SUP_SICK]      = NEVER, [SUP_EMPTY]  = NEVER,
        [SUP_DRAIN_LATE] = NEVER, [SUP_STOP_LATE] = NEVER, [SUP_RETRY]  = NEVER,
        [SUP_HOPELESS]   = NEVER, [SUP_STABLE]    = NEVER,
        [SUP_FORSAKEN]   = NEVER, [SUP_AGED]      = NEVER,
    },
};
// clang-format on

const char *sup_state_text(enum sup_state s)
{
    return s < SUP_STATE_COUNT ? state_names[s] : "unknown";
}

const char *sup_event_text(enum sup_event e)
{
    return e < SUP_EVENT_COUNT ? event_names[e] : "unknown";
}

struct sup_cell sup_cell(enum sup_state s, enum sup_event e)
{
    must(s < SUP_STATE_COUNT && e < SUP_EVENT_COUNT);
    return table[s][e];
}

static void begin_back_off(struct sup *s, const struct sup_config *config, int64_t now_us)
{
    int64_t wait = config->back_off_min_us;
    for (uint32_t i = 0; i < s->failures && wait < config->back_off_max_us; i++)
        wait *= 2;
    if (wait > config->back_off_max_us) wait = config->back_off_max_us;
    s->retry_us = now_us + wait;
    s->failures++;
}

enum agent_state sup_reported(enum sup_state s)
{
    static const enum agent_state states[SUP_STATE_COUNT] = {
        [SUP_DOWN] = AGENT_DOWN,
        [SUP_STARTING] = AGENT_STARTING,
        [SUP_UP] = AGENT_UP,
        [SUP_DRAINING] = AGENT_DRAINING,
        [SUP_CURING] = AGENT_WAITING,
        [SUP_BACK_OFF] = AGENT_WAITING,
        [SUP_STOPPING] = AGENT_DRAINING,
        [SUP_ENDED] = AGENT_STOPPED,
    };
    return states[s];
}

uint32_t sup_feed(struct sup *s, const struct sup_config *config, enum sup_event e, int64_t now_us)
{
    struct sup_cell cell = sup_cell(s->state, e);
    must(cell.possible);
    if (cell.actions & SUP_ACT_WAIT) begin_back_off(s, config, now_us);
    if (cell.actions & SUP_ACT_FORGIVE) s->failures = 0;
    if (cell.actions & SUP_ACT_SPAWN) {
        s->engines++;
        s->stable = false;
    }
    if (e == SUP_STABLE) s->stable = true;
    /* When a signal is sent again, its wait begins again. */
    if (cell.next != s->state || e == SUP_STOP_LATE) s->since_us = now_us;
    if (cell.next != s->state) {
        s->state = cell.next;
        s->why = event_names[e];
        s->idle_us = 0; /* idleness seen in another state proves nothing here */
    }
    return cell.actions & ~(uint32_t)(SUP_ACT_WAIT | SUP_ACT_FORGIVE);
}

void sup_adopt(struct sup *s, int64_t now_us)
{
    *s = (struct sup){ .state = SUP_STARTING, .since_us = now_us, .engines = 1, .why = "adopted" };
}

/* Takes a gap before a late tick off the engine's account. The engine may have replied at any moment of
 * the gap, so its silence and its idleness begin anew. The deadline of the state moves by the gap,
 * because nothing asked whether the engine was ready, empty or gone. Lease, age and back-off go on. */
static void forgive_own_lateness(struct sup *s, const struct sup_config *c, int64_t now_us)
{
    int64_t gap = s->looked_us ? now_us - s->looked_us : 0;
    s->looked_us = now_us;
    if (c->late_us <= 0 || gap <= c->late_us) return;
    int64_t from = now_us - gap > s->since_us ? now_us - gap : s->since_us;
    s->since_us += now_us - from;
    s->awake_us = now_us;
    s->idle_us = 0;
    s->lates++;
}

/* Updates since when the engine is idle. Without a process nothing can be in flight; with one, only a
 * known load counts. */
static void watch_idle(struct sup *s, const struct sup_view *v)
{
    bool no_process = s->state == SUP_DOWN || s->state == SUP_BACK_OFF;
    bool never_served = s->state == SUP_STARTING;
    bool idle = no_process || never_served || (v->load_known && v->in_flight == 0);
    if (!idle)
        s->idle_us = 0;
    else if (s->idle_us == 0)
        s->idle_us = v->now_us;
}

static bool idle_for(const struct sup *s, const struct sup_view *v, int64_t us)
{
    return s->idle_us != 0 && v->now_us - s->idle_us >= us;
}

static bool in_state_for(const struct sup *s, const struct sup_view *v, int64_t us)
{
    return v->now_us - s->since_us >= us;
}

static bool is_sick(const struct sup *s, const struct sup_config *c, const struct sup_view *v)
{
    int64_t seen = v->healthy_us > s->since_us ? v->healthy_us : s->since_us;
    if (s->awake_us > seen) seen = s->awake_us;
    return v->now_us - seen >= c->sick_us;
}

/* Returns the event that time brings in this state, or SUP_EVENT_COUNT. */
static enum sup_event state_event(const struct sup *s, const struct sup_config *c,
                                  const struct sup_view *v)
{
    switch (s->state) {
    case SUP_STARTING:
        if (v->healthy_us > 0) return SUP_READY;
        if (in_state_for(s, v, c->start_us)) return SUP_SICK;
        break;
    case SUP_UP:
        if (is_sick(s, c, v)) return SUP_SICK;
        if (!s->stable && in_state_for(s, v, c->stable_us)) return SUP_STABLE;
        break;
    case SUP_DRAINING:
        if (is_sick(s, c, v)) return SUP_SICK;
        if (idle_for(s, v, c->settle_us)) return SUP_EMPTY;
        if (in_state_for(s, v, c->drain_us)) return SUP_DRAIN_LATE;
        if (v->leaves_us && v->now_us >= v->leaves_us - c->leave_us) return SUP_DRAIN_LATE;
        break;
    case SUP_CURING:
    case SUP_STOPPING:
        if (in_state_for(s, v, c->stop_us)) return SUP_STOP_LATE;
        break;
    case SUP_BACK_OFF:
        if (s->failures >= c->failures_max) return SUP_HOPELESS;
        if (v->now_us >= s->retry_us) return SUP_RETRY;
        break;
    case SUP_DOWN:
    case SUP_ENDED:
    case SUP_STATE_COUNT:
        break;
    }
    return SUP_EVENT_COUNT;
}

/* Returns SUP_FORSAKEN or SUP_AGED when the instance is to end by itself, or SUP_EVENT_COUNT. */
static enum sup_event self_end_event(const struct sup *s, const struct sup_config *c,
                                     const struct sup_view *v)
{
    if (s->state == SUP_CURING || s->state == SUP_STOPPING || s->state == SUP_ENDED)
        return SUP_EVENT_COUNT;
    if (v->now_us - v->lease_until_us >= c->grace_us && idle_for(s, v, c->grace_us))
        return SUP_FORSAKEN;
    if (c->age_us > 0 && v->now_us - v->born_us >= c->age_us && idle_for(s, v, c->settle_us))
        return SUP_AGED;
    return SUP_EVENT_COUNT;
}

uint32_t sup_tick(struct sup *s, const struct sup_config *config, const struct sup_view *view)
{
    uint32_t actions = 0;
    forgive_own_lateness(s, config, view->now_us);
    watch_idle(s, view);
    enum sup_event own = self_end_event(s, config, view);
    if (own != SUP_EVENT_COUNT) return sup_feed(s, config, own, view->now_us);

    enum sup_event e = state_event(s, config, view);
    if (e != SUP_EVENT_COUNT) actions = sup_feed(s, config, e, view->now_us);
    return actions;
}
