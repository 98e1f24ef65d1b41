/* controllers.c - walks the list of controllers until one leads. */
#include "fleet/controllers.h"

#include <string.h>

static bool cut(struct str *text, struct str prefix)
{
    if (!str_starts(*text, prefix)) return false;
    *text = str_of(text->data + prefix.len, text->len - prefix.len);
    return true;
}

int controller_address_parse(struct str text, struct controller_address *ret, struct err *err)
{
    struct controller_address a = { 0 };
    struct str rest = text;
    struct str host;
    a.tls = cut(&rest, STR("https://"));
    if (!a.tls) (void)cut(&rest, STR("http://"));
    if (str_host_port(rest, &host, &a.port) < 0 || a.port == 0)
        return err_set(err, -EINVAL, "'" STR_FMT "': want [https://]HOST:PORT", STR_ARG(text));
    if (host.len >= sizeof a.host)
        return err_set(err, -EINVAL, "'" STR_FMT "': the host has 1 to %zu bytes", STR_ARG(text),
                       sizeof a.host - 1);
    memcpy(a.host, host.data, host.len);
    *ret = a;
    return 0;
}

static bool same(const struct controller_address *a, const struct controller_address *b)
{
    return a->port == b->port && a->tls == b->tls && strcmp(a->host, b->host) == 0;
}

static uint32_t find(const struct controllers *c, const struct controller_address *a)
{
    uint32_t i = 0;
    while (i < c->count && !same(&c->at[i], a))
        i++;
    return i;
}

int controllers_add(struct controllers *c, struct str text, struct err *err)
{
    struct controller_address a;
    int rc = controller_address_parse(text, &a, err);
    if (rc < 0 || find(c, &a) < c->count) return rc;
    if (c->count == CONTROLLERS_MAX)
        return err_set(err, -ENOSPC, "more than %d controllers", CONTROLLERS_MAX);
    c->at[c->count++] = a;
    return 0;
}

const struct controller_address *controllers_next(const struct controllers *c)
{
    if (c->named.port) return &c->named;
    return c->count > 0 ? &c->at[c->current] : NULL;
}

void controllers_missed(struct controllers *c)
{
    c->named.port = 0;
    c->followed = false;
    if (c->count > 0) c->current = (c->current + 1) % c->count;
}

bool controllers_stands_by(struct controllers *c, struct str leader)
{
    struct controller_address a;
    bool asked = controllers_next(c) != NULL;
    bool usable = asked && !c->followed && leader.len > 0 &&
                  controller_address_parse(leader, &a, NULL) == 0 && !same(&a, controllers_next(c));
    if (!usable) {
        controllers_missed(c);
        return false;
    }
    uint32_t known = find(c, &a);
    c->named = (struct controller_address){ 0 };
    c->followed = true;
    if (known < c->count)
        c->current = known;
    else
        c->named = a;
    return true;
}

bool controllers_heard(struct controllers *c, uint64_t epoch, int64_t now_us)
{
    bool old = epoch > 0 && epoch < c->epoch && now_us - c->epoch_us < CONTROLLERS_EPOCH_US;
    if (old) {
        controllers_missed(c);
        return false;
    }
    c->followed = false;
    if (epoch > 0) {
        c->epoch = epoch;
        c->epoch_us = now_us;
    }
    return true;
}
