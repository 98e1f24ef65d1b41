/* sim_scaling.c - the part of `muster simulate` that says how the fleet follows its demand. */
#include "cli/sim_scaling.h"

#include "cli/sim_rows.h"
#include "policies/place.h"
#include "policies/scale_forecast.h"
#include "policies/scale_shape.h"

static int pick_rows(const struct sim_options *o, struct sim_config *config,
                     struct sim_control_setup *s, struct err *err)
{
    config->scaling_clairvoyant = str_eq(o->scale_policy, STR(SCALE_BOUND_NAME));
    if (!config->scaling_clairvoyant) {
        s->policy = scale_find(o->scale_policy);
        if (!s->policy) return sim_no_row("scale-policy", "scale", o->scale_policy, err);
    }
    if (o->shaper.len > 0) {
        s->shaper = scale_shape_find(o->shaper);
        if (!s->shaper) return sim_no_row("shaper", "shaper", o->shaper, err);
    }
    if (o->forecast.len > 0) {
        s->scale.forecast = scale_forecast_find(o->forecast);
        if (!s->scale.forecast) return sim_no_row("forecast", "forecast", o->forecast, err);
    }
    if (o->place.len > 0) {
        s->place = place_find(o->place);
        if (!s->place) return sim_no_row("place", "place", o->place, err);
        if (!s->place->choose) {
            return err_set(err, -EINVAL,
                           "--place %s chooses no offers of a running fleet; ask `muster plan`",
                           s->place->name);
        }
    }
    return 0;
}

/* A pool that may grow needs somebody who lets it grow; the rest needs a fleet that scales. */
static int check_fixed(const struct sim_options *o, const struct sim_config *config,
                       const struct sim_control_setup *s, struct err *err)
{
    for (uint32_t p = 0; p < config->pool_count; p++) {
        if (s->pool[p].min < s->pool[p].max || s->pool[p].spot) {
            return err_set(err, -EINVAL, "--fleet " STR_FMT " needs --scale-policy",
                           STR_ARG(o->fleet));
        }
    }
    static const char *const needing[] = {
        "shaper", "place",     "forecast",    "scale_margin",    "scale_count",
        "budget", "lead_time", "lead_spread", "launch_failures", "life",
        "notice", "zone_up",   "zone_down",
    };
    for (size_t i = 0; i < COUNT_OF(needing); i++) {
        if (!sim_option_is_set(o, needing[i])) continue;
        char flag[SIM_FLAG_BYTES];
        sim_option_flag(needing[i], flag);
        return err_set(err, -EINVAL,
                       "--%s needs --scale-policy: without it the fleet stays as it is", flag);
    }
    return 0;
}

int sim_scaling_config(const struct sim_options *o, struct sim_config *config,
                       struct sim_control_setup *s, struct err *err)
{
    if (o->scale_policy.len == 0) return check_fixed(o, config, s, err);
    s->scale = SCALE_CONFIG_DEFAULT;
    int rc = pick_rows(o, config, s, err);
    if (rc < 0) return rc;
    for (uint32_t p = 0; p < config->pool_count; p++) {
        s->pool[p].lead_s = (double)o->lead_us / 1e6;
        s->pool[p].fail_share = o->launch_failures;
        s->pool[p].life_s = (double)o->life_us / 1e6;
    }
    for (uint32_t z = 0; z < SIM_ZONES_MAX; z++) {
        s->zone[z] =
            (struct sim_zone){ (double)o->zone_up_us / 1e6, (double)o->zone_down_us / 1e6 };
    }
    s->notice_s = (double)o->notice_us / 1e6;
    s->lead_sigma = o->lead_spread;
    s->budget_h = o->budget_h;
    s->scale.margin = o->scale_margin;
    s->scale.count = (uint32_t)o->scale_count;
    config->scaling = s;
    return 0;
}
