/* explain.c - what was seen, what followed from it, what else was possible, what it costs.
 *
 * Every sentence stands only when its facts are there: what the controller did not know is said
 * to be unknown, not shown as zero. */
#include "cli/explain.h"

#include "base/core/err.h"
#include "base/core/own.h"
#include "cli/pick.h"
#include "cli/table.h"

struct teller {
    struct str d; /* the decision */
    struct buf *out;
    bool first;
};

static void cell(const struct teller *t, enum table_form form, const char *path)
{
    table_cell(form, t->d, path, 0, t->out);
}

static bool has(const struct teller *t, const char *path)
{
    struct str value;
    return pick(t->d, path, &value) == 0;
}

static bool is_true(struct str json, const char *path)
{
    bool yes;
    return pick_bool(json, path, &yes) == 0 && yes;
}

static int put_count(void *ctx, struct str pool, struct str count)
{
    struct teller *t = ctx;
    buf_printf(t->out, "%s" STR_FMT " " STR_FMT, t->first ? "" : ", ", STR_ARG(count),
               STR_ARG(pool));
    t->first = false;
    return 0;
}

/* "1 small, 0 large" */
static void counts(struct teller *t, const char *path)
{
    t->first = true;
    if (pick_each_member(t->d, path, put_count, t) < 0 || t->first) buf_text(t->out, "unknown");
}

static void tell_inputs(struct teller *t)
{
    buf_text(t->out, "seen       ");
    if (is_true(t->d, "inputs.demand_known")) {
        cell(t, TABLE_DECIMAL, "inputs.arrivals_per_s");
        buf_text(t->out, " requests a second of ");
        cell(t, TABLE_COUNT, "inputs.prompt_tokens_mean");
        buf_text(t->out, " uncached prompt tokens and ");
        cell(t, TABLE_COUNT, "inputs.output_tokens_mean");
        buf_text(t->out, " expected answer tokens;\n           ");
        cell(t, TABLE_COUNT, "inputs.in_flight");
        buf_text(t->out, " in flight, ");
        cell(t, TABLE_COUNT, "inputs.waiting");
        buf_text(t->out, " of them waiting, ");
        cell(t, TABLE_COUNT, "inputs.held");
        buf_text(t->out, " held for an instance; last arrival ");
        cell(t, TABLE_AGE, "inputs.idle_s");
        buf_text(t->out, " before\n");
    } else {
        buf_text(t->out, "no demand: no router had reported lately\n");
    }
    buf_text(t->out, "           reports of ");
    cell(t, TABLE_COUNT, "inputs.reports_fresh");
    buf_text(t->out, " of ");
    cell(t, TABLE_COUNT, "inputs.reports_expected");
    buf_text(t->out, is_true(t->d, "inputs.routers_fresh")
                         ? " ready instances and of every router were fresh\n"
                         : " ready instances were fresh; not every router's was\n");
}

static void tell_fleet(struct teller *t)
{
    buf_text(t->out, "had        ");
    counts(t, "ready");
    buf_text(t->out, " ready; with those starting ");
    counts(t, "have");
    buf_text(t->out, "\nwanted     ");
    counts(t, "want");
    buf_text(t->out, "; decided ");
    counts(t, "target");
    buf_text(t->out, "\nreason     ");
    cell(t, TABLE_TEXT, "reason");
    buf_text(t->out, " (policy ");
    cell(t, TABLE_TEXT, "policy");
    buf_text(t->out, ", load of ");
    cell(t, TABLE_DECIMAL, "load");
    buf_text(t->out, " instances)\n");
    if (has(t, "blocked")) {
        buf_text(t->out, "held back  ");
        cell(t, TABLE_TEXT, "blocked");
        if (has(t, "hold_s")) {
            buf_text(t->out, ", for another ");
            cell(t, TABLE_AGE, "hold_s");
        }
        buf_byte(t->out, '\n');
    }
    if (has(t, "estimate_ttft_s")) {
        buf_text(t->out, "expected   first token after ");
        cell(t, TABLE_DECIMAL, "estimate_ttft_s");
        buf_text(t->out, " s once that is ready\n");
    }
}

static void tell_runner_up(struct teller *t)
{
    buf_text(t->out, "instead of ");
    if (!has(t, "runner_up")) {
        buf_text(t->out, "nothing: there was no other choice\n");
        return;
    }
    counts(t, "runner_up.want");
    buf_text(t->out, " at ");
    cell(t, TABLE_MONEY, "runner_up.cost_per_h");
    buf_text(t->out, " an hour: ");
    cell(t, TABLE_TEXT, "runner_up.why_not");
    buf_byte(t->out, '\n');
}

static int tell_action(void *ctx, struct str action)
{
    const struct teller *t = ctx;
    struct str offer;
    buf_text(t->out, "           ");
    table_cell(TABLE_TEXT, action, "act", 0, t->out);
    buf_byte(t->out, ' ');
    table_cell(TABLE_TEXT, action, "instance", 0, t->out);
    buf_text(t->out, " in pool ");
    table_cell(TABLE_TEXT, action, "pool", 0, t->out);
    if (pick(action, "offer", &offer) == 0) {
        buf_text(t->out, ", offer ");
        table_cell(TABLE_TEXT, action, "offer", 0, t->out);
        buf_text(t->out, " at ");
        table_cell(TABLE_MONEY, action, "price_per_h", 0, t->out);
        buf_text(t->out, " an hour, ready in about ");
        table_cell(TABLE_AGE, action, "lead_s", 0, t->out);
    }
    return buf_byte(t->out, '\n');
}

static void tell_cost(struct teller *t)
{
    buf_text(t->out, "cost       ");
    cell(t, TABLE_MONEY, "cost_per_h");
    buf_text(t->out, " an hour then, ");
    cell(t, TABLE_MONEY, "cost_per_h_after");
    buf_text(t->out, " an hour after");
    if (has(t, "budget_per_h")) {
        buf_text(t->out, "; the budget is ");
        cell(t, TABLE_MONEY, "budget_per_h");
    }
    buf_byte(t->out, '\n');
}

int explain_decision(struct str decision, int64_t now_us, struct buf *out)
{
    struct teller t = { .out = out };
    struct str actions;
    int rc = pick(decision, "decision", &t.d);
    if (rc == 0) rc = pick(t.d, "actions", &actions);
    if (rc < 0) return -EINVAL;
    buf_text(out, "decision ");
    table_cell(TABLE_COUNT, decision, "id", 0, out);
    buf_text(out, " for ");
    cell(&t, TABLE_TEXT, "service");
    buf_text(out, ", ");
    table_cell(TABLE_SINCE, t.d, "at_us", now_us, out);
    buf_text(out, " ago\n\n");
    tell_inputs(&t);
    tell_fleet(&t);
    tell_runner_up(&t);
    tell_cost(&t);
    buf_text(out, actions.len < 3 ? "done       nothing\n" : "done\n");
    rc = pick_each(actions, "", tell_action, &t);
    return rc < 0 ? rc : out->rc;
}
