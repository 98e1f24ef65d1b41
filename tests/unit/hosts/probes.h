/* probes.h - has one policy of each kind that writes its view as text; equal views get equal verdicts.
 *
 * Floating-point numbers are in hexadecimal, so that two texts are equal only if every member is, bit
 * for bit. Members that name a host's own things are left out (an instance's number at its controller,
 * whether its machine keeps a clock by injecting idle time).
 */
#pragma once
#include "base/core/buf.h"
#include "policies/migrate/migrate.h"
#include "policies/place/place.h"
#include "policies/power/power.h"
#include "policies/role/role.h"
#include "policies/route/route.h"
#include "policies/scale/scale.h"

enum probe_kind {
    PROBE_ROUTE,
    PROBE_SCALE,
    PROBE_PLACE,
    PROBE_ROLE,
    PROBE_POWER,
    PROBE_MIGRATE,
    PROBE_KIND_COUNT
};
extern const char *const probe_names[PROBE_KIND_COUNT];

/* The probes' output; views before `from_us` are left out, times are counted from `zero_us`. */
struct probe_log {
    struct buf text[PROBE_KIND_COUNT];
    uint32_t count[PROBE_KIND_COUNT];
    int64_t zero_us, from_us;
};
void probe_log_set(struct probe_log *log); /* NULL: nothing is written */
void probe_log_fini(struct probe_log *log);

extern const struct route_policy probe_route;
extern const struct scale_policy probe_scale;
extern const struct place_policy probe_place;
extern const struct role_policy probe_role;
extern const struct power_policy probe_power;
extern const struct migrate_policy probe_migrate;
