/* decide_tenants.c - keys and limits as the controller's list has them: taken over, kept in a file, and
 * read from there before the controller is heard. */
#include "base/io/log.h"
#include "router/decide.h"

/* A list that cannot be used leaves the old one in force. */
static void take_tenants(struct decide *d, const struct router_rules *rules)
{
    struct tenant_keys *keys = NULL;
    struct err err = { 0 };
    int rc = tenant_keys_new(rules, &keys, &err);
    if (rc == 0) rc = tenants_update(d->tenants, rules);
    if (rc < 0) {
        log_event(LOG_WARN, "tenants_refused", "error=%s", err_text(&err, rc));
        tenant_keys_unref(keys);
        return;
    }
    tenant_keys_unref(d->tenant_keys);
    d->tenant_keys = keys;
    d->tenants_version = rules->tenants_version;
}

void decide_tenants_heed(struct decide *d, const struct router_rules *rules)
{
    struct err err = { 0 };
    enum keys_need before = d->keys.need;
    keys_heed(&d->keys, rules);
    bool news = rules->has_tenants && rules->tenants_version != d->tenants_version;
    if (news) take_tenants(d, rules);
    if (d->keys.need != before)
        log_event(LOG_INFO, "api_keys", "required=%d opened=%d", d->keys.need == KEYS_REQUIRED,
                  rules->keys_opened);
    if (!news) return; /* whoever opens or closes the service changes the list's version too */
    int rc = keys_remember(&d->keys, rules, &err);
    if (rc < 0) log_event(LOG_WARN, "keys_not_kept", "error=\"%s\"", err_text(&err, rc));
}

void decide_tenants_recall(struct decide *d)
{
    struct router_rules rules;
    struct err err = { 0 };
    CLEANUP(arena_fini) struct arena arena = { 0 };
    arena_init(&arena, SYNC_BYTES_MAX);
    int rc = keys_recall(&d->keys, &arena, &rules, &err);
    if (rc == 0) take_tenants(d, &rules);
    if (rc < 0 && rc != -ENOENT)
        log_event(LOG_WARN, "keys_not_recalled", "error=\"%s\"", err_text(&err, rc));
}
