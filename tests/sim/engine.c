/* engine.c - works through an engine's queue, turn by turn. */
#include "tests/sim/engine.h"

#include "base/core/bits.h"
#include "tests/sim/world.h"

#define LOOK_US SECOND

uint32_t engine_running(const struct engine *e)
{
    return min_u32(e->count, ENGINE_SEQS_MAX);
}

static void turn_ends(struct world *w, const struct event *ev);

/* Returns the first running sequence that still has a prompt: it is prefilled alone. UINT32_MAX: all running
 * sequences decode together. */
static uint32_t prefill_at(const struct engine *e)
{
    for (uint32_t i = 0; i < engine_running(e); i++)
        if (e->seq[i].prompt_left > 0) return i;
    return UINT32_MAX;
}

static uint32_t stretch(const struct engine *e)
{
    uint32_t tokens = ENGINE_STRETCH_MAX;
    for (uint32_t i = 0; i < engine_running(e); i++)
        tokens = min_u32(tokens, e->seq[i].output_left);
    return max_u32(tokens, 1);
}

static void begin_turn(struct world *w, struct engine *e)
{
    if (e->turning || e->count == 0 || e->phase != ENGINE_SERVING || e->stuck) return;
    uint32_t at = prefill_at(e);
    double seconds;
    if (at != UINT32_MAX) {
        seconds = perf_prefill_s(&e->hidden, e->seq[at].prompt_left);
    } else {
        struct perf_shape shape = { .decoding_seqs = engine_running(e) };
        seconds = perf_step_s(&e->hidden, &shape) * stretch(e);
    }
    e->turning = true;
    pulse_step(&e->pulse, w->time.now_us, seconds);
    timeline_at(&w->time, w->time.now_us + (int64_t)(seconds * 1e6), turn_ends, e, e->life);
}

static void drop(struct engine *e, uint32_t at)
{
    e->count--;
    memmove(&e->seq[at], &e->seq[at + 1], (e->count - at) * sizeof e->seq[0]);
}

static void produce(struct world *w, struct engine *e)
{
    uint32_t at = prefill_at(e), tokens = stretch(e);
    if (at != UINT32_MAX) {
        struct seq *s = &e->seq[at];
        s->prompt_left = 0;
        s->output_left--;
        struct seq copy = *s;
        if (copy.output_left == 0) drop(e, at);
        agent_engine_out(w, e, &copy, copy.output_left ? ENGINE_TOKENS : ENGINE_FINISH, 1);
        return;
    }
    uint32_t running = engine_running(e);
    for (uint32_t i = 0; running > 0; running--) {
        struct seq *s = &e->seq[i];
        s->output_left -= tokens;
        struct seq copy = *s;
        if (copy.output_left == 0)
            drop(e, i);
        else
            i++;
        agent_engine_out(w, e, &copy, copy.output_left ? ENGINE_TOKENS : ENGINE_FINISH, tokens);
    }
}

static void end_if_closed(struct world *w, struct engine *e)
{
    if (e->closing && e->count == 0) engine_die(w, e);
}

static void turn_ends(struct world *w, const struct event *ev)
{
    struct engine *e = ev->who;
    if (ev->what != e->life) return;
    e->turning = false;
    if (e->phase != ENGINE_SERVING || e->stuck) return; /* the turn is repeated when it wakes */
    e->turns++;
    if (e->count > 0) produce(w, e);
    if (e->count > 0)
        pulse_turn(&e->pulse, w->time.now_us);
    else
        pulse_idle(&e->pulse);
    end_if_closed(w, e);
    begin_turn(w, e);
}

/* Breaks all streams; their routers continue the requests elsewhere. */
static void cut_streams(struct world *w, struct engine *e)
{
    while (e->count > 0) {
        struct seq s = e->seq[--e->count];
        agent_engine_out(w, e, &s, ENGINE_DIED, 0);
    }
}

/* Looks at the device each second, as on_turn() of engine/serve/http_api.c does. */
static void look(struct world *w, const struct event *ev)
{
    struct engine *e = ev->who;
    if (ev->what != e->life) return;
    timeline_at(&w->time, w->time.now_us + LOOK_US, look, e, e->life);
    if (e->phase != ENGINE_SERVING) return;
    bool blind = w->mutant == MUTANT_STALLED || !w->continues; /* other kinds have no pulse */
    bool stalled = pulse_stalled_us(&e->pulse, e->woke_us, w->time.now_us) > 0 && !blind;
    if (stalled && !e->failing) cut_streams(w, e);
    e->failing = stalled;
    if (!stalled) agent_engine_beats(w, e);
    end_if_closed(w, e);
}

static void boot_ends(struct world *w, const struct event *ev)
{
    struct engine *e = ev->who;
    if (ev->what != e->life || e->phase != ENGINE_BOOTING) return;
    e->phase = ENGINE_SERVING;
    look(w, ev);
}

static void boot_fails(struct world *w, const struct event *ev)
{
    struct engine *e = ev->who;
    if (ev->what == e->life) engine_die(w, e);
}

void engine_start(struct world *w, struct engine *e, int64_t boot_us, bool fails)
{
    e->life++;
    e->phase = ENGINE_BOOTING;
    e->closing = e->turning = e->stuck = e->failing = false;
    e->pulse = (struct pulse){ 0 };
    e->turns = 0;
    timeline_at(&w->time, w->time.now_us + boot_us, fails ? boot_fails : boot_ends, e, e->life);
}

void engine_die(struct world *w, struct engine *e)
{
    if (e->phase == ENGINE_OFF) return;
    e->phase = ENGINE_OFF;
    e->life++;
    e->turning = false;
    cut_streams(w, e);
    agent_engine_exited(w, e);
}

void engine_close(struct world *w, struct engine *e)
{
    if (e->phase == ENGINE_BOOTING) {
        engine_die(w, e);
        return;
    }
    e->closing = true;
    end_if_closed(w, e);
}

static void hang_ends(struct world *w, const struct event *ev)
{
    struct engine *e = ev->who;
    if (ev->what != e->life || e->phase != ENGINE_HUNG) return;
    e->phase = ENGINE_SERVING;
    e->woke_us = w->time.now_us;
    end_if_closed(w, e);
    begin_turn(w, e);
}

static void moves_again(struct world *w, const struct event *ev)
{
    struct engine *e = ev->who;
    if (ev->what != e->life || !e->stuck) return;
    e->stuck = false;
    e->woke_us = w->time.now_us;
    if (e->count == 0) pulse_idle(&e->pulse);
    begin_turn(w, e);
}

void engine_stick(struct world *w, struct engine *e, int64_t for_us)
{
    if (e->phase != ENGINE_SERVING || e->stuck) return;
    timeline_note(&w->time, "stuck", w->name, for_us);
    e->stuck = true;
    timeline_at(&w->time, w->time.now_us + for_us, moves_again, e, e->life);
}

void engine_hang(struct world *w, struct engine *e, int64_t for_us)
{
    if (e->phase != ENGINE_SERVING) return;
    e->phase = ENGINE_HUNG;
    timeline_at(&w->time, w->time.now_us + for_us, hang_ends, e, e->life);
}

enum engine_answer engine_submit(struct world *w, struct engine *e, const struct seq *s)
{
    if (e->phase == ENGINE_OFF || e->phase == ENGINE_BOOTING) return ENGINE_UNREACHABLE;
    if (e->closing || e->failing || e->count == ENGINE_QUEUE_MAX) return ENGINE_BUSY;
    e->seq[e->count++] = *s;
    pulse_work(&e->pulse, w->time.now_us);
    begin_turn(w, e);
    return ENGINE_TAKEN;
}

void engine_cancel(struct world *w, struct engine *e, const struct request *r, uint32_t attempt)
{
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->seq[i].request != r || e->seq[i].attempt != attempt) continue;
        drop(e, i);
        if (e->count == 0 && !e->turning && !e->stuck) pulse_idle(&e->pulse);
        end_if_closed(w, e);
        return;
    }
}
