/* margins.c - what each scaling row costs at 99 % attainment, over its margin curve, beside ours.
 *
 *     bench_margins SCALE SECONDS SEEDS RUNS LEAD[,LEAD...] [ROW,ROW...]
 *
 * Azure's conversation trace superposed SCALE times, of which the first SECONDS; A100s at $3.43 an
 * hour; every row begins with the smallest fleet that keeps the promise when it stays. For each lead
 * a table: ours with its margin of 1, then the cheapest of RUNS points that keeps the promise, of ours
 * and of each baseline, and its cost over that of ours at 1.
 */
#include "tests/sim_gates/margin.h"

#include <stdio.h>
#include <stdlib.h>

static void print(const char *name, const struct margin_point *p, double ours)
{
    printf("%-18s margin %8.4f  attainment %.4f  %7.3f instances  $%7.3f  %6.3f of ours\n", name,
           p->margin, p->attainment, p->instances, p->cost, p->cost / ours);
    fflush(stdout);
}

static bool is_asked(const char *rows, const char *name)
{
    struct str rest = str_from(rows ? rows : "");
    if (rest.len == 0) return true;
    while (rest.len > 0)
        if (str_eq(str_cut(&rest, ','), str_from(name))) return true;
    return false;
}

static void table(const struct margin_world *w, const struct margin_point *still, double lead_s,
                  uint32_t runs, const char *rows)
{
    const struct scale_policy *ours = scale_find(STR(SCALE_DEFAULT));
    struct margin_point own = margin_at(w, ours, lead_s, 1);
    printf("\nlead %.0f s, all begin with %u\n", lead_s, w->start);
    print(ours->name, &own, own.cost);
    struct margin_point tuned;
    if (margin_cheapest(w, ours, lead_s, runs, &tuned))
        print("work, its cheapest", &tuned, own.cost);
    print("static", still, own.cost);
    for (uint32_t i = 0; i < scale_count; i++) {
        const struct scale_policy *row = scale_table[i];
        struct margin_point p;
        if (row == ours || row == scale_find(STR("static")) || !is_asked(rows, row->name)) continue;
        if (margin_cheapest(w, row, lead_s, runs, &p))
            print(row->name, &p, own.cost);
        else
            printf("%-18s at none of its margins\n", row->name);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: bench_margins SCALE SECONDS SEEDS RUNS LEAD[,LEAD...] [ROW,...]\n");
        return 2;
    }
    gate_need_data();
    char command[256];
    unsigned scale = (unsigned)strtoul(argv[1], NULL, 10);
    snprintf(command, sizeof command,
             "--trace azure-2023-conv.csv --fleet 1-%u-%uxa100@3.43 --scale %u "
             "--scale-policy " SCALE_DEFAULT " --drain 60s",
             scale, scale * 5, scale);
    struct margin_world w =
        margin_open(command, strtod(argv[2], NULL), (uint32_t)strtoul(argv[3], NULL, 10));
    struct margin_point still = margin_best_static(&w);
    struct str leads = str_from(argv[5]);
    while (leads.len > 0) {
        double lead_s;
        if (str_to_f64(str_cut(&leads, ','), &lead_s) < 0) return 2;
        table(&w, &still, lead_s, (uint32_t)strtoul(argv[4], NULL, 10), argc > 6 ? argv[6] : NULL);
    }
    margin_close(&w);
    return 0;
}
