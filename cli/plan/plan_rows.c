/* plan_rows.c - policies by the names that people type, and their answers as JSON. */
#include "cli/plan/plan_rows.h"

#include "cli/command.h"
#include "policies/catalog.h"

static void put(const char *const *name, uint32_t at, struct plan_rows *rows)
{
    rows->name[rows->count] = name[at];
    rows->at[rows->count++] = at;
}

static int add(const char *kind, struct str name, const char *option, struct plan_rows *rows,
               struct err *err)
{
    const char *names[POLICY_NAMES_MAX];
    uint32_t count = policy_names(kind, names);
    if (policy_check(kind, name, option, err) < 0) return COMMAND_MISUSED;
    for (uint32_t i = 0; i < count; i++)
        if (str_eq(name, str_from(names[i]))) put(names, i, rows);
    return 0;
}

int plan_rows_find(const char *kind, struct str row, const struct config_texts *compare,
                   struct plan_rows *ret, struct err *err)
{
    must(compare->count <= PLAN_COMPARE_MAX); /* the options say so */
    struct plan_rows rows = { 0 };
    int rc = add(kind, row, "--row", &rows, err);
    for (size_t i = 0; i < compare->count && rc == 0; i++)
        rc = add(kind, compare->items[i], "--compare", &rows, err);
    if (rc == 0) *ret = rows;
    return rc;
}

void plan_rows_others(const char *kind, struct plan_rows *rows)
{
    const char *names[POLICY_NAMES_MAX];
    uint32_t count = policy_names(kind, names), chosen = rows->at[0];
    for (uint32_t i = 0; i < count && rows->count < PLAN_ROWS_MAX; i++)
        if (i != chosen) put(names, i, rows);
}

void plan_rows_json(struct json_writer *w, const struct plan_rows *rows,
                    void (*put_answer)(struct json_writer *w, const void *ctx, uint32_t i),
                    const void *ctx)
{
    json_kv_text(w, "row", rows->name[0]);
    json_key(w, "choice");
    put_answer(w, ctx, 0);
    json_key(w, "compare");
    json_object(w);
    for (uint32_t i = 1; i < rows->count; i++) {
        json_key(w, rows->name[i]);
        put_answer(w, ctx, i);
    }
    json_object_end(w);
}
