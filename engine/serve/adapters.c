/* adapters.c - a table of entries under one lock. An entry that leaves keeps its place until it is free: its memory
 * counts as long as it is there. */
#include "engine/serve/adapters.h"

#include "base/core/bits.h"
#include "base/io/loop/lock.h"

#include <pthread.h>
#include <stdlib.h>

enum entry_state { ENTRY_FREE, ENTRY_READING, ENTRY_READY, ENTRY_LEAVING };

struct adapter_entry {
    enum entry_state state;
    char name[ADAPTER_NAME_BYTES_MAX + 1];
    struct adapter *adapter; /* of READY and LEAVING */
    uint32_t held;
};

struct adapters {
    struct adapters_config config;
    struct lock lock;
    struct adapter_entry entry[ADAPTERS_MAX];
};

int adapters_new(const struct adapters_config *config, struct adapters **ret, struct err *err)
{
    must(config->count_max <= ADAPTERS_MAX);
    struct adapters *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, -ENOMEM, "no memory for adapters");
    a->config = *config;
    lock_init(&a->lock);
    *ret = a;
    return 0;
}

void adapters_free(struct adapters *a)
{
    if (!a) return;
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++) {
        must(a->entry[i].held == 0);
        adapter_free(a->entry[i].adapter);
    }
    lock_fini(&a->lock);
    free(a);
}

const struct adapters_config *adapters_config(const struct adapters *a)
{
    return &a->config;
}

static void entry_clear(struct adapter_entry *e)
{
    adapter_free(e->adapter);
    *e = (struct adapter_entry){ .state = ENTRY_FREE };
}

/* ---- places ---- */

static bool name_is_valid(struct str name)
{
    if (name.len == 0 || name.len > ADAPTER_NAME_BYTES_MAX || !str_utf8_valid(name)) return false;
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.data[i] < 0x20 || name.data[i] == 0x7f) return false;
    return true;
}

/* Finds an entry by name that is read or READY. */
static struct adapter_entry *find(struct adapters *a, struct str name)
{
    lock_assert_held(&a->lock);
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++) {
        struct adapter_entry *e = &a->entry[i];
        bool named = e->state == ENTRY_READING || e->state == ENTRY_READY;
        if (named && str_eq(str_from(e->name), name)) return e;
    }
    return NULL;
}

static struct adapter_entry *find_ready(struct adapters *a, struct str name)
{
    struct adapter_entry *e = find(a, name);
    return e && e->state == ENTRY_READY ? e : NULL;
}

static int check_name(struct adapters *a, struct str name, struct err *err)
{
    if (a->config.count_max == 0)
        return err_set(err, -EPERM, "this engine takes no adapters: it runs without --enable-lora");
    if (!name_is_valid(name))
        return err_set(err, -EINVAL,
                       "the name of an adapter must be 1 to %d bytes of text without "
                       "control characters",
                       ADAPTER_NAME_BYTES_MAX);
    if (str_eq(name, a->config.model_name))
        return err_set(err, -EEXIST, "'" STR_FMT "' is the name of the model itself",
                       STR_ARG(name));
    return 0;
}

int adapters_reserve(struct adapters *a, struct str name, struct adapter_entry **ret,
                     struct err *err)
{
    int rc = check_name(a, name, err);
    if (rc < 0) return rc;
    lock_take(&a->lock);
    struct adapter_entry *place = NULL, *old = find(a, name);
    uint32_t leaving = 0;
    for (uint32_t i = a->config.count_max; i-- > 0;) {
        if (a->entry[i].state == ENTRY_FREE) place = &a->entry[i];
        leaving += a->entry[i].state == ENTRY_LEAVING;
    }
    if (old) {
        rc = err_set(err, -EEXIST,
                     "an adapter '" STR_FMT "' is %s already; unload it first, or use another name",
                     STR_ARG(name), old->state == ENTRY_READY ? "loaded" : "being loaded");
    } else if (!place) {
        rc = err_set(err, -EAGAIN,
                     "%u adapters are loaded, as many as --max-loras allows, %u of them in use by "
                     "their last requests; unload another one",
                     a->config.count_max, leaving);
    } else {
        place->state = ENTRY_READING;
        memcpy(place->name, name.data, name.len);
        *ret = place;
    }
    lock_drop(&a->lock);
    return rc;
}

void adapters_fill(struct adapters *a, struct adapter_entry *e, struct adapter *owned)
{
    lock_take(&a->lock);
    must(e->state == ENTRY_READING);
    e->adapter = owned;
    e->state = ENTRY_READY;
    lock_drop(&a->lock);
}

void adapters_abandon(struct adapters *a, struct adapter_entry *e)
{
    lock_take(&a->lock);
    must(e->state == ENTRY_READING);
    entry_clear(e);
    lock_drop(&a->lock);
}

static int load_one(struct adapters *a, const struct model *m, struct str module, struct err *err)
{
    struct str path = module, name = str_cut(&path, '=');
    struct adapter_entry *e;
    struct adapter *adapter = NULL;
    char text[4096];
    if (path.len == 0 || path.len >= sizeof text)
        return err_set(err, -EINVAL, "'" STR_FMT "' is not NAME=PATH", STR_ARG(module));
    memcpy(text, path.data, path.len);
    text[path.len] = 0;
    int rc = adapters_reserve(a, name, &e, err);
    if (rc < 0) return rc;
    rc = adapter_load(text, m, a->config.rank_max, &adapter, err);
    if (rc < 0)
        adapters_abandon(a, e);
    else
        adapters_fill(a, e, adapter);
    return rc;
}

int adapters_load_all(struct adapters *a, const struct model *m, const struct str *modules,
                      size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        int rc = load_one(a, m, modules[i], err);
        if (rc < 0) return err_prefix(err, rc, "--lora-modules");
    }
    return 0;
}

int adapters_remove(struct adapters *a, struct str name, uint32_t *ret_held)
{
    lock_take(&a->lock);
    struct adapter_entry *e = find_ready(a, name);
    if (e) {
        *ret_held = e->held;
        e->state = ENTRY_LEAVING;
        if (e->held == 0) entry_clear(e);
    }
    lock_drop(&a->lock);
    return e ? 0 : -ENOENT;
}

/* ---- requests ---- */

struct adapter_entry *adapters_hold(struct adapters *a, struct str name)
{
    lock_take(&a->lock);
    struct adapter_entry *e = find_ready(a, name);
    if (e) e->held++;
    lock_drop(&a->lock);
    return e;
}

struct adapter_entry *adapters_hold_digest(struct adapters *a, struct str digest)
{
    struct adapter_entry *found = NULL;
    lock_take(&a->lock);
    for (uint32_t i = 0; i < ADAPTERS_MAX && !found; i++) {
        struct adapter_entry *e = &a->entry[i];
        if (e->state == ENTRY_READY && str_eq(str_from(e->adapter->digest), digest)) found = e;
    }
    if (found) found->held++;
    lock_drop(&a->lock);
    return found;
}

struct adapter_entry *adapters_share(struct adapters *a, struct adapter_entry *e)
{
    if (!e) return NULL;
    lock_take(&a->lock);
    must(e->held > 0);
    e->held++;
    lock_drop(&a->lock);
    return e;
}

void adapters_drop(struct adapters *a, struct adapter_entry *e)
{
    if (!e) return;
    lock_take(&a->lock);
    must(e->held > 0);
    e->held--;
    if (e->held == 0 && e->state == ENTRY_LEAVING) entry_clear(e);
    lock_drop(&a->lock);
}

bool adapters_has(struct adapters *a, struct str name)
{
    lock_take(&a->lock);
    bool has = find_ready(a, name) != NULL;
    lock_drop(&a->lock);
    return has;
}

struct str adapter_entry_name(const struct adapter_entry *e)
{
    return str_from(e->name);
}

const struct adapter *adapter_entry_adapter(const struct adapter_entry *e)
{
    return e->adapter;
}

static int by_name(const void *a, const void *b)
{
    const struct adapter_seen *x = a, *y = b;
    return strcmp(x->name, y->name);
}

uint32_t adapters_list(struct adapters *a, struct adapter_seen ret[ADAPTERS_MAX],
                       uint64_t *ret_bytes)
{
    uint32_t count = 0;
    *ret_bytes = 0;
    lock_take(&a->lock);
    for (uint32_t i = 0; i < ADAPTERS_MAX; i++) {
        const struct adapter_entry *e = &a->entry[i];
        if (e->adapter) *ret_bytes += e->adapter->memory_bytes;
        if (e->state != ENTRY_READY) continue;
        struct adapter_seen *seen = &ret[count++];
        *seen = (struct adapter_seen){ .rank = e->adapter->rank,
                                       .held = e->held,
                                       .bytes = e->adapter->memory_bytes };
        memcpy(seen->name, e->name, sizeof seen->name);
        memcpy(seen->digest, e->adapter->digest, sizeof seen->digest);
    }
    lock_drop(&a->lock);
    qsort(ret, count, sizeof *ret, by_name);
    return count;
}
