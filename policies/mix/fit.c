/* fit.c - steepest descent on the overfull load, by single and double shifts.
 *
 * excess = sum over types of price[t] * max(0, load[t] - room[t]). Each half of a double shift must
 * take from a type that is overfull at that point: others cannot help. */
#include "policies/mix/fit.h"

#include <math.h>

#define ROUNDS_MAX 400
#define BETTER 1e-12

struct shift {
    uint32_t group, from, to;
};

struct fit {
    const struct solver_problem *p;
    const uint32_t *room;
    uint16_t (*on)[SOLVER_TYPES_MAX];
    double load[SOLVER_TYPES_MAX];
    double now; /* excess */
};

static double excess(const struct fit *f, const double load[SOLVER_TYPES_MAX])
{
    double sum = 0;
    for (uint32_t t = 0; t < f->p->types; t++) {
        double over = load[t] - f->room[t];
        if (over > FIT_SLACK) sum += f->p->price[t] * over;
    }
    return sum;
}

/* Steps to the next possible shift in order, from `m` on; returns false after the last. */
static bool next_shift(const struct fit *f, struct shift *m)
{
    for (; m->group < f->p->groups; m->group++, m->from = m->to = 0)
        for (; m->from < f->p->types; m->from++, m->to = 0) {
            if (f->on[m->group][m->from] == 0) continue;
            for (; m->to < f->p->types; m->to++)
                if (m->to != m->from && isfinite(f->p->load[m->group][m->to])) return true;
        }
    return false;
}

static void shift_load(const struct fit *f, const struct shift *m, double load[SOLVER_TYPES_MAX])
{
    load[m->from] -= f->p->load[m->group][m->from];
    load[m->to] += f->p->load[m->group][m->to];
}

static void do_shift(struct fit *f, const struct shift *m)
{
    f->on[m->group][m->from]--;
    f->on[m->group][m->to]++;
    shift_load(f, m, f->load);
    f->now = excess(f, f->load);
}

static bool single(struct fit *f)
{
    struct shift best = { 0 };
    double least = f->now - BETTER;
    bool any = false;
    for (struct shift m = { 0 }; next_shift(f, &m); m.to++) {
        double load[SOLVER_TYPES_MAX];
        for (uint32_t t = 0; t < f->p->types; t++)
            load[t] = f->load[t];
        shift_load(f, &m, load);
        double e = excess(f, load);
        if (e >= least) continue;
        least = e;
        best = m;
        any = true;
    }
    if (any) do_shift(f, &best);
    return any;
}

/* Finds the best second half for `m`; returns false if no pair helps. */
static bool second_half(struct fit *f, const struct shift *m, struct shift *ret)
{
    double base[SOLVER_TYPES_MAX];
    double least = f->now - BETTER;
    bool any = false;
    for (uint32_t t = 0; t < f->p->types; t++)
        base[t] = f->load[t];
    shift_load(f, m, base);
    for (struct shift n = { 0 }; next_shift(f, &n); n.to++) {
        if (n.group == m->group || base[n.from] - f->room[n.from] <= FIT_SLACK) continue;
        double load[SOLVER_TYPES_MAX];
        for (uint32_t t = 0; t < f->p->types; t++)
            load[t] = base[t];
        shift_load(f, &n, load);
        double e = excess(f, load);
        if (e >= least) continue;
        least = e;
        *ret = n;
        any = true;
    }
    return any;
}

static bool twice(struct fit *f)
{
    for (struct shift m = { 0 }; next_shift(f, &m); m.to++) {
        if (f->load[m.from] - f->room[m.from] <= FIT_SLACK) continue;
        struct shift n;
        if (!second_half(f, &m, &n)) continue;
        do_shift(f, &m);
        do_shift(f, &n);
        return true;
    }
    return false;
}

bool fit_slices(const struct solver_problem *p, const uint32_t room[SOLVER_TYPES_MAX], bool pairs,
                uint16_t on[SOLVER_GROUPS_MAX][SOLVER_TYPES_MAX])
{
    struct fit f = { .p = p, .room = room, .on = on };
    for (uint32_t g = 0; g < p->groups; g++)
        for (uint32_t t = 0; t < p->types; t++)
            if (on[g][t]) f.load[t] += on[g][t] * p->load[g][t];
    f.now = excess(&f, f.load);
    for (uint32_t round = 0; round < ROUNDS_MAX && f.now > 0; round++)
        if (!single(&f) && !(pairs && twice(&f))) return false;
    return f.now <= 0;
}
