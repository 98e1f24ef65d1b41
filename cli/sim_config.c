/* sim_config.c - a flag beats the preset, the preset beats --config. */
#include "cli/sim_config.h"

#include "cli/model_file.h"
#include "cli/sim_file.h"
#include "cli/sim_fleet.h"
#include "cli/sim_rows.h"
#include "cli/sim_scaling.h"

#define PICK(rows, kind, text)                                       \
    if (rc == 0 && (text).len > 0) {                                 \
        (rows)->kind = kind##_find(text);                            \
        if (!(rows)->kind) rc = sim_no_row(#kind, #kind, text, err); \
    }

struct row_names {
    struct str route, predict, fair, order, admit, preempt, chunk, evict;
};

static int pick_rows(const struct row_names *n, struct sim_config *c, struct err *err)
{
    int rc = 0;
    PICK(c, route, n->route)
    PICK(c, predict, n->predict)
    PICK(&c->step, fair, n->fair)
    PICK(&c->step, order, n->order)
    PICK(&c->step, admit, n->admit)
    PICK(&c->step, preempt, n->preempt)
    PICK(&c->step, chunk, n->chunk)
    PICK(&c->step, evict, n->evict)
    return rc;
}

static int pick_fleet_rows(const struct sim_options *o, struct sim_config *c, struct err *err)
{
    int rc = 0;
    PICK(c, migrate, o->migrate)
    PICK(c, role, o->role)
    PICK(c, perf, o->perf)
    PICK(c, power, o->power)
    return rc;
}

/* A limit that nobody keeps, and a keeper without a limit, would do nothing. Where rows are compared
 * the limit is for the arm that keeps it. That of a file is for the file's own row. */
static int check_power(const struct sim_options *o, struct sim_config *c, struct err *err)
{
    bool keeps = c->power && strcmp(c->power->name, "polca") == 0;
    if (o->row_watts > 0) c->row_watts_max = o->row_watts;
    if (!keeps && o->row_watts <= 0 && o->compare.count == 0) c->row_watts_max = 0;
    bool limited = c->row_watts_max > 0;
    for (uint32_t p = 0; p < c->pool_count && !keeps && o->compare.count == 0; p++)
        if (c->pool[p].has_priority && c->pool[p].priority == PRIORITY_LOW)
            return err_set(err, -EINVAL,
                           "--fleet: ':low' needs --power polca, which alone tells it apart");
    if (keeps == limited || (limited && o->compare.count > 0)) return 0;
    return err_set(err, -EINVAL,
                   keeps ? "--power polca needs --row-watts" : "--row-watts needs --power polca");
}

/* Zero is nothing, as a limit, a size or a spread. */
static bool is_nought(const struct sim_options *o, const struct config_field *f)
{
    const void *value = sim_option_value(o, f);
    return f->type == CONFIG_FLOAT ? *(const double *)value <= 0 : *(const int64_t *)value == 0;
}

/* ref8000 has no engine's step, no memory to share and no chance: what decides of them is refused,
 * except where it says what the preset of its published setting says. */
static int check_reference(const struct sim_options *o, const struct sim_config *c, struct err *err)
{
    static const struct {
        const char *option, *allowed, *what;
    } none[] = {
        { "fair", "none", "decide" },   { "order", "fcfs", "decide" },
        { "admit", "all", "decide" },   { "preempt", "newest", "decide" },
        { "chunk", "whole", "decide" }, { "evict", "lru", "decide" },
        { "preset", "ref", "decide" },  { "perf", "", "foretell" },
        { "power", "max", "decide" },   { "migrate", "none", "move" },
        { "swap_space", NULL, "hold" }, { "swap_rate", NULL, "copy" },
        { "seqs_max", NULL, "limit" },  { "batch_tokens", NULL, "limit" },
        { "kv_tokens", NULL, "limit" }, { "output_max", NULL, "limit" },
        { "link", NULL, "copy" },       { "link_latency", NULL, "copy" },
        { "bias", NULL, "change" },     { "residual", NULL, "change" },
    };
    if (!sim_pool_is_serial(&c->pool[0])) return 0;
    for (uint32_t p = 0; p < c->pool_count; p++) {
        if (c->pool[p].tp == 1 && c->pool[p].role == ROLE_BOTH && !c->pool[p].has_model) continue;
        return err_set(err, -EINVAL, "--fleet: ref8000 takes no tpN, no role and no model");
    }
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        if (!sim_option_is_set(o, none[i].option)) continue;
        const struct config_field *f = sim_option_field(none[i].option);
        if (f->type == CONFIG_TEXT &&
            str_eq(*(const struct str *)sim_option_value(o, f), str_from(none[i].allowed)))
            continue;
        if (f->type != CONFIG_TEXT && is_nought(o, f)) continue;
        char flag[SIM_FLAG_BYTES];
        sim_option_flag(none[i].option, flag);
        return err_set(err, -EINVAL,
                       "ref8000 computes one prompt after another: --%s has nothing to %s there",
                       flag, none[i].what);
    }
    return 0;
}

int sim_config_make(const struct sim_options *o, struct sim_config *ret,
                    struct sim_control_setup *control, struct err *err)
{
    struct sim_config c = {
        .seed = (uint64_t)o->seed,
        .exact = o->exact,
        .routers = (uint32_t)o->routers,
        .report_delay_us = o->report_delay_us,
        .event_lag_us = o->event_lag_us,
        .link_bytes_s = (double)o->link_bytes_s,
        .link_us = o->link_us,
        .kv_tokens = (uint64_t)o->kv_tokens,
        .output_max = (uint32_t)o->output_max,
        .bias_sigma = o->bias,
        .residual_sigma = o->residual,
        .slo_ttft_s = (double)o->slo_ttft_us / 1e6,
        .slo_tpot_s = (double)o->slo_tpot_us / 1e6,
        .drain_s = (double)o->drain_us / 1e6,
    };
    struct row_names names = { o->route, o->predict, o->fair,  o->order,
                               o->admit, o->preempt, o->chunk, o->evict };
    int rc = model_file_find(o->model, &c.model, err);
    if (rc < 0) return err_prefix(err, rc, "--model");
    rc = sim_fleet_parse(o->fleet, &c, control, err);
    if (rc == 0 && o->config.len > 0) rc = sim_file_take(o->config.data, &c, err);
    if (sim_option_is_set(o, "link")) c.link_bytes_s = (double)o->link_bytes_s;
    if (rc == 0 && o->preset.len > 0) rc = sim_take_preset(o->preset, &c, err);
    if (rc == 0) rc = pick_rows(&names, &c, err);
    if (rc == 0) rc = pick_fleet_rows(o, &c, err);
    if (rc == 0) rc = check_reference(o, &c, err);
    if (rc == 0) rc = check_power(o, &c, err);
    if (rc == 0) rc = sim_scaling_config(o, &c, control, err);
    if (rc < 0) return rc;
    if (o->swap_space > 0) c.swap_bytes = (uint64_t)o->swap_space;
    c.swap_bps = (double)o->swap_rate;
    if (o->seqs_max > 0) c.seqs_max = (uint32_t)o->seqs_max;
    if (o->batch_tokens > 0) c.batch_tokens_max = (uint32_t)o->batch_tokens;
    *ret = c;
    return 0;
}
