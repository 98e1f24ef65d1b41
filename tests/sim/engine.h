/* engine.h - models an engine as a queue in time: a turn is one prefill or one stretch of decoding.
 *
 * Layer: tests/sim
 * Model: prompts are prefilled one after another, then all running sequences decode together; a turn takes
 *        the seconds of perf_step_s with the instance's hidden coefficients. The engine's loop looks at the
 *        device each second (engine/serve/pace.h) and sends heartbeats while it is well. The engine knows
 *        nothing of routers: it tells its agent (agent_engine_out, _beats, _exited) what happens.
 */
#pragma once
#include "base/perf/perf.h"
#include "engine/serve/pace.h"
#include "tests/sim/timeline.h"

#define ENGINE_SEQS_MAX 16    /* running at once */
#define ENGINE_QUEUE_MAX 48   /* running and waiting; beyond it, 503 */
#define ENGINE_STRETCH_MAX 16 /* tokens of each sequence in a decoding turn */

enum engine_phase { ENGINE_OFF, ENGINE_BOOTING, ENGINE_SERVING, ENGINE_HUNG };

struct request;

struct seq {
    struct request *request;
    uint32_t attempt;
    uint32_t prompt_left, output_left; /* tokens */
};

struct engine {
    enum engine_phase phase;
    bool closing;  /* it was told to end: it refuses new work and ends once empty */
    uint64_t life; /* grows with every start and death: events of an older life are dropped */
    uint64_t turns;
    bool turning;
    int64_t woke_us; /* when its process or device last went on after a hang */
    bool stuck;      /* its device makes no step; its loop goes on */
    bool failing;    /* its loop has seen the device stall and says so */
    struct pulse pulse;
    struct perf_coef hidden;
    struct seq seq[ENGINE_QUEUE_MAX]; /* in order of arrival */
    uint32_t count;
    void *owner;
};

enum engine_out {
    ENGINE_HEAD,   /* the request was taken: the head of the reply */
    ENGINE_TOKENS, /* `count` more tokens of this sequence */
    ENGINE_FINISH, /* its last `count` tokens */
    ENGINE_DIED,   /* the connection broke */
};

enum engine_answer { ENGINE_TAKEN, ENGINE_UNREACHABLE, ENGINE_BUSY };

void engine_start(struct world *w, struct engine *e, int64_t boot_us, bool fails);
void engine_die(struct world *w, struct engine *e); /* crash, kill, power cut */
void engine_close(struct world *w, struct engine *e);
/* Stalls the device alone, while the loop goes on; engine_hang stops the whole process. */
void engine_stick(struct world *w, struct engine *e, int64_t for_us);
void engine_hang(struct world *w, struct engine *e, int64_t for_us);
enum engine_answer engine_submit(struct world *w, struct engine *e, const struct seq *s);
void engine_cancel(struct world *w, struct engine *e, const struct request *r, uint32_t attempt);
uint32_t engine_running(const struct engine *e);
