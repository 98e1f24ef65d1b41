/* store_redis_record.c - names the keys of a fleet in Redis, and reads and prints what they hold.
 *
 * All records are text, so that redis-cli shows them. */
#include "base/io/store/store_redis_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FORMAT "1"

static bool is_of_name(char ch)
{
    bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z');
    return letter || (ch >= '0' && ch <= '9') || ch == '-' || ch == '_' || ch == '.';
}

int redis_keys_make(struct str fleet, struct redis_keys *ret, struct err *err)
{
    bool good = fleet.len > 0 && fleet.len <= REDIS_FLEET_BYTES_MAX;
    for (size_t i = 0; good && i < fleet.len; i++)
        good = is_of_name(fleet.data[i]);
    if (!good)
        return err_set(err, -EINVAL, "a fleet's name has 1 to %d letters, digits, '-', '_' and '.'",
                       REDIS_FLEET_BYTES_MAX);
    snprintf(ret->prefix, sizeof ret->prefix, "{" STR_FMT "}:", STR_ARG(fleet));
    snprintf(ret->state, sizeof ret->state, "%sstate", ret->prefix);
    snprintf(ret->lease, sizeof ret->lease, "%slease", ret->prefix);
    snprintf(ret->keys, sizeof ret->keys, "%skeys", ret->prefix);
    snprintf(ret->logs, sizeof ret->logs, "%slogs", ret->prefix);
    return 0;
}

struct str redis_entry_key(const struct redis_keys *k, struct str key, char ret[REDIS_KEY_BYTES])
{
    int n = snprintf(ret, REDIS_KEY_BYTES, "%se:", k->prefix);
    memcpy(ret + n, key.data, key.len);
    return str_of(ret, (size_t)n + key.len);
}

struct str redis_log_key(const struct redis_keys *k, const char *name, char ret[REDIS_KEY_BYTES])
{
    snprintf(ret, REDIS_KEY_BYTES, "%slog:%s", k->prefix, name);
    return str_from(ret);
}

static bool cut_number(struct str *rest, uint64_t *ret)
{
    return str_to_u64(str_cut(rest, ' '), ret) == 0;
}

static bool cut_name(struct str *rest, char *to, size_t size)
{
    struct str word = str_cut(rest, ' ');
    if (word.len == 0 || word.len >= size) return false;
    memcpy(to, word.data, word.len);
    to[word.len] = 0;
    return true;
}

int redis_damaged(const struct redis_keys *k, const char *what, struct err *err)
{
    return err_set(
        err, -EILSEQ,
        "store: %s of %s in Redis cannot be read, or is gone; does the server evict keys "
        "(maxmemory-policy must be noeviction), or does another program write there?",
        what, k->prefix);
}

int redis_read_state(const struct redis_keys *k, struct str text, struct redis_state *ret,
                     struct err *err)
{
    struct redis_state s = { .present = text.data != NULL };
    struct str rest = text;
    if (!s.present) {
        *ret = s;
        return 0;
    }
    if (!str_eq(str_cut(&rest, ' '), STR(FORMAT)))
        return err_set(err, -EILSEQ, "store: %s in Redis is of another release", k->prefix);
    if (!cut_name(&rest, s.life, sizeof s.life) || !cut_number(&rest, &s.revision) ||
        !cut_number(&rest, &s.count) || !cut_number(&rest, &s.writes))
        return redis_damaged(k, "state", err);
    if (rest.len > 0 && !cut_name(&rest, s.from, sizeof s.from))
        return redis_damaged(k, "state", err);
    *ret = s;
    return 0;
}

void redis_print_state(const struct redis_state *s, char ret[REDIS_STATE_BYTES])
{
    snprintf(ret, REDIS_STATE_BYTES, FORMAT " %s %" PRIu64 " %" PRIu64 " %" PRIu64 "%s%s", s->life,
             s->revision, s->count, s->writes, s->from[0] ? " " : "", s->from);
}

int redis_read_lease(const struct redis_keys *k, struct str text, struct store_lease *ret,
                     struct err *err)
{
    struct store_lease l = { 0 };
    uint64_t held, term_us;
    struct str rest = text;
    if (text.data) {
        bool whole = cut_number(&rest, &l.epoch) && cut_number(&rest, &l.beat) &&
                     cut_number(&rest, &held) && cut_number(&rest, &term_us) &&
                     term_us < INT64_MAX && cut_name(&rest, l.holder, sizeof l.holder) &&
                     cut_name(&rest, l.address, sizeof l.address);
        if (!whole) return redis_damaged(k, "lease", err);
        l.held = held != 0;
        l.term_us = (int64_t)term_us;
        if (strcmp(l.address, "-") == 0) l.address[0] = 0;
    }
    *ret = l;
    return 0;
}

void redis_print_lease(const struct store_lease *l, char ret[REDIS_LEASE_BYTES])
{
    snprintf(ret, REDIS_LEASE_BYTES, "%" PRIu64 " %" PRIu64 " %d %lld %s %s", l->epoch, l->beat,
             l->held, (long long)l->term_us, l->holder, l->address[0] ? l->address : "-");
}

int redis_split_number(const struct redis_keys *k, struct str text, uint64_t *ret, struct str *rest,
                       struct err *err)
{
    struct str tail = text, number = str_cut(&tail, '\n');
    if (str_to_u64(number, ret) < 0 || number.len == text.len)
        return redis_damaged(k, "an entry", err);
    *rest = str_of(text.data + number.len + 1, text.len - number.len - 1);
    return 0;
}

int redis_read_log(const struct redis_keys *k, struct str text, uint64_t *ret_last,
                   uint64_t *ret_dropped, struct err *err)
{
    struct str rest = text;
    *ret_last = *ret_dropped = 0;
    if (text.len == 0) return 0;
    if (cut_number(&rest, ret_last) && cut_number(&rest, ret_dropped)) return 0;
    return redis_damaged(k, "a log", err);
}
