/* engine.h - an engine as a queue in time: one prefill or one stretch of decoding at a turn.
 *
 * Layer: tests/sim
 * Model: sequential prefill, then all running sequences decode together; a turn takes what
 *        perf_step_s says with the instance's hidden coefficients. Its loop looks at the device each
 *        second (engine/serve/pace.h) and beats the streams while it is well. It knows nothing of agents or
 *        routers: what happens comes out through engine_out.
 */
#pragma once
#include "base/perf/perf.h"
#include "engine/serve/pace.h"
#include "tests/sim/timeline.h"

#define ENGINE_SEQS_MAX 16    /* decoding at once */
#define ENGINE_QUEUE_MAX 48   /* running and waiting: beyond it, 503 */
#define ENGINE_STRETCH_MAX 16 /* tokens a turn */

enum engine_phase { ENGINE_OFF, ENGINE_BOOTING, ENGINE_SERVING, ENGINE_HUNG };

struct request;

struct seq {
    struct request *request;
    uint32_t attempt;
    uint32_t prompt_left, output_left; /* tokens */
};

struct engine {
    enum engine_phase phase;
    bool closing;  /* told to end: refuses new work, ends once empty */
    uint64_t life; /* grows with every start and death: events of an older life are dropped */
    uint64_t turns;
    bool turning;
    int64_t woke_us; /* when its last hang was over */
    bool stuck;      /* its device makes no step; its loop goes on */
    bool failing;    /* and says so */
    struct pulse pulse;
    struct perf_coef hidden;
    struct seq seq[ENGINE_QUEUE_MAX]; /* in order of arrival */
    uint32_t count;
    void *owner;
};

enum engine_out {
    ENGINE_HEAD,   /* taken: the head of the reply */
    ENGINE_TOKENS, /* `count` more for this sequence */
    ENGINE_FINISH, /* its last tokens */
    ENGINE_DIED,   /* the connection broke */
};
typedef void (*engine_out_fn)(struct world *w, struct engine *e, const struct seq *s,
                              enum engine_out out, uint32_t count);

enum engine_answer { ENGINE_TAKEN, ENGINE_UNREACHABLE, ENGINE_BUSY };

void engine_start(struct world *w, struct engine *e, int64_t boot_us, bool fails);
void engine_die(struct world *w, struct engine *e); /* crash, kill, power cut */
void engine_close(struct world *w, struct engine *e);
/* The device alone: the loop answers on. */
void engine_stick(struct world *w, struct engine *e, int64_t for_us);
void engine_hang(struct world *w, struct engine *e, int64_t for_us);
enum engine_answer engine_submit(struct world *w, struct engine *e, const struct seq *s);
void engine_cancel(struct world *w, struct engine *e, const struct request *r, uint32_t attempt);
uint32_t engine_running(const struct engine *e);
