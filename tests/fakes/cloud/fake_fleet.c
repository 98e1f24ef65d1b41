/* fake_fleet.c - keeps the machines of a fake provider. */
#include "tests/fakes/cloud/fake_fleet.h"

#include "base/core/bits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAST_US 50000       /* that a reply takes */
#define NEVER_US 3600000000 /* beyond every deadline */
#define FIRST_ID 10000001

const char *const fleet_op_names[FLEET_OP_COUNT + 1] = {
    [FLEET_LOGIN] = "login",   [FLEET_CREATE] = "create", [FLEET_LIST] = "list",
    [FLEET_REMOVE] = "remove", [FLEET_STOP] = "stop",     [FLEET_START] = "start",
    [FLEET_PRICES] = "prices"
};
const char *const fleet_fault_names[FLEET_FAULT_COUNT + 1] = {
    [FLEET_FINE] = "fine",
    [FLEET_STOCK_OUT] = "stock_out",
    [FLEET_QUOTA] = "quota",
    [FLEET_THROTTLE] = "throttle",
    [FLEET_AUTH] = "auth",
    [FLEET_FORBIDDEN] = "forbidden",
    [FLEET_INVALID] = "invalid",
    [FLEET_SERVER_ERROR] = "server_error",
    [FLEET_UNKNOWN_CODE] = "unknown_code",
    [FLEET_UNREACHABLE] = "unreachable",
    [FLEET_LOST_REQUEST] = "lost_request",
    [FLEET_LOST_REPLY] = "lost_reply",
    [FLEET_LATE_SUCCESS] = "late_success",
    [FLEET_HALF_REPLY] = "half_reply",
    [FLEET_GARBAGE] = "garbage",
    [FLEET_DUPLICATE] = "duplicate",
    [FLEET_SLOW_BOOT] = "slow_boot",
    [FLEET_SLOW] = "slow",
    [FLEET_WRONG_CLOCK] = "wrong_clock",
};

void fake_fleet_init(struct fake_fleet *f, const struct fleet_config *config)
{
    *f = (struct fake_fleet){ .config = *config };
    f->machine = calloc(FLEET_MACHINES_MAX, sizeof *f->machine);
    must(f->machine);
    memset(f->stock, -1, sizeof f->stock);
    memset(f->spot_stock, -1, sizeof f->spot_stock);
}

void fake_fleet_fini(struct fake_fleet *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        free(f->machine[i].user_data);
    free(f->machine);
    *f = (struct fake_fleet){ 0 };
}

/* ---- the script ---- */

static bool is_it(const char *wanted, const char *it)
{
    return !wanted || (it && strcmp(wanted, it) == 0);
}

const struct fleet_row *fake_fleet_meet(struct fake_fleet *f, enum fleet_op op, const char *type,
                                        const char *zone, int64_t now_us)
{
    const struct fleet_row *found = NULL;
    f->calls[op]++;
    for (uint32_t i = 0; i < f->config.script_count; i++) {
        struct fleet_row *r = &f->config.script[i];
        bool in_time =
            (r->from_us == 0 || now_us >= r->from_us) && (r->to_us == 0 || now_us < r->to_us);
        if (!(r->any_op || r->op == op) || !in_time) continue;
        if (!is_it(r->type, type) || !is_it(r->zone, zone)) continue;
        r->seen++;
        if (!found && (r->nth == 0 || r->nth == r->seen)) found = r;
    }
    return found;
}

bool fleet_break_reply(const struct fleet_row *row, struct web_reply *ret, int64_t *ret_us)
{
    /* By fault: what is left of the reply. */
    static const struct {
        enum fleet_fault fault;
        bool sent;
        const char *problem;
        int64_t took_us;
    } lost[] = {
        { FLEET_UNREACHABLE, false, "the host cannot be reached", FAST_US },
        { FLEET_LOST_REQUEST, true, "no reply came", NEVER_US },
        { FLEET_LOST_REPLY, true, "no reply came", NEVER_US },
        { FLEET_LATE_SUCCESS, true, "no reply came", NEVER_US },
        { FLEET_HALF_REPLY, true, "the connection ended", FAST_US },
    };
    *ret_us = FAST_US;
    if (!row) return false;
    for (size_t i = 0; i < COUNT_OF(lost); i++) {
        if (row->fault != lost[i].fault) continue;
        *ret = (struct web_reply){ .sent = lost[i].sent, .problem = str_from(lost[i].problem) };
        *ret_us = lost[i].took_us;
        return true;
    }
    if (row->fault == FLEET_GARBAGE) ret->body = STR("<html>a proxy's page</html>");
    if (row->fault == FLEET_SLOW) *ret_us = row->delay_us;
    return row->fault == FLEET_GARBAGE || row->fault == FLEET_SLOW;
}

/* ---- machines ---- */

static int index_of_type(const struct fake_fleet *f, const char *name)
{
    for (uint32_t i = 0; i < f->config.type_count; i++)
        if (strcmp(f->config.type[i].name, name) == 0) return (int)i;
    return -1;
}

static int index_of_zone(const struct fake_fleet *f, const char *name)
{
    for (uint32_t i = 0; i < f->config.zone_count; i++)
        if (strcmp(f->config.zone[i], name) == 0) return (int)i;
    return -1;
}

static bool is_there(const struct fleet_machine *m, int64_t now_us)
{
    return m->made_us <= now_us && (m->removed_us == 0 || m->removed_us > now_us);
}

struct fleet_machine *fake_fleet_find(struct fake_fleet *f, uint64_t id)
{
    uint64_t at = id - FIRST_ID;
    return id >= FIRST_ID && at < f->count ? &f->machine[at] : NULL;
}

struct fleet_machine *fake_fleet_named(struct fake_fleet *f, const char *name, int64_t now_us)
{
    for (uint32_t i = 0; i < f->count; i++) {
        struct fleet_machine *m = &f->machine[i];
        if (strcmp(m->name, name) == 0 && is_there(m, now_us)) return m;
    }
    return NULL;
}

static struct fleet_machine *keyed(struct fake_fleet *f, const char *key)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (strcmp(f->machine[i].key, key) == 0) return &f->machine[i];
    return NULL;
}

static void copy(char to[FLEET_TEXT], const char *from)
{
    snprintf(to, FLEET_TEXT, "%s", from ? from : "");
}

enum fleet_fault fake_fleet_create(struct fake_fleet *f, const struct fleet_order *o,
                                   int64_t late_us, int64_t slow_us, int64_t now_us,
                                   struct fleet_machine **ret)
{
    int type = index_of_type(f, o->type), zone = index_of_zone(f, o->zone);
    *ret = NULL;
    if (f->config.keys_unique && o->key && o->key[0] && (*ret = keyed(f, o->key)))
        return FLEET_FINE;
    if (type < 0 || zone < 0) return FLEET_INVALID;
    const struct fleet_type *t = &f->config.type[type];
    int64_t price = o->spot ? t->spot_udollars_h : t->price_udollars_h;
    if (price == 0) return FLEET_INVALID;
    price += f->config.address_udollars_h + f->config.disk_udollars_h;
    if (f->stock[type][zone] == 0 || (o->spot && f->spot_stock[type][zone] == 0))
        return FLEET_STOCK_OUT;
    if (f->config.quota > 0 && fake_fleet_running(f, now_us) >= f->config.quota) return FLEET_QUOTA;
    for (uint32_t i = 0; i < f->count && f->config.names_unique; i++) {
        struct fleet_machine *late = &f->machine[i];
        if (late->made_us > now_us && strcmp(late->name, o->name) == 0)
            late->removed_us = late->made_us;
    }
    must(f->count < FLEET_MACHINES_MAX);
    if (f->stock[type][zone] > 0) f->stock[type][zone]--;
    struct fleet_machine *m = &f->machine[f->count];
    *m = (struct fleet_machine){ .id = FIRST_ID + f->count,
                                 .spot = o->spot,
                                 .made_us = now_us + late_us,
                                 .ready_us = now_us + late_us + f->config.boot_us + slow_us,
                                 .price_udollars_h = price };
    f->count++;
    copy(m->name, o->name);
    copy(m->key, o->key);
    copy(m->type, o->type);
    copy(m->zone, o->zone);
    copy(m->image, o->image);
    m->user_data = strdup(o->user_data ? o->user_data : "");
    must(m->user_data && o->tag_count <= FLEET_TAGS_MAX);
    m->tag_count = o->tag_count;
    if (o->tag_count > 0) memcpy(m->tag, o->tag, o->tag_count * sizeof *o->tag);
    *ret = m;
    return FLEET_FINE;
}

static void give_back(struct fake_fleet *f, const struct fleet_machine *m)
{
    int type = index_of_type(f, m->type), zone = index_of_zone(f, m->zone);
    if (type >= 0 && zone >= 0 && f->stock[type][zone] >= 0) f->stock[type][zone]++;
}

bool fake_fleet_remove(struct fake_fleet *f, uint64_t id, int64_t now_us)
{
    struct fleet_machine *m = fake_fleet_find(f, id);
    if (!m || !is_there(m, now_us)) return false;
    m->removed_us = now_us;
    if (!fleet_is_stopped(m, now_us)) give_back(f, m);
    return true;
}

/* ---- stopped machines ---- */

bool fleet_is_stopped(const struct fleet_machine *m, int64_t at_us)
{
    if (m->stopped_us == 0 || at_us < m->stopped_us) return false;
    return m->started_us <= m->stopped_us || at_us < m->started_us;
}

/* Returns what the machine costs from its last change on, until end_us. */
static int64_t open_bill(const struct fake_fleet *f, const struct fleet_machine *m, int64_t end_us)
{
    bool stopped = m->stopped_us > m->started_us;
    int64_t from_us = stopped ? m->stopped_us : max_i64(m->made_us, m->started_us);
    if (end_us <= from_us) return 0;
    int64_t seconds = (end_us - from_us + 999999) / 1000000;
    if (stopped) return seconds * f->config.disk_udollars_h;
    int64_t unit_s = max_i64(f->config.bill_unit_s, 1);
    seconds = max_i64(seconds, f->config.bill_least_s);
    return (seconds + unit_s - 1) / unit_s * unit_s * m->price_udollars_h;
}

bool fake_fleet_stop(struct fake_fleet *f, uint64_t id, int64_t now_us)
{
    struct fleet_machine *m = fake_fleet_find(f, id);
    if (!m || !is_there(m, now_us)) return false;
    if (fleet_is_stopped(m, now_us)) return true;
    m->billed_before += open_bill(f, m, now_us);
    m->stopped_us = now_us;
    give_back(f, m);
    return true;
}

enum fleet_fault fake_fleet_start(struct fake_fleet *f, uint64_t id, int64_t now_us)
{
    struct fleet_machine *m = fake_fleet_find(f, id);
    if (!m || !is_there(m, now_us)) return FLEET_INVALID;
    if (!fleet_is_stopped(m, now_us)) return FLEET_FINE;
    int type = index_of_type(f, m->type), zone = index_of_zone(f, m->zone);
    must(type >= 0 && zone >= 0);
    if (f->stock[type][zone] == 0) return FLEET_STOCK_OUT;
    if (f->stock[type][zone] > 0) f->stock[type][zone]--;
    m->billed_before += open_bill(f, m, now_us);
    m->started_us = now_us;
    m->ready_us = now_us + f->config.boot_us;
    return FLEET_FINE;
}

bool fake_fleet_shows(const struct fake_fleet *f, const struct fleet_machine *m, int64_t now_us)
{
    return is_there(m, now_us - f->config.lag_us);
}

const char *fleet_tag_of(const struct fleet_machine *m, const char *name)
{
    for (uint32_t i = 0; i < m->tag_count; i++)
        if (strcmp(m->tag[i].name, name) == 0) return m->tag[i].value;
    return "";
}

void fake_fleet_preempt(struct fake_fleet *f, struct fleet_machine *m, int64_t notice_us,
                        int64_t now_us)
{
    if (!is_there(m, now_us)) return;
    m->notice_us = now_us;
    m->removed_us = now_us + max_i64(notice_us, 1);
    m->taken = true;
    give_back(f, m);
}

void fake_fleet_stock(struct fake_fleet *f, const char *type, const char *zone, int32_t n)
{
    int t = index_of_type(f, type), z = index_of_zone(f, zone);
    must(t >= 0 && z >= 0);
    f->stock[t][z] = n < 0 ? -1 : n;
}

/* ---- oracles ---- */

uint32_t fake_fleet_running(const struct fake_fleet *f, int64_t now_us)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += is_there(&f->machine[i], now_us);
    return n;
}

uint32_t fake_fleet_up(const struct fake_fleet *f, int64_t now_us)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += is_there(&f->machine[i], now_us) && !fleet_is_stopped(&f->machine[i], now_us);
    return n;
}

uint32_t fake_fleet_of_tag(const struct fake_fleet *f, const char *name, const char *value,
                           int64_t now_us)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->count; i++)
        n += is_there(&f->machine[i], now_us) &&
             strcmp(fleet_tag_of(&f->machine[i], name), value) == 0;
    return n;
}

int64_t fake_fleet_bill_udollars(const struct fake_fleet *f, int64_t now_us)
{
    int64_t hours_3600 = 0; /* micro-dollar seconds an hour */
    for (uint32_t i = 0; i < f->count; i++) {
        const struct fleet_machine *m = &f->machine[i];
        int64_t end_us = m->removed_us > 0 ? min_i64(m->removed_us, now_us) : now_us;
        if (end_us <= m->made_us) continue;
        hours_3600 += m->billed_before + open_bill(f, m, end_us);
    }
    return hours_3600 / 3600;
}

void fake_fleet_bad_form(struct fake_fleet *f, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(f->last_refused, sizeof f->last_refused, format, ap);
    va_end(ap);
    f->refused_form++;
}
