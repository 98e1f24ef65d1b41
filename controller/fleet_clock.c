/* fleet_clock.c - reads the machine's clocks, and stores the record of fleet time. */
#include "controller/fleet_clock.h"

#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "base/io/proc.h"
#include "controller/core/fleet_time.h"

#define KEY STR("clock")
#define RECORD_ARENA_BYTES ((size_t)4 << 10)

static struct fleet_moment moment(void)
{
    return (struct fleet_moment){ .boot = proc_id_self().boot,
                                  .mono_us = clock_mono_us(),
                                  .wall_us = clock_wall_us() };
}

static int write_record(struct fleet_clock *c, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct fleet_moment now = moment();
    struct fleet_record r = fleet_record_at(c->ahead_us, &now);
    int rc = fleet_record_encode(&r, &text);
    if (rc < 0) return err_set(err, rc, "no memory for the stored time");
    uint64_t version;
    c->kept_us = r.seen_us;
    return store_put_if(c->store, KEY, buf_view(&text), STORE_ANY, &version, err);
}

int fleet_clock_open(struct fleet_clock *c, struct store *store, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, RECORD_ARENA_BYTES);
    struct fleet_record last;
    struct fleet_moment now = moment();
    *c = (struct fleet_clock){ .store = store };
    int rc = store_get(store, KEY, &text, NULL, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    bool known = rc == 0;
    c->unreadable = known && fleet_record_decode(buf_view(&text), &arena, &last, NULL) < 0;
    c->ahead_us = fleet_time_ahead(known && !c->unreadable ? &last : NULL, &now);
    return c->unreadable ? 0 : write_record(c, err);
}

int64_t fleet_clock_now(const struct fleet_clock *c)
{
    return clock_mono_us() + c->ahead_us;
}

int64_t fleet_clock_date_ahead(const struct fleet_clock *c)
{
    return clock_wall_us() - fleet_clock_now(c);
}

int fleet_clock_keep(struct fleet_clock *c, struct err *err)
{
    if (c->unreadable || fleet_clock_now(c) - c->kept_us < FLEET_CLOCK_KEEP_US) return 0;
    return write_record(c, err);
}
