/* aside.c - keeps and reports records that cannot be read, while the rest goes on.
 *
 * Rejected: refusing to start, because one bad record of a hundred would stop the controller of the
 * whole fleet until a person has found it; ignoring the record, because the instance or tenant that
 * it stands for would end. */
#include "controller/aside.h"

#include "base/core/bits.h"
#include "controller/control_state.h"

#include <stdio.h>
#include <string.h>

void control_set_aside(struct control *c, struct str key, const char *error)
{
    struct aside *a = &c->people.aside;
    a->total++;
    a->intents += str_starts(key, STR("intent/"));
    a->tenants += str_starts(key, STR("tenant/"));
    log_event(LOG_ERROR, "record_unreadable", "key=" STR_FMT " error=%s", STR_ARG(key), error);
    if (a->count == ASIDE_MAX) {
        control_bound_reached(c, "records_unreadable");
        return;
    }
    struct aside_record *r = &a->record[a->count++];
    snprintf(r->key, sizeof r->key, STR_FMT, STR_ARG(key));
    snprintf(r->error, sizeof r->error, "%s", error);
}

bool control_is_aside(const struct control *c, const char *kind, const char *name)
{
    char key[ASIDE_KEY_BYTES];
    snprintf(key, sizeof key, "%s%s", kind, name);
    for (uint32_t i = 0; i < c->people.aside.count; i++)
        if (strcmp(c->people.aside.record[i].key, key) == 0) return true;
    return false;
}

int control_remove_aside(struct control *c, uint32_t at, struct err *err)
{
    struct aside *a = &c->people.aside;
    struct str key = str_from(a->record[at].key);
    uint64_t version = 0;
    int rc = store_get(c->setup.store, key, NULL, &version, err);
    if (rc == 0) rc = store_delete_if(c->setup.store, key, version, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    log_event(LOG_WARN, "record_removed", "key=" STR_FMT, STR_ARG(key));
    a->total--;
    a->intents -= str_starts(key, STR("intent/"));
    a->tenants -= str_starts(key, STR("tenant/"));
    memmove(&a->record[at], &a->record[at + 1], (--a->count - at) * sizeof *a->record);
    return 0;
}

/* Counts the unreadable instances of a provider's last listing. */
static uint32_t unreadable_of(const struct listing *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; l->ok && i < l->count; i++)
        n += l->item[i].unreadable;
    return n;
}

uint32_t control_aside_count(const struct control *c)
{
    uint32_t n = c->people.aside.total;
    for (uint32_t k = 0; k < c->setup.cloud_count; k++)
        n += unreadable_of(&c->observed.provider[k].listing);
    return n;
}

void control_shadow(struct control *c, uint32_t cloud, const struct listed *item, int64_t now_us)
{
    if (item->unreadable || c->money.count == SLOTS_MAX) return; /* its tags are unknown */
    const char *provider = c->observed.provider[cloud].cloud.driver->name;
    uint32_t offer = control_find_offer(c, provider, item->offer);
    int64_t made_us = item->created_us ? item->created_us : now_us;
    struct intent i = { .state = INTENT_REGISTERED,
                        .adopted = true,
                        .aside = true,
                        .price_h = offer == PLAN_NONE ? 0 : c->money.offer[offer].price_h,
                        .wanted_us = made_us,
                        .called_us = made_us,
                        .made_us = made_us,
                        .registered_us = now_us,
                        .state_us = now_us,
                        .why = "its record cannot be read: it serves, and is not ended" };
    if (name_copy(i.id, sizeof i.id, str_from(item->intent)) < 0) return;
    memcpy(i.service, item->service, sizeof i.service);
    memcpy(i.pool, item->pool, sizeof i.pool);
    memcpy(i.offer, item->offer, sizeof i.offer);
    memcpy(i.handle, item->handle, sizeof i.handle);
    must(name_copy(i.provider, sizeof i.provider, str_from(provider)) == 0);
    c->money.intent[c->money.count] = i;
    control_place(c, c->money.count++, now_us);
    log_event(LOG_WARN, "shadowed", "id=%s service=%s pool=%s", i.id, i.service, i.pool);
}

static bool is_listed(const struct control *c, const struct intent *i)
{
    uint32_t cloud = control_find_cloud(c, i->provider);
    const struct listing *l = cloud == PLAN_NONE ? NULL : &c->observed.provider[cloud].listing;
    if (!l || !l->ok) return true; /* nothing says otherwise */
    for (uint32_t k = 0; k < l->count; k++)
        if (strcmp(l->item[k].intent, i->id) == 0 && !l->item[k].gone) return true;
    return false;
}

void control_drop_shadows(struct control *c)
{
    for (uint32_t at = c->money.count; at-- > 0;) {
        const struct intent *i = &c->money.intent[at];
        if (!i->aside || is_listed(c, i)) continue;
        log_event(LOG_WARN, "shadow_gone", "id=%s", i->id);
        control_drop_slot(c, at);
    }
}

static void put_one(struct json_writer *w, const char *prefix, const char *name, const char *error)
{
    char record[NAME_BYTES + ASIDE_KEY_BYTES];
    snprintf(record, sizeof record, "%s%s", prefix, name);
    json_object(w);
    json_kv_text(w, "record", record);
    json_kv_text(w, "error", error);
    json_object_end(w);
}

void control_put_aside(struct json_writer *w, const struct control *c)
{
    json_key(w, "unreadable");
    json_array(w);
    for (uint32_t i = 0; i < c->people.aside.count; i++)
        put_one(w, "", c->people.aside.record[i].key, c->people.aside.record[i].error);
    for (uint32_t k = 0; k < c->setup.cloud_count; k++)
        for (uint32_t i = 0;
             c->observed.provider[k].listing.ok && i < c->observed.provider[k].listing.count; i++)
            if (c->observed.provider[k].listing.item[i].unreadable)
                put_one(w, "instance/", c->observed.provider[k].listing.item[i].handle,
                        "the provider has it, and its launch document cannot be read");
    json_array_end(w);
}
