/* keys.c - whether requests need API keys: durable, and closed in doubt.
 *
 * The first tenant closes the service. From then on only a person opens it again: not the end of
 * the last tenant, not a lost store. The state stands in the store and in a file beside it, which
 * outlives a store that somebody moves away; either of them saying "closed" is enough. Closing is
 * therefore written before the tenant that it is for, and opening is done when both are written. */
#include "base/io/file.h"
#include "base/io/log.h"
#include "controller/control_state.h"

#define RECORD STR("keys")
#define TEXT_BYTES_MAX 64

static const char *const texts[KEYS_STATE_COUNT] = {
    [KEYS_NEVER] = "",
    [KEYS_CLOSED] = "muster-keys 1 closed\n",
    [KEYS_OPENED] = "muster-keys 1 opened\n",
};

/* What nobody can read counts as closed. */
static enum keys_state state_of(int rc, struct str text, const char *where)
{
    if (rc == -ENOENT) return KEYS_NEVER;
    for (int s = KEYS_CLOSED; rc == 0 && s < KEYS_STATE_COUNT; s++)
        if (str_eq(text, str_from(texts[s]))) return (enum keys_state)s;
    log_event(LOG_ERROR, "keys_unreadable", "where=%s error=%s", where, err_text(NULL, rc));
    return KEYS_CLOSED;
}

static int put_record(struct control *c, enum keys_state s, struct err *err)
{
    return store_put_if(c->setup.store, RECORD, str_from(texts[s]), STORE_ANY, NULL, err);
}

static int put_file(struct control *c, enum keys_state s, struct err *err)
{
    if (!c->setup.keys_file) return 0;
    return file_write_atomic(c->setup.keys_file, str_from(texts[s]), 0600, err);
}

/* In memory once it is durable in both places. */
static int put_state(struct control *c, enum keys_state s, struct err *err)
{
    int rc = put_file(c, s, err);
    if (rc == 0) rc = put_record(c, s, err);
    if (rc < 0) return rc;
    c->people.keys = s;
    c->people.tenants_version++; /* routers hear of it with the list */
    return 0;
}

int keys_restore(struct control *c, struct err *err)
{
    CLEANUP(buf_fini) struct buf record = { 0 }, file = { 0 };
    int rc = store_get(c->setup.store, RECORD, &record, NULL, err);
    if (rc < 0 && rc != -ENOENT) return rc;
    enum keys_state stored = state_of(rc, buf_view(&record), "store"), beside = KEYS_NEVER;
    if (c->setup.keys_file) {
        rc = file_read(c->setup.keys_file, TEXT_BYTES_MAX, &file, err);
        beside = state_of(rc, buf_view(&file), c->setup.keys_file);
    }
    /* A store of before this record was kept has tenants and no word; they count unread too. */
    bool said = stored != KEYS_NEVER || beside != KEYS_NEVER;
    bool closed = stored == KEYS_CLOSED || beside == KEYS_CLOSED || c->people.tenant_count > 0 ||
                  (!said && c->people.aside.tenants > 0);
    enum keys_state s = closed ? KEYS_CLOSED : stored == KEYS_OPENED ? stored : beside;
    c->people.keys = s;
    bool same = stored == s && (beside == s || !c->setup.keys_file);
    return same ? 0 : put_state(c, s, err);
}

int keys_close(struct control *c, struct err *err)
{
    if (c->people.keys == KEYS_CLOSED) return 0;
    int rc = put_state(c, KEYS_CLOSED, err);
    if (rc == 0) log_event(LOG_INFO, "keys_closed", "why=tenant");
    return rc;
}

bool keys_needed(const struct control *c)
{
    return c->setup.keys_required || c->people.keys == KEYS_CLOSED;
}

int control_keys_open(struct control *c, struct err *err)
{
    if (c->setup.keys_required)
        return err_set(err, -EINVAL, "controller.require_keys is set: keys stay required");
    if (c->people.tenant_count > 0)
        return err_set(err, -EEXIST, "%u tenants have keys; revoke them first",
                       c->people.tenant_count);
    int rc = put_state(c, KEYS_OPENED, err);
    if (rc == 0) log_event(LOG_WARN, "keys_opened", "requests without a key are served");
    return rc;
}
