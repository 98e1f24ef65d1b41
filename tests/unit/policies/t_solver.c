/* t_solver.c - the exact solver: against GLPK on 200 random instances, against brute force, and its
 * own limits. The oracle is `glpsol` of the package glpk-utils; without it that part says so. */
#include "base/core/bits.h"
#include "base/core/rng.h"
#include "tests/unit/policies/place_cases.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INSTANCES 200

static struct solver memory;

/* The answer keeps what it says: every slice lies somewhere, no type is overfull. */
static void check_answer(const struct solver_problem *p, const struct solver_answer *r)
{
    double cost = 0;
    for (uint32_t t = 0; t < p->types; t++) {
        double load = 0;
        for (uint32_t g = 0; g < p->groups; g++)
            if (r->on[g][t]) load += r->on[g][t] * p->load[g][t];
        assert_true(load <= r->count[t] + 1e-6);
        assert_true(r->count[t] <= p->max[t]);
        cost += r->count[t] * p->price[t];
    }
    for (uint32_t g = 0; g < p->groups; g++) {
        uint32_t n = 0;
        for (uint32_t t = 0; t < p->types; t++)
            n += r->on[g][t];
        assert_int_equal(n, p->count[g]);
    }
    assert_true(fabs(cost - r->cost) < 1e-9);
    assert_true(r->bound <= r->cost + 1e-6);
}

static void check_single_types(const struct solver_problem *p, const struct solver_answer *r)
{
    for (uint32_t t = 0; t < p->types; t++) {
        double load = 0;
        for (uint32_t g = 0; g < p->groups; g++)
            load += p->count[g] * p->load[g][t];
        double need = ceil(load - 1e-9);
        if (need <= p->max[t]) assert_true(r->cost <= need * p->price[t] + 1e-9);
    }
}

static void write_lp(const struct solver_problem *p, const char *path)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("Minimize\n obj:", f);
    for (uint32_t t = 0; t < p->types; t++)
        fprintf(f, " + %.17g y%u", p->price[t], t);
    fputs("\nSubject To\n", f);
    for (uint32_t g = 0; g < p->groups; g++) {
        fprintf(f, " g%u:", g);
        for (uint32_t t = 0; t < p->types; t++)
            if (isfinite(p->load[g][t])) fprintf(f, " + x%u_%u", g, t);
        fprintf(f, " = %u\n", p->count[g]);
    }
    for (uint32_t t = 0; t < p->types; t++) {
        fprintf(f, " t%u:", t);
        for (uint32_t g = 0; g < p->groups; g++)
            if (isfinite(p->load[g][t])) fprintf(f, " + %.17g x%u_%u", p->load[g][t], g, t);
        fprintf(f, " - y%u <= 0\n", t);
    }
    fputs("Bounds\n", f);
    for (uint32_t t = 0; t < p->types; t++)
        fprintf(f, " 0 <= y%u <= %u\n", t, p->max[t]);
    fputs("General\n", f);
    for (uint32_t t = 0; t < p->types; t++)
        fprintf(f, " y%u\n", t);
    for (uint32_t g = 0; g < p->groups; g++)
        for (uint32_t t = 0; t < p->types; t++)
            if (isfinite(p->load[g][t])) fprintf(f, " x%u_%u\n", g, t);
    fputs("End\n", f);
    fclose(f);
}

/* The oracle's optimum; INFINITY when it says that there is no solution. */
static double glpk(const struct solver_problem *p, const char *dir)
{
    char lp[256], out[256], command[1024], line[512];
    snprintf(lp, sizeof lp, "%s/p.lp", dir);
    snprintf(out, sizeof out, "%s/p.out", dir);
    write_lp(p, lp);
    snprintf(command, sizeof command, "glpsol --lp %s --cuts -o %s >/dev/null 2>&1", lp, out);
    assert_int_equal(system(command), 0);
    FILE *f = fopen(out, "r");
    assert_non_null(f);
    double value = NAN;
    bool optimal = false, empty = false;
    while (fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "obj = ");
        if (strstr(line, "INTEGER OPTIMAL")) optimal = true;
        if (strstr(line, "INTEGER EMPTY") || strstr(line, "INTEGER UNDEFINED")) empty = true;
        if (at) value = strtod(at + 6, NULL);
    }
    fclose(f);
    unlink(lp);
    unlink(out);
    assert_true(optimal || empty);
    return optimal ? value : (double)INFINITY;
}

static void optimum_equals_glpk(void **state)
{
    (void)state;
    if (system("glpsol --version >/dev/null 2>&1") != 0) {
        print_message("skipped: no glpsol here (package glpk-utils)\n");
        skip();
    }
    char dir[] = "t_solver.XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct rng rng;
    rng_seed(&rng, 2026);
    uint32_t found = 0;
    for (uint32_t i = 0; i < INSTANCES; i++) {
        struct solver_problem p;
        struct solver_answer r;
        uint32_t types = 2 + i % 3, groups = 3 + (uint32_t)rng_below(&rng, 10);
        place_case_slices(&rng, types, groups, 1 + i % 4, 0.2 + rng_f64(&rng), &p);
        solver_run(&p, SOLVER_NODES_MAX, &memory, &r);
        assert_true(r.optimal);
        double truth = glpk(&p, dir);
        if (r.found != isfinite(truth) || (r.found && fabs(r.cost - truth) > 1e-5))
            print_message("instance %u: ours %d %.9g, oracle %.9g\n", i, r.found, r.cost, truth);
        assert_int_equal(r.found, isfinite(truth));
        if (!r.found) continue;
        found++;
        assert_true(fabs(r.cost - truth) <= 1e-5); /* the oracle prints six digits */
        check_answer(&p, &r);
        check_single_types(&p, &r);
    }
    rmdir(dir);
    print_message("%u instances with a solution and %u without: equal to GLPK's\n", found,
                  INSTANCES - found);
    assert_true(found > INSTANCES / 2);
}

static double brute(const struct solver_problem *p, uint32_t slice, double *load)
{
    if (slice == p->groups) {
        double cost = 0;
        for (uint32_t t = 0; t < p->types; t++) {
            double need = ceil(load[t] - 1e-9);
            if (need > p->max[t]) return INFINITY;
            cost += need * p->price[t];
        }
        return cost;
    }
    double best = INFINITY;
    for (uint32_t t = 0; t < p->types; t++) {
        if (!isfinite(p->load[slice][t])) continue;
        load[t] += p->load[slice][t];
        best = fmin(best, brute(p, slice + 1, load));
        load[t] -= p->load[slice][t];
    }
    return best;
}

static void optimum_equals_brute_force(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 5);
    for (uint32_t i = 0; i < 200; i++) {
        struct solver_problem p;
        struct solver_answer r;
        place_case_slices(&rng, 2 + i % 3, 2 + (uint32_t)rng_below(&rng, 7), 1, 0.2 + rng_f64(&rng),
                          &p);
        solver_run(&p, SOLVER_NODES_MAX, &memory, &r);
        double load[SOLVER_TYPES_MAX] = { 0 };
        double truth = brute(&p, 0, load);
        assert_true(r.optimal);
        assert_int_equal(r.found, isfinite(truth));
        if (r.found) assert_true(fabs(r.cost - truth) < 1e-9);
    }
}

/* What bounds the time: nodes, and the pivots of their relaxations (a few microseconds each). Of
 * slices that are all different two problems in a thousand stay unproven at the limit; none here. */
static void big_instances_take_few_steps(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 64);
    enum { RUNS = 200 };
    uint32_t nodes[2] = { 0 }, pivots[2] = { 0 }, proven[2] = { 0 };
    for (uint32_t i = 0; i < RUNS; i++) {
        struct solver_problem p;
        struct solver_answer r;
        place_case_big(&rng, i, &p);
        solver_run(&p, SOLVER_NODES_MAX, &memory, &r);
        bool distinct = p.groups == 64;
        nodes[distinct] = max_u32(nodes[distinct], r.nodes);
        pivots[distinct] = max_u32(pivots[distinct], r.pivots);
        proven[distinct] += r.optimal;
        assert_true(r.found && r.pivots > 0);
        check_answer(&p, &r);
        check_single_types(&p, &r);
    }
    for (int d = 0; d < 2; d++)
        print_message("4 types x 64 slices, %s: at most %u nodes, %u pivots, %u of %d proven\n",
                      d ? "all different" : "16 buckets of 4", nodes[d], pivots[d], proven[d],
                      RUNS / 2);
    assert_int_equal(proven[0], RUNS / 2);
    assert_int_equal(proven[1], RUNS / 2);
    assert_true(nodes[0] <= 6000 && nodes[1] <= 12000); /* of SOLVER_NODES_MAX */
    assert_true(pivots[0] <= 30000 && pivots[1] <= 60000);
}

/* True when slices from `slice` on (one a group) fit into what is left. */
static bool fits(const struct solver_problem *p, uint32_t slice, double *left)
{
    if (slice == p->groups) return true;
    for (uint32_t t = 0; t < p->types; t++) {
        double load = p->load[slice][t];
        if (load > left[t] + 1e-9) continue;
        left[t] -= load;
        bool rest = fits(p, slice + 1, left);
        left[t] += load;
        if (rest) return true;
    }
    return false;
}

/* Counts near the least that could do, so that both answers are frequent; equal slices as groups
 * of one and as one group must agree. */
static void packing_equals_brute_force(void **state)
{
    (void)state;
    static struct pack pack;
    struct rng rng;
    rng_seed(&rng, 31);
    uint32_t yes = 0;
    enum { RUNS = 400 };
    for (uint32_t i = 0; i < RUNS; i++) {
        struct solver_problem p, twins;
        uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX];
        uint64_t steps;
        place_case_slices(&rng, 2 + i % 3, 2 + (uint32_t)rng_below(&rng, 7), 1, 1, &p);
        if (i % 2) memcpy(p.load[1], p.load[0], sizeof p.load[0]);
        uint32_t room[SOLVER_TYPES_MAX] = { 0 };
        double left[SOLVER_TYPES_MAX] = { 0 }, sum = 0;
        for (uint32_t g = 0; g < p.groups; g++)
            sum += p.load[g][0] * 0.8;
        for (uint32_t n = (uint32_t)(sum + 0.5); n > 0; n--)
            room[rng_below(&rng, p.types)]++;
        for (uint32_t t = 0; t < p.types; t++)
            left[t] = room[t];
        enum pack_answer a = pack_slices(&p, room, 1000000, &pack, on, &steps);
        assert_int_equal(a, fits(&p, 0, left) ? PACK_FITS : PACK_NEVER);
        yes += a == PACK_FITS;
        for (uint32_t g = 0; g < p.groups && a == PACK_FITS; g++)
            for (uint32_t t = 0; t < p.types; t++)
                if (on[g][t]) left[t] -= p.load[g][t];
        for (uint32_t t = 0; t < p.types; t++)
            assert_true(left[t] >= -1e-6);
        if (i % 2 == 0 || p.groups < 3) continue;
        twins = p; /* groups 0 and 1 in one */
        twins.groups--;
        twins.count[0] = 2;
        memmove(twins.load[1], p.load[2], (p.groups - 2) * sizeof p.load[0]);
        assert_int_equal(pack_slices(&twins, room, 1000000, &pack, on, &steps), a);
        if (steps > 2) assert_int_equal(pack_slices(&twins, room, 1, &pack, on, &steps), 2);
    }
    print_message("%u of %d fit\n", yes, RUNS);
    assert_true(yes > RUNS / 5 && yes < 4 * RUNS / 5);
}

static void a_limit_is_said(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 9);
    bool cut = false;
    for (uint32_t i = 0; i < 20; i++) {
        struct solver_problem p;
        struct solver_answer r;
        place_case_slices(&rng, 4, 30, 1, 0.4, &p);
        solver_run(&p, 2, &memory, &r);
        assert_true(r.nodes <= 2);
        cut |= !r.optimal;
        if (!r.found) continue;
        check_answer(&p, &r);
        check_single_types(&p, &r);
    }
    assert_true(cut);
}

static void work_that_fits_nowhere_has_no_solution(void **state)
{
    (void)state;
    struct solver_problem p = { .types = 2,
                                .groups = 1,
                                .price = { 1, 2 },
                                .max = { 5, 5 },
                                .count = { 1 },
                                .load = { { INFINITY, INFINITY } } };
    struct solver_answer r;
    solver_run(&p, 100, &memory, &r);
    assert_false(r.found);
    assert_true(r.optimal);
    p.load[0][1] = 7; /* more than five instances */
    solver_run(&p, 100, &memory, &r);
    assert_false(r.found);
    p.load[0][1] = 4.5;
    solver_run(&p, 100, &memory, &r);
    assert_true(r.found && r.optimal && r.count[1] == 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimum_equals_brute_force),
        cmocka_unit_test(optimum_equals_glpk),
        cmocka_unit_test(big_instances_take_few_steps),
        cmocka_unit_test(packing_equals_brute_force),
        cmocka_unit_test(a_limit_is_said),
        cmocka_unit_test(work_that_fits_nowhere_has_no_solution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
