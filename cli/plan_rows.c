/* plan_rows.c - rows by the names that people type, and their answers as JSON. */
#include "cli/plan_rows.h"

#include "cli/cmd_run.h"
#include "policies/catalog.h"

static int add(const struct plan_kind *kind, struct str name, const char *option,
               struct plan_rows *rows, struct err *err)
{
    if (policy_check(kind->name, name, option, err) < 0) return COMMAND_MISUSED;
    for (uint32_t i = 0; i < *kind->table_count; i++)
        if (str_eq(name, str_from(kind->table[i]->name))) rows->row[rows->count++] = kind->table[i];
    return 0;
}

int plan_rows_find(const struct plan_kind *kind, struct str row, const struct config_texts *compare,
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

void plan_rows_others(const struct plan_kind *kind, struct plan_rows *rows)
{
    for (uint32_t i = 0; i < *kind->table_count && rows->count < PLAN_ROWS_MAX; i++)
        if (kind->table[i] != rows->row[0]) rows->row[rows->count++] = kind->table[i];
}

void plan_rows_json(struct json_writer *w, const struct plan_rows *rows,
                    void (*put)(struct json_writer *w, const void *ctx, uint32_t i),
                    const void *ctx)
{
    json_kv_text(w, "row", rows->row[0]->name);
    json_key(w, "choice");
    put(w, ctx, 0);
    json_key(w, "compare");
    json_object(w);
    for (uint32_t i = 1; i < rows->count; i++) {
        json_key(w, rows->row[i]->name);
        put(w, ctx, i);
    }
    json_object_end(w);
}
