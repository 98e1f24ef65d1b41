/* cmd_explain.c - `muster explain`: print a decision's inputs, its reason, its alternatives and its cost.
 *
 * A sentence is printed only when its facts are known: a value that the controller did not know is
 * called unknown, not shown as zero.
 */
#include "base/core/bits.h"
#include "base/core/err.h"
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "cli/table.h"

struct teller {
    struct str d; /* the decision */
    struct buf *out;
    bool first;
};

/* Appends `before`, then the cell at `path` of the decision. */
static void say(const struct teller *t, const char *before, enum table_form form, const char *path)
{
    buf_text(t->out, before);
    table_cell(form, t->d, path, 0, t->out);
}

static bool has(const struct teller *t, const char *path)
{
    struct str value;
    return json_path(t->d, path, &value) == 0;
}

static bool is_true(struct str json, const char *path)
{
    bool yes;
    return json_path_bool(json, path, &yes) == 0 && yes;
}

static int put_count(void *ctx, struct str pool, struct str count)
{
    struct teller *t = ctx;
    buf_printf(t->out, "%s" STR_FMT " " STR_FMT, t->first ? "" : ", ", STR_ARG(count),
               STR_ARG(pool));
    t->first = false;
    return 0;
}

/* Appends counts by pool, as "1 small, 0 large". */
static void counts(struct teller *t, const char *path)
{
    t->first = true;
    if (json_path_each_member(t->d, path, put_count, t) < 0 || t->first)
        buf_text(t->out, "unknown");
}

static void tell_demand(struct teller *t)
{
    if (is_true(t->d, "inputs.demand_known")) {
        say(t, "seen       ", TABLE_DECIMAL, "inputs.arrivals_per_s");
        say(t, " requests a second of ", TABLE_COUNT, "inputs.uncached_prompt_tokens_mean");
        say(t, " uncached prompt tokens and ", TABLE_COUNT, "inputs.output_tokens_mean");
        say(t, " expected output tokens;\n           ", TABLE_COUNT, "inputs.in_flight");
        say(t, " in flight, ", TABLE_COUNT, "inputs.waiting");
        say(t, " of them waiting, ", TABLE_COUNT, "inputs.held");
        say(t, " held for an instance; last arrival ", TABLE_AGE, "inputs.idle_s");
        say(t, " before,\n           as routers told it at most ", TABLE_AGE,
            "inputs.demand_age_s");
        buf_text(t->out, " before\n");
        if (has(t, "inputs.late_refused_per_s")) {
            say(t, "           ", TABLE_DECIMAL, "inputs.late_refused_per_s");
            buf_text(t->out, " of them a second were refused, because the fleet is overloaded and "
                             "they would have been late\n");
        }
        if (has(t, "inputs.expected")) {
            say(t, "           lengths of ", TABLE_COUNT, "inputs.expected.count");
            say(t, " in five minutes: nine in ten prompts below ", TABLE_COUNT,
                "inputs.expected.prompt_tokens_p90");
            say(t, " tokens, answers below ", TABLE_COUNT, "inputs.expected.output_tokens_p90");
            buf_text(t->out, "\n");
        }
    } else {
        buf_text(t->out, "seen       no demand: no router had reported lately\n");
    }
}

static void tell_inputs(struct teller *t)
{
    tell_demand(t);
    say(t, "           reports of ", TABLE_COUNT, "inputs.reports_fresh");
    say(t, " of ", TABLE_COUNT, "inputs.reports_expected");
    buf_text(t->out, is_true(t->d, "inputs.routers_fresh")
                         ? " ready instances and of every router were fresh\n"
                         : " ready instances were fresh; not every router's was\n");
}

static int tell_refused(void *ctx, struct str refused)
{
    struct teller *t = ctx;
    buf_text(t->out, "refused    ");
    table_cell(TABLE_TEXT, refused, "offer", 0, t->out);
    buf_text(t->out, ": ");
    table_cell(TABLE_TEXT, refused, "error", 0, t->out);
    buf_text(t->out, ": ");
    table_cell(TABLE_TEXT, refused, "why", 0, t->out);
    buf_byte(t->out, '\n');
    return 0;
}

static int tell_sold_out(void *ctx, struct str offer)
{
    struct teller *t = ctx;
    buf_text(t->out, "sold out   ");
    table_cell(TABLE_TEXT, offer, "offer", 0, t->out);
    buf_text(t->out, ", as refusals of the last hours tell: by a chance of ");
    table_cell(TABLE_DECIMAL, offer, "chance", 0, t->out);
    buf_byte(t->out, '\n');
    return 0;
}

static void tell_fleet(struct teller *t)
{
    buf_text(t->out, "had        ");
    counts(t, "ready");
    buf_text(t->out, " ready; with those starting ");
    counts(t, "have");
    if (has(t, "failing")) say(t, ", without those on failing machines: ", TABLE_COUNT, "failing");
    buf_text(t->out, "\nwanted     ");
    counts(t, "want");
    buf_text(t->out, "; decided ");
    counts(t, "target");
    say(t, "\nreason     ", TABLE_TEXT, "reason");
    say(t, " (policy ", TABLE_TEXT, "policy");
    say(t, ", load of ", TABLE_DECIMAL, "load");
    buf_text(t->out, " instances)\n");
    if (has(t, "blocked")) {
        say(t, "held back  ", TABLE_TEXT, "blocked");
        if (has(t, "hold_s")) {
            say(t, ", for another ", TABLE_AGE, "hold_s");
        }
        buf_byte(t->out, '\n');
        (void)json_path_each(t->d, "refused", tell_refused, t); /* in decisions of this version */
    }
    (void)json_path_each(t->d, "sold_out", tell_sold_out, t);
    if (has(t, "estimate_ttft_s")) {
        say(t, "expected   first token after ", TABLE_DECIMAL, "estimate_ttft_s");
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
    say(t, " at ", TABLE_MONEY, "runner_up.cost_per_h");
    say(t, " an hour: ", TABLE_TEXT, "runner_up.why_not");
    buf_byte(t->out, '\n');
}

static int tell_placed(void *ctx, struct str placed)
{
    const struct teller *whole = ctx;
    const struct teller t = { .d = placed, .out = whole->out };
    say(&t, "placed     ", TABLE_TEXT, "pool");
    say(&t, ": ", TABLE_TEXT, "reason");
    say(&t, ", ", TABLE_MONEY, "cost_per_h");
    buf_text(t.out, " an hour for what should stand");
    if (has(&t, "short_share"))
        say(&t, ", short of it for a share of ", TABLE_DECIMAL, "short_share");
    return buf_byte(t.out, '\n');
}

/* Tells the phases that the offer's launches took so far. */
static void tell_lead(const struct teller *t)
{
    static const char *const phases[][2] = {
        { " schedule ", "lead.schedule" }, { " node ", "lead.node" }, { " boot ", "lead.boot" },
        { " pull ", "lead.pull" },         { " load ", "lead.load" }, { " warm ", "lead.warm" }
    };
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(phases); i++) {
        if (!has(t, phases[i][1])) continue;
        buf_text(t->out, any ? "," : " (");
        say(t, phases[i][0] + (any ? 0 : 1), TABLE_AGE, phases[i][1]);
        any = true;
    }
    if (any) buf_text(t->out, ")");
}

static int tell_action(void *ctx, struct str action)
{
    const struct teller *whole = ctx;
    const struct teller t = { .d = action, .out = whole->out };
    say(&t, "           ", TABLE_TEXT, "act");
    say(&t, " ", TABLE_TEXT, "instance");
    say(&t, " in pool ", TABLE_TEXT, "pool");
    if (has(&t, "offer")) {
        say(&t, ", offer ", TABLE_TEXT, "offer");
        say(&t, " at ", TABLE_MONEY, "price_per_h");
        say(&t, " an hour, ready in about ", TABLE_AGE, "lead_s");
        tell_lead(&t);
    }
    if (has(&t, "why")) say(&t, ": ", TABLE_TEXT, "why");
    return buf_byte(t.out, '\n');
}

static void tell_cost(struct teller *t)
{
    say(t, "cost       ", TABLE_MONEY, "cost_per_h");
    say(t, " an hour then, ", TABLE_MONEY, "cost_per_h_after");
    buf_text(t->out, " an hour after");
    if (has(t, "budget_per_h")) {
        say(t, "; the budget is ", TABLE_MONEY, "budget_per_h");
    }
    buf_byte(t->out, '\n');
}

/* ---- prefill and decode instances ------------------------------------------------------------ */

static bool is_of_roles(const struct teller *t)
{
    CLEANUP(buf_fini) struct buf kind = { 0 };
    return json_path_text(t->d, "kind", &kind) == 0 && str_eq(buf_view(&kind), STR("role"));
}

static int tell_role(void *ctx, struct str action)
{
    const struct teller *whole = ctx;
    const struct teller t = { .d = action, .out = whole->out };
    say(&t, "           ", TABLE_TEXT, "instance");
    say(&t, " in pool ", TABLE_TEXT, "pool");
    say(&t, ": ", TABLE_TEXT, "role");
    say(&t, ", was ", TABLE_TEXT, "was");
    return buf_byte(t.out, '\n');
}

static int tell_roles(struct teller *t, struct str actions)
{
    tell_demand(t);
    say(t, "           K and V of a token are ", TABLE_COUNT, "inputs.kv_token_bytes");
    say(t, " bytes, ", TABLE_COUNT, "inputs.link_bytes_per_s");
    say(t, " of them copied in a second\nreason     ", TABLE_TEXT, "reason");
    if (has(t, "policy")) {
        say(t, " (role policy ", TABLE_TEXT, "policy");
        buf_byte(t->out, ')');
    }
    buf_byte(t->out, '\n');
    if (has(t, "goodput_rps")) {
        say(t, "expected   ", TABLE_DECIMAL, "goodput_rps");
        buf_text(t->out, " requests a second within the SLO");
        if (has(t, "runner_up_rps")) {
            say(t, "; ", TABLE_DECIMAL, "runner_up_rps");
            buf_text(t->out, " by the next best");
        }
        buf_byte(t->out, '\n');
    }
    buf_text(t->out, "done\n");
    int rc = json_path_each(actions, "", tell_role, t);
    return rc < 0 ? rc : t->out->rc;
}

int explain_decision(struct str decision, int64_t now_us, struct buf *out)
{
    struct teller t = { .out = out };
    struct str actions, placed;
    int rc = json_path(decision, "decision", &t.d);
    if (rc == 0) rc = json_path(t.d, "actions", &actions);
    if (rc < 0) return -EINVAL;
    buf_text(out, "decision ");
    table_cell(TABLE_COUNT, decision, "id", 0, out);
    say(&t, " for ", TABLE_TEXT, "service");
    buf_text(out, ", ");
    table_cell(TABLE_SINCE, t.d, "at_us", now_us, out);
    buf_text(out, " ago\n\n");
    if (is_of_roles(&t)) return tell_roles(&t, actions);
    tell_inputs(&t);
    tell_fleet(&t);
    tell_runner_up(&t);
    tell_cost(&t);
    if (json_path(t.d, "placed", &placed) == 0) rc = json_path_each(placed, "", tell_placed, &t);
    if (rc < 0) return rc;
    buf_text(out, actions.len < 3 ? "done       nothing\n" : "done\n");
    rc = json_path_each(actions, "", tell_action, &t);
    return rc < 0 ? rc : out->rc;
}

struct explain_options {
    struct remote_place place;
    struct str id;
    int64_t last;
    int output;
};

// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct explain_options, place),
    { .name = "last", .letter = 'n', .type = CONFIG_INT, .default_text = "1", .min = 1, .max = 500,
      .unit = "decisions", .offset = offsetof(struct explain_options, last),
      .about = "Explain so many of the newest." },
    REMOTE_OUTPUT_ROW(struct explain_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "DECISION", .offset = offsetof(struct explain_options, id),
      .about = "Number of a decision (`muster get decisions`); without it, the newest." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct explain_options, rows);
static const struct opt_command usage = {
    .name = "muster explain",
    .about = "Tell in words why the controller decided so: inputs, reason, runner-up, cost.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
};

struct telling {
    struct buf *out;
    int64_t now_us;
    uint32_t count;
};

static int tell(void *ctx, struct str decision)
{
    struct telling *t = ctx;
    if (t->count++ > 0) buf_byte(t->out, '\n');
    return explain_decision(decision, t->now_us, t->out);
}

static int read_path(const struct explain_options *o, struct buf *path, struct err *err)
{
    uint64_t id;
    if (o->id.len == 0) return buf_printf(path, "/api/v1/decisions?limit=%lld", (long long)o->last);
    if (str_to_u64(o->id, &id) < 0)
        return err_set(err, COMMAND_MISUSED,
                       "'" STR_FMT "': a decision is named by its number; `muster "
                       "get decisions` lists them",
                       STR_ARG(o->id));
    return buf_printf(path, "/api/v1/decisions/%llu", (unsigned long long)id);
}

static int explain(const void *options, struct err *err)
{
    const struct explain_options *o = options;
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf reply = { 0 };
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct remote api;
    int rc = read_path(o, &path, err);
    if (rc == 0) rc = remote_find(&o->place, &api, err);
    if (rc == 0) rc = remote_get(&api, path.data, &reply, err);
    if (rc < 0) return rc;
    if (o->output == REMOTE_JSON) {
        buf_byte(&reply, '\n');
        return command_print(&reply, err);
    }
    struct telling t = { &out, clock_wall_us(), 0 };
    rc = o->id.len > 0 ? tell(&t, buf_view(&reply))
                       : json_path_each(buf_view(&reply), "decisions", tell, &t);
    if (rc < 0) return err_set(err, -EPROTO, "the controller's decision is not understood");
    if (t.count == 0) buf_text(&out, "Nothing was decided yet: the fleet is as it was started.\n");
    return command_print(&out, err);
}

static int run(int argc, char *const *argv)
{
    struct explain_options options;
    return command_run(&usage, argc, argv, &options, explain);
}

const struct command command_explain = {
    .name = "explain",
    .group = "Look",
    .about = "why the controller decided so",
    .run = run,
};
