/* margins.c - prints what each scaling policy costs at 99 % attainment, at the margin that is best in
 * each world, and what the default costs at a margin of 1.
 *
 *     bench_margins SCALE SECONDS START WORLDS RUNS LEAD[,LEAD...] ROW[,ROW...]
 *
 * The load is the first SECONDS of Azure's conversation trace superposed SCALE times, on A100s at $3.43
 * an hour; every policy begins with START of them. WORLDS is a number of worlds or a list, such as 1,5.
 * Each lead and world has a line: the default, then for each policy the cheapest of RUNS points that
 * keeps the SLO, of more points where one between them could cost less than the default. At the end
 * stands each policy's mean cost over the default's, with its interval, or that none of its points kept
 * the SLO.
 */
#include "simulator/stats.h"
#include "tests/sim_gates/margin.h"

#include <stdio.h>
#include <stdlib.h>

#define WORLDS_MAX 32
#define ROWS_MAX 32

struct table {
    const struct margin_bed *bed;
    double lead_s;
    uint32_t runs;
    uint32_t worlds;
    uint64_t seed[WORLDS_MAX];
    uint32_t rows;
    const struct scale_policy *policy[ROWS_MAX];
    double ratio[ROWS_MAX]
                [WORLDS_MAX]; /* cost over that of ours, in worlds where it kept the SLO */
    uint32_t kept[ROWS_MAX];
    bool still_known[WORLDS_MAX]; /* `static` is known there: the same at every lead */
    struct margin_point still[WORLDS_MAX];
};

static void print(const char *name, const struct margin_point *p)
{
    printf("  %s %.3f instances at %.2f %%", name, p->instances, 100 * p->attainment);
    if (p->margin < 1 || p->margin > 1) printf(" (margin %.3f)", p->margin);
}

/* Finds the cheapest point of policy i that keeps the SLO in world w; returns false when none does. */
static bool cheapest(struct table *t, uint32_t i, uint32_t w, double rival,
                     struct margin_point *ret)
{
    bool still = t->policy[i] == scale_find(STR("static"));
    if (still && t->still_known[w]) {
        *ret = t->still[w];
        return true;
    }
    if (!margin_cheapest(t->bed, t->policy[i], t->lead_s, t->seed[w], t->runs, rival, ret))
        return false;
    if (still) {
        t->still[w] = *ret;
        t->still_known[w] = true;
    }
    return true;
}

static void one_world(struct table *t, uint32_t w, struct margin_point *ret_ours)
{
    const struct scale_policy *ours = scale_find(STR(SCALE_DEFAULT));
    *ret_ours = margin_at(t->bed, ours, t->lead_s, t->seed[w], 1);
    printf("lead %.0f s, world %2llu:", t->lead_s, (unsigned long long)t->seed[w]);
    print(ours->name, ret_ours);
    for (uint32_t i = 0; i < t->rows; i++) {
        struct margin_point p;
        if (cheapest(t, i, w, ret_ours->cost, &p)) {
            print(t->policy[i]->name, &p);
            t->ratio[i][t->kept[i]++] = p.cost / ret_ours->cost;
        } else {
            printf("  %s never", t->policy[i]->name);
        }
        fflush(stdout);
    }
    printf("\n");
}

static void all_worlds(struct table *t)
{
    uint32_t kept = 0;
    double instances = 0;
    for (uint32_t i = 0; i < t->rows; i++)
        t->kept[i] = 0;
    for (uint32_t w = 0; w < t->worlds; w++) {
        struct margin_point ours;
        one_world(t, w, &ours);
        kept += ours.attainment >= MARGIN_ATTAINMENT;
        instances += ours.instances / t->worlds;
    }
    printf("lead %.0f s: ours kept the SLO in %u of %u worlds, %.3f instances\n", t->lead_s, kept,
           t->worlds, instances);
    for (uint32_t i = 0; i < t->rows; i++) {
        struct stats_mean v = stats_mean(t->ratio[i], t->kept[i]);
        printf("  %-18s ", t->policy[i]->name);
        if (t->kept[i] > 0) printf("%.3f", v.mean);
        if (t->kept[i] > 1) printf(" +- %.3f", v.half);
        printf(t->kept[i] > 0 ? " of our cost, in %u of %u worlds\n"
                              : "keeps the SLO in %u of %u worlds\n",
               t->kept[i], t->worlds);
    }
    fflush(stdout);
}

static int read_worlds(struct table *t, const char *text)
{
    struct str rest = str_from(text);
    double v;
    bool list = strchr(text, ',') != NULL;
    while (rest.len > 0 && t->worlds < WORLDS_MAX) {
        if (str_to_f64(str_cut(&rest, ','), &v) < 0 || v < 1) return -1;
        t->seed[t->worlds++] = (uint64_t)v;
    }
    if (list) return 0;
    t->worlds = v < WORLDS_MAX ? (uint32_t)v : WORLDS_MAX;
    for (uint32_t w = 0; w < t->worlds; w++)
        t->seed[w] = w + 1;
    return 0;
}

static int read_rows(struct table *t, const char *text)
{
    struct str rest = str_from(text);
    while (rest.len > 0 && t->rows < ROWS_MAX) {
        t->policy[t->rows] = scale_find(str_cut(&rest, ','));
        if (t->policy[t->rows++] == NULL) return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct table t;
    if (argc != 8 || read_worlds(&t, argv[4]) < 0 || read_rows(&t, argv[7]) < 0) {
        fprintf(stderr, "usage: bench_margins SCALE SECONDS START WORLDS RUNS LEAD[,LEAD...] "
                        "ROW[,ROW...]\n");
        return 2;
    }
    char command[256];
    unsigned scale = (unsigned)strtoul(argv[1], NULL, 10);
    snprintf(command, sizeof command,
             "--trace azure-2023-conv.csv --fleet 1-%u-%uxa100@3.43 --scale %u "
             "--scale-policy " SCALE_DEFAULT " --drain 60s",
             (unsigned)strtoul(argv[3], NULL, 10), scale * 5, scale);
    struct margin_bed bed = margin_open(command, strtod(argv[2], NULL));
    t.bed = &bed;
    t.runs = (uint32_t)strtoul(argv[5], NULL, 10);
    struct str leads = str_from(argv[6]);
    while (leads.len > 0) {
        if (str_to_f64(str_cut(&leads, ','), &t.lead_s) < 0) return 2;
        all_worlds(&t);
    }
    margin_close(&bed);
    return 0;
}
