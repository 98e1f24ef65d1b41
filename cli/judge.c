/* judge.c - the record is walked once; regrets are kept for their quantiles. */
#include "cli/judge.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOTES 65536 /* decisions whose outcome may still come; older ones are forgotten */

struct note {
    uint64_t id; /* 0: empty */
    float scratch[ROUTE_SCRATCH];
};

struct series {
    double *value;
    size_t count, room;
};

struct judge {
    const struct route_policy *row;
    struct rng rng;
    struct series regret, recorded;
    double margin_sum_s;
    uint64_t margins;
    struct judgement out;
    struct record_reader reader;
    struct record_entry entry;
    uint64_t state[ROUTE_STATE_BYTES_MAX / 8];
    struct note note[NOTES];
};

static void judge_free(struct judge *j)
{
    if (!j) return;
    free(j->regret.value);
    free(j->recorded.value);
    free(j);
}
CLEANUP_FREEP(judge, struct judge)

static int keep(struct series *s, double value)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        double *more = realloc(s->value, room * sizeof *more);
        if (!more) return -ENOMEM;
        s->value = more;
        s->room = room;
    }
    s->value[s->count++] = value;
    return 0;
}

static const struct route_instance *find(const struct route_view *view, uint32_t id)
{
    for (uint32_t i = 0; i < view->instance_count; i++) {
        if (view->instance[i].id == id) return &view->instance[i];
    }
    return NULL;
}

/* The least predicted TTFT among those that take requests; < 0 when one's speed is unknown. */
static double least_s(const struct route_view *view, const struct route_req *req)
{
    double least = -1;
    for (uint32_t i = 0; i < view->instance_count; i++) {
        const struct route_instance *in = &view->instance[i];
        if (!route_takes(in)) continue;
        if (!in->has_perf) return -1;
        double ttft_s = route_ttft_s(in, req);
        if (least < 0 || ttft_s < least) least = ttft_s;
    }
    return least;
}

static int compare_choices(struct judge *j, const struct route_instance *mine,
                           const struct route_instance *theirs)
{
    const struct record_entry *e = &j->entry;
    j->out.prompt_tokens += e->req.prompt_tokens;
    j->out.hit_tokens += route_hit_tokens(mine, &e->req);
    j->out.hit_tokens_recorded += route_hit_tokens(theirs, &e->req);
    double least = least_s(&e->view, &e->req);
    if (least < 0) return 0;
    j->out.judged++;
    int rc = keep(&j->regret, route_ttft_s(mine, &e->req) - least);
    return rc < 0 ? rc : keep(&j->recorded, route_ttft_s(theirs, &e->req) - least);
}

/* How near the second choice came: a row whose margins are small chooses among equals. */
static void note_margin(struct judge *j)
{
    const struct route_verdict *v = &j->entry.verdict;
    if (v->runner_up_id == ROUTE_NONE || v->estimate_s < 0 || v->runner_up_s < 0) return;
    j->margin_sum_s += v->runner_up_s - v->estimate_s;
    j->margins++;
}

static int on_decision(struct judge *j)
{
    const struct record_entry *e = &j->entry;
    struct route_verdict v;
    j->row->decide(j->state, &e->view, &e->req, e->at_us, &j->rng, &v);
    const struct route_instance *theirs = find(&e->view, e->verdict.instance_id);
    if (!theirs || !route_takes(theirs)) return 0; /* held or refused then: nothing to compare */
    const struct route_instance *mine = find(&e->view, v.instance_id);
    note_margin(j);
    j->out.decisions++;
    j->out.refused += !mine;
    struct note *n = &j->note[e->id % NOTES];
    n->id = 0;
    if (mine == theirs) {
        j->out.agreed++;
        n->id = e->id;
        memcpy(n->scratch, v.scratch, sizeof n->scratch);
    }
    return mine ? compare_choices(j, mine, theirs) : 0;
}

static void on_event(struct judge *j)
{
    if (!j->row->observe) return;
    struct route_event ev = j->entry.event;
    const struct note *n = &j->note[j->entry.id % NOTES];
    memset(ev.scratch, 0, sizeof ev.scratch);
    if (n->id == j->entry.id) memcpy(ev.scratch, n->scratch, sizeof ev.scratch);
    j->row->observe(j->state, &ev);
}

static void on_row(struct judge *j)
{
    bool first = j->out.recorded[0] == '\0';
    bool same = strcmp(j->out.recorded, j->entry.row) == 0;
    const char *name = first || same ? j->entry.row : "several";
    memmove(j->out.recorded, name, strlen(name) + 1);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct judge_regret summary(struct series *s)
{
    struct judge_regret r = { .mean_s = (double)NAN, .p50_s = (double)NAN, .p99_s = (double)NAN };
    if (s->count == 0) return r;
    r.mean_s = 0;
    qsort(s->value, s->count, sizeof *s->value, by_value);
    for (size_t i = 0; i < s->count; i++)
        r.mean_s += s->value[i] / (double)s->count;
    r.p50_s = s->value[s->count / 2];
    r.p99_s = s->value[min_size((size_t)((double)s->count * 0.99), s->count - 1)];
    return r;
}

int judge_record(struct str file, const struct route_policy *row, uint64_t seed,
                 struct judgement *ret, struct err *err)
{
    CLEANUP(judge_freep) struct judge *j = calloc(1, sizeof *j);
    if (!j) return err_set(err, -ENOMEM, "no memory");
    j->row = row;
    rng_seed(&j->rng, seed);
    int rc = record_read_begin(&j->reader, file, err);
    if (rc < 0) return rc;
    while ((rc = record_read(&j->reader, &j->entry, err)) == 1) {
        int kept = 0;
        j->out.entries++;
        if (j->entry.kind == RECORD_ROW) on_row(j);
        if (j->entry.kind == RECORD_DECISION) kept = on_decision(j);
        if (j->entry.kind == RECORD_EVENT) on_event(j);
        if (kept < 0) return err_set(err, kept, "no memory");
    }
    if (rc < 0) return rc;
    j->out.torn = j->reader.torn;
    if (j->out.decisions == 0)
        return err_set(err, -ENODATA, "no request was placed in it%s",
                       j->out.torn ? ", and it ends within an entry" : "");
    j->out.margin_s = j->margins ? j->margin_sum_s / (double)j->margins : (double)NAN;
    j->out.regret = summary(&j->regret);
    j->out.regret_recorded = summary(&j->recorded);
    *ret = j->out;
    return 0;
}
