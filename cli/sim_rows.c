/* sim_rows.c - rows of policies by the names that people type. */
#include "cli/sim_rows.h"

#include "policies/catalog.h"

#define ROWS_MAX 64

struct names {
    const char *kind;
    const char *name[ROWS_MAX];
    size_t count;
};

static int collect(void *ctx, const struct policy_row *row)
{
    struct names *n = ctx;
    if (strcmp(row->kind, n->kind) == 0 && n->count < ROWS_MAX) n->name[n->count++] = row->name;
    return 0;
}

int sim_no_row(const char *option, const char *kind, struct str name, struct err *err)
{
    struct names n = { .kind = kind };
    policies_each(collect, &n);
    const char *near = str_nearest(name, n.name, n.count);
    if (near) {
        return err_set(err, -EINVAL, "--%s: no row '" STR_FMT "', did you mean '%s'?", option,
                       STR_ARG(name), near);
    }
    return err_set(err, -EINVAL, "--%s: no row '" STR_FMT "'; see `muster policies %s`", option,
                   STR_ARG(name), kind);
}

int sim_take_preset(struct str name, struct sim_config *c, struct err *err)
{
    c->preset = preset_find(name);
    if (!c->preset) return sim_no_row("preset", "preset", name, err);
    if (str_eq(name, STR("ref"))) c->bias_sigma = c->residual_sigma = 0;
    return 0;
}
