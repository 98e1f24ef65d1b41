/* live_config.c - loads, compares and keeps the configuration in force. */
#include "controller/live_config.h"

#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/config/config_diff.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/wire/field.h"
#include "controller/objects/service_list.h"
#include "controller/setup.h"

#include <stdio.h>
#include <string.h>

#define KEY STR("config")
#define SERVICES_KEY STR("config.objects")
#define RECORD_VERSION 1 /* of this record only; for its rules see core/intent.c */
#define RECORD_ARENA_BYTES (2 * LIVE_CONFIG_BYTES_MAX)
#define PATHS_SHOWN 3

const char *const live_source_names[LIVE_SOURCE_COUNT] = { "file", "applied", "objects" };

/* ---- when a change takes effect ---- */

enum effect { EFFECT_NOW, EFFECT_NEW, EFFECT_ELSEWHERE, EFFECT_RESTART, EFFECT_COUNT };
static const char *const effect_names[EFFECT_COUNT] = { "now", "new instances", "elsewhere",
                                                        "restart" };

/* Sections whose changes need no field's word. */
static const struct {
    const char *section;
    enum effect effect;
} sections[] = {
    { "engine", EFFECT_NEW }, /* every engine's command line begins with it */
    { "router",
      EFFECT_ELSEWHERE }, /* routers read it at their start, or take orders of their own */
    { "agent", EFFECT_ELSEWHERE },
};

/* Returns true for what is handed to an instance at its launch: those that run keep theirs. */
static bool is_of_launch(const struct config_change *c)
{
    static const char *const names[] = { "engine_flags", "draft_model", "grace", "age_max" };
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(c->field->name, names[i]) == 0) return true;
    for (size_t i = 0; i < setup_engine_policy_count; i++) {
        char tail[64];
        snprintf(tail, sizeof tail, "].%s", setup_engine_policies[i].key);
        if (str_ends(str_from(c->path), str_from(tail))) return true;
    }
    return false;
}

/* Of several controllers each has addresses and folders of its own, which it reads at its start. */
static bool is_own(const struct live_config *l, const struct config_change *c)
{
    return store_is_shared(l->setup.store) && strcmp(c->section, "controller") == 0 &&
           !c->field->reloadable;
}

static enum effect effect_of(const struct live_config *l, const struct config_change *c)
{
    if (is_own(l, c)) return EFFECT_ELSEWHERE;
    for (size_t i = 0; i < COUNT_OF(sections); i++)
        if (strcmp(c->section, sections[i].section) == 0) return sections[i].effect;
    bool service = strcmp(c->field->name, "services") == 0; /* one came or went */
    if (!service && !c->field->reloadable) return EFFECT_RESTART;
    return is_of_launch(c) ? EFFECT_NEW : EFFECT_NOW;
}

/* ---- loading and comparing ---- */

struct comparing {
    const struct live_config *l;
    struct live_candidate *c;
    struct json_writer w;
    struct buf refused; /* paths that need a restart */
    uint32_t refused_count;
};

static void add_path(struct buf *to, uint32_t count, const char *path)
{
    if (count < PATHS_SHOWN) buf_printf(to, "%s%s", count > 0 ? ", " : "", path);
}

static int on_change(void *ctx, const struct config_change *change)
{
    static const char *const kinds[] = {
        [CONFIG_CHANGED] = "changed", [CONFIG_ADDED] = "added", [CONFIG_REMOVED] = "removed"
    };
    struct comparing *x = ctx;
    enum effect effect = effect_of(x->l, change);
    json_object(&x->w);
    json_kv_text(&x->w, "path", change->path);
    json_kv_text(&x->w, "kind", kinds[change->kind]);
    if (change->kind == CONFIG_CHANGED) {
        json_kv_str(&x->w, "from", change->from);
        json_kv_str(&x->w, "to", change->to);
    }
    json_kv_text(&x->w, "effect", effect_names[effect]);
    json_object_end(&x->w);
    add_path(&x->c->paths, x->c->count++, change->path);
    if (effect == EFFECT_RESTART) add_path(&x->refused, x->refused_count++, change->path);
    return 0;
}

static int compare(const struct live_config *l, struct live_candidate *c, struct err *err)
{
    struct comparing x = { .l = l, .c = c };
    json_writer_init(&x.w, &c->changes);
    json_array(&x.w);
    int rc = config_diff(live_config_get(l), c->config, on_change, &x);
    json_array_end(&x.w);
    if (rc == 0) rc = c->changes.rc;
    if (rc < 0)
        rc = err_set(err, rc, "no memory for the comparison");
    else if (x.refused_count > 0)
        rc = err_set(err, -EINVAL, STR_FMT "%s cannot be changed in a running %s",
                     STR_ARG(buf_view(&x.refused)), x.refused_count > PATHS_SHOWN ? ", ..." : "",
                     c->source == LIVE_OBJECTS
                         ? "service: delete the object and make it anew"
                         : "controller: write it into the file and start the controller again");
    buf_fini(&x.refused);
    return rc;
}

/* Loads a text with the services of a list beside its own. */
static int load_text(const struct live_config *l, const char *name, struct str text,
                     struct str services, struct config **ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf whole = { 0 };
    struct config_sources s = l->setup.sources;
    s.path = name;
    s.text = text.data ? text : STR("");
    if (services.len > 0) {
        int rc = service_list_merge(s.text, name, services, &whole, err);
        if (rc < 0) return rc;
        s.text = buf_view(&whole);
    }
    return config_load(config_schema_of(l->setup.start), &s, ret, NULL, err);
}

/* Keeps copies of what the candidate borrows, so that it can be taken without a failure. */
static int keep_copies(struct live_candidate *c, struct err *err)
{
    int rc = buf_str(&c->kept, c->text);
    if (rc == 0) rc = buf_str(&c->kept_services, c->services);
    return rc < 0 ? err_set(err, rc, "no memory for the configuration") : 0;
}

int live_config_load(const struct live_config *l, struct live_candidate *c, struct err *err)
{
    bool objects = c->source == LIVE_OBJECTS;
    if (objects)
        c->text = buf_view(&l->text), c->name = l->setup.sources.path;
    else
        c->services = buf_view(&l->services);
    if (c->source == LIVE_APPLIED && c->text.len > LIVE_CONFIG_BYTES_MAX)
        return err_set(err, -E2BIG, "%s has %zu bytes, %zu at most can be applied", c->name,
                       c->text.len, LIVE_CONFIG_BYTES_MAX);
    int rc = 0;
    if (!objects && c->services.len > 0) { /* alone first: problems have its lines then */
        CLEANUP(config_freep) struct config *alone = NULL;
        rc = load_text(l, c->name, c->text, (struct str){ 0 }, &alone, err);
    }
    if (rc == 0) rc = load_text(l, c->name, c->text, c->services, &c->config, err);
    if (rc == 0 && l->setup.check) rc = l->setup.check(c->config, err);
    if (rc == 0) rc = keep_copies(c, err);
    return rc < 0 ? rc : compare(l, c, err);
}

void live_candidate_fini(struct live_candidate *c)
{
    config_free(c->config);
    buf_fini(&c->changes);
    buf_fini(&c->paths);
    buf_fini(&c->kept);
    buf_fini(&c->kept_services);
    *c = (struct live_candidate){ 0 };
}

/* ---- digests ---- */

static int gather_section(void *ctx, struct str name, struct str value)
{
    static const char *const others[] = { "controller", "router", "agent" };
    struct buf *to = ctx;
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (str_eq(name, str_from(others[i]))) return 0;
    buf_printf(to, STR_FMT "=" STR_FMT "\n", STR_ARG(name), STR_ARG(value));
    return to->rc;
}

static void gather_reloadable(const struct config_schema *schema, struct str view, struct buf *to)
{
    for (size_t s = 0; s < schema->count; s++) {
        const struct config_section *section = schema->sections[s];
        if (strcmp(section->name, "controller") != 0) continue;
        for (size_t i = 0; i < section->record->field_count; i++) {
            const struct config_field *f = &section->record->fields[i];
            char path[128];
            struct str value;
            snprintf(path, sizeof path, "controller.%s", f->name);
            if (f->reloadable && json_path(view, path, &value) == 0)
                buf_printf(to, "%s=" STR_FMT "\n", path, STR_ARG(value));
        }
    }
}

/* Appends what a text says about the fleet, without what each of several controllers has for itself. */
static int gather_fleet(const struct live_config *l, struct str text, struct buf *to)
{
    CLEANUP(config_freep) struct config *config = NULL;
    CLEANUP(buf_fini) struct buf view = { 0 };
    struct config_sources s = l->setup.sources;
    s.text = text.data ? text : STR("");
    int rc = config_load(config_schema_of(l->setup.start), &s, &config, NULL, NULL);
    if (rc == 0) rc = config_view(config, CONFIG_JSON, false, &view);
    if (rc == 0) rc = json_path_each_member(buf_view(&view), "", gather_section, to);
    if (rc < 0) return rc;
    gather_reloadable(config_schema_of(config), buf_view(&view), to);
    return to->rc;
}

/* Several controllers have a file each, which say the same about the fleet: where the store is shared, the
 * digest is of that. A text that does not load is digested as it is. */
static void digest_of(const struct live_config *l, struct str text, char ret[SHA256_HEX + 1])
{
    CLEANUP(buf_fini) struct buf fleet = { 0 };
    uint8_t digest[SHA256_BYTES];
    if (store_is_shared(l->setup.store) && gather_fleet(l, text, &fleet) == 0)
        text = buf_view(&fleet);
    sha256(text.data ? text.data : "", text.len, digest);
    hex_from(digest, sizeof digest, ret);
}

/* ---- the record ---- */

struct record {
    uint32_t v, source;
    uint64_t generation;
    int64_t at_us;
    struct str by, name, base, text;
};

static const struct field record_fields[] = {
    FIELD(struct record, v, FIELD_U32, .required = true, .min = 1, .max = RECORD_VERSION),
    FIELD(struct record, source, FIELD_ENUM, .required = true, .names = live_source_names,
          .max = LIVE_SOURCE_COUNT),
    FIELD(struct record, generation, FIELD_U64, .required = true, .min = 1),
    FIELD(struct record, at_us, FIELD_I64, .required = true, .max = 9e15),
    FIELD(struct record, by, FIELD_STR, .max = LIVE_CONFIG_BY_BYTES - 1),
    FIELD(struct record, name, FIELD_STR, .max = LIVE_CONFIG_NAME_BYTES - 1),
    FIELD(struct record, base, FIELD_STR, .max = SHA256_HEX),
    FIELD(struct record, text, FIELD_STR, .max = (double)LIVE_CONFIG_BYTES_MAX),
};
static const struct field_set record_set = FIELD_SET(struct record, record_fields);

static int write_record(const struct live_config *l, const struct record *r, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    uint64_t version;
    int rc = fields_encode(&record_set, r, &text);
    if (rc < 0) return err_set(err, rc, "no memory for the configuration's record");
    return store_put_if(l->setup.store, KEY, buf_view(&text), STORE_ANY, &version, err);
}

/* The services of objects are a record of their own, with the generation that they made. */
struct services_record {
    uint32_t v;
    uint64_t generation;
    struct str services;
};

static const struct field services_fields[] = {
    FIELD(struct services_record, v, FIELD_U32, .required = true, .min = 1, .max = RECORD_VERSION),
    FIELD(struct services_record, generation, FIELD_U64, .required = true, .min = 1),
    FIELD(struct services_record, services, FIELD_STR, .max = (double)SERVICE_LIST_BYTES_MAX),
};
static const struct field_set services_set = FIELD_SET(struct services_record, services_fields);

static int keep_services(const struct live_config *l, struct str services, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const struct services_record r = { RECORD_VERSION, l->generation + 1, services };
    uint64_t version;
    if (services.len > SERVICE_LIST_BYTES_MAX)
        return err_set(err, -E2BIG, "the services of all objects have %zu bytes, %zu are kept",
                       services.len, SERVICE_LIST_BYTES_MAX);
    int rc = fields_encode(&services_set, &r, &text);
    if (rc < 0) return err_set(err, rc, "no memory for the services of objects");
    return store_put_if(l->setup.store, SERVICES_KEY, buf_view(&text), STORE_ANY, &version, err);
}

int live_config_keep(struct live_config *l, const struct live_candidate *c, int64_t date_us,
                     struct err *err)
{
    if (c->source == LIVE_OBJECTS) return keep_services(l, c->services, err);
    bool applied = c->source == LIVE_APPLIED;
    const struct record r = { .v = RECORD_VERSION,
                              .source = c->source,
                              .generation = l->generation + 1,
                              .at_us = date_us,
                              .by = str_from(c->by),
                              .name = str_from(c->name),
                              .base = str_from(l->file_digest),
                              .text = applied ? c->text : (struct str){ 0 } };
    return write_record(l, &r, err);
}

static void keep_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from ? from : "");
}

void live_config_restore(struct live_config *l, struct live_candidate *c)
{
    config_free(l->owned);
    l->owned = c->config;
    c->config = NULL;
    buf_fini(&l->text);
    buf_fini(&l->services);
    l->text = c->kept;
    l->services = c->kept_services;
    c->kept = c->kept_services = (struct buf){ 0 };
}

void live_config_take(struct live_config *l, struct live_candidate *c, int64_t date_us)
{
    if (c->source != LIVE_OBJECTS) {
        l->source = c->source;
        keep_text(l->by, sizeof l->by, c->by);
        keep_text(l->name, sizeof l->name, c->name);
        digest_of(l, c->text, l->taken_digest);
    }
    live_config_restore(l, c);
    l->generation++;
    l->at_us = date_us;
    l->refused_us = 0;
}

bool live_config_differs(const struct live_config *l)
{
    return strcmp(l->file_digest, l->taken_digest) != 0;
}

void live_config_refuse(struct live_config *l, const char *by, const struct err *err, int rc,
                        int64_t date_us)
{
    l->refused_us = date_us;
    keep_text(l->refused_by, sizeof l->refused_by, by);
    keep_text(l->refused.text, sizeof l->refused.text, err_text(err, rc));
    log_event(LOG_ERROR, "config_refused", "by=%s error=%s", by, l->refused.text);
}

/* ---- the file ---- */

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool live_config_file_changed(struct live_config *l)
{
    struct stat now;
    if (!l->setup.sources.path || stat(l->setup.sources.path, &now) < 0) return false;
    bool settled = is_same_file(&now, &l->pending);
    l->pending = now;
    return settled && !is_same_file(&now, &l->seen);
}

int live_config_read(struct live_config *l, struct buf *text, struct err *err)
{
    const char *path = l->setup.sources.path;
    struct stat now = { 0 };
    if (path) {
        /* Before the read: a write in between is found at the next look. */
        if (stat(path, &now) < 0) return err_set(err, -errno, "%s: %s", path, strerror(errno));
        int rc = file_read(path, CONFIG_FILE_BYTES_MAX, text, err);
        if (rc < 0) return rc;
    }
    l->seen = l->pending = now;
    digest_of(l, buf_view(text), l->file_digest);
    return 0;
}

/* ---- the start ---- */

const struct config *live_config_get(const struct live_config *l)
{
    return l->owned ? l->owned : l->setup.start;
}

/* Puts the applied configuration of the record into force again. A release that refuses it starts with the
 * file, and says so. */
static int apply_again(struct live_config *l, const struct record *r)
{
    struct config_sources s = l->setup.sources;
    struct err err = { 0 };
    s.path = r->name.data;
    s.text = r->text.data ? r->text : STR("");
    int rc = config_load(config_schema_of(l->setup.start), &s, &l->owned, NULL, &err);
    if (rc == 0 && l->setup.check) rc = l->setup.check(l->owned, &err);
    if (rc == 0) buf_clear(&l->text), rc = buf_str(&l->text, s.text);
    if (rc == 0) return 0;
    config_free(l->owned);
    l->owned = NULL;
    live_config_refuse(l, r->by.data, &err, rc, r->at_us);
    return rc;
}

/* Takes what the record says, if it is still true of the file. */
static void take_record(struct live_config *l, const struct record *r, int64_t date_us)
{
    bool same_file = str_eq(r->base, str_from(l->file_digest));
    bool applied = r->source == LIVE_APPLIED && same_file && apply_again(l, r) == 0;
    l->generation = r->generation;
    if (applied) {
        l->source = LIVE_APPLIED;
        keep_text(l->by, sizeof l->by, r->by.data);
        keep_text(l->name, sizeof l->name, r->name.data);
        l->at_us = r->at_us;
        digest_of(l, r->text, l->taken_digest);
        log_event(LOG_INFO, "config_applied", "generation=%llu by=%s",
                  (unsigned long long)l->generation, l->by);
        return;
    }
    if (r->source == LIVE_FILE && same_file) {
        l->at_us = r->at_us;
        return;
    }
    l->generation++; /* the file was changed since */
    l->at_us = date_us;
    if (r->source == LIVE_APPLIED)
        log_event(LOG_WARN, "config_superseded", "generation=%llu by=%.*s",
                  (unsigned long long)r->generation, STR_ARG(r->by));
}

static int read_record(struct live_config *l, int64_t date_us, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct record r = { 0 };
    struct err why = { 0 };
    arena_init(&arena, RECORD_ARENA_BYTES);
    int rc = store_get(l->setup.store, KEY, &text, NULL, err);
    if (rc < 0) return rc == -ENOENT ? 0 : rc;
    rc = fields_decode(&record_set, buf_view(&text), &arena, &r, "the stored configuration", &why);
    if (rc == 0)
        take_record(l, &r, date_us);
    else
        log_event(LOG_ERROR, "config_unreadable", "error=%s", err_text(&why, rc));
    return 0;
}

/* Reads what objects had in force when the last term ended. A record that cannot be read is as none: the objects
 * themselves are in the cluster. */
static int read_services(struct live_config *l, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(arena_fini) struct arena arena;
    struct services_record r = { 0 };
    struct err why = { 0 };
    arena_init(&arena, RECORD_ARENA_BYTES);
    int rc = store_get(l->setup.store, SERVICES_KEY, &text, NULL, err);
    if (rc < 0) return rc == -ENOENT ? 0 : rc;
    rc = fields_decode(&services_set, buf_view(&text), &arena, &r, "the stored services", &why);
    if (rc < 0) {
        log_event(LOG_ERROR, "services_unreadable", "error=%s", err_text(&why, rc));
        return 0;
    }
    l->generation = max_u64(l->generation, r.generation);
    rc = buf_str(&l->stored, r.services);
    return rc < 0 ? err_set(err, rc, "no memory for the services of objects") : 0;
}

int live_config_open(struct live_config *l, const struct live_config_setup *setup, int64_t date_us,
                     struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    *l = (struct live_config){ .setup = *setup, .generation = 1, .at_us = date_us };
    keep_text(l->by, sizeof l->by, "the start");
    keep_text(l->name, sizeof l->name, setup->sources.path);
    int rc = live_config_read(l, &text, err);
    memcpy(l->taken_digest, l->file_digest, sizeof l->taken_digest);
    if (rc == 0) rc = buf_str(&l->text, buf_view(&text));
    if (rc == 0) rc = read_record(l, date_us, err);
    if (rc == 0) rc = read_services(l, err);
    if (rc < 0 || l->source == LIVE_APPLIED) return rc;
    const struct record r = { .v = RECORD_VERSION,
                              .source = LIVE_FILE,
                              .generation = l->generation,
                              .at_us = l->at_us,
                              .by = str_from(l->by),
                              .name = str_from(l->name),
                              .base = str_from(l->file_digest) };
    return write_record(l, &r, err);
}

void live_config_fini(struct live_config *l)
{
    config_free(l->owned);
    buf_fini(&l->text);
    buf_fini(&l->services);
    buf_fini(&l->stored);
    *l = (struct live_config){ 0 };
}

/* ---- for people ---- */

/* Names the services that come from objects. */
static void put_objects(const struct live_config *l, struct json_writer *w)
{
    CLEANUP(arena_fini) struct arena arena;
    struct service_list list;
    arena_init(&arena, RECORD_ARENA_BYTES);
    json_key(w, "objects");
    json_array(w);
    (void)service_list_read(buf_view(&l->services), &arena, &list, NULL); /* what we wrote */
    for (uint32_t i = 0; i < list.count; i++) {
        json_object(w);
        json_kv_str(w, "object", list.entry[i].object);
        json_kv_str(w, "service", list.entry[i].name);
        json_object_end(w);
    }
    json_array_end(w);
}

int live_config_put(const struct live_config *l, struct buf *out)
{
    struct json_writer w;
    json_writer_init(&w, out);
    json_object(&w);
    json_key(&w, "config");
    json_array(&w);
    json_object(&w);
    json_kv_text(&w, "source", live_source_names[l->source]);
    json_kv_text(&w, "name", l->name[0] ? l->name : NULL);
    json_kv_text(&w, "by", l->by);
    json_kv_u64(&w, "generation", l->generation);
    json_kv_i64(&w, "at_us", l->at_us);
    json_kv_text(&w, "file", l->setup.sources.path);
    json_kv_bool(&w, "file_differs", l->setup.sources.path && live_config_differs(l));
    put_objects(l, &w);
    json_key(&w, "refused");
    if (l->refused_us) {
        json_object(&w);
        json_kv_i64(&w, "at_us", l->refused_us);
        json_kv_text(&w, "by", l->refused_by);
        json_kv_text(&w, "why", l->refused.text);
        json_object_end(&w);
    } else {
        json_put_null(&w);
    }
    json_key(&w, "settings");
    CLEANUP(buf_fini) struct buf settings = { 0 };
    int rc = config_view(live_config_get(l), CONFIG_JSON, false, &settings);
    if (rc < 0) return rc;
    json_put_raw(&w, str_trim(buf_view(&settings)));
    json_object_end(&w);
    json_array_end(&w);
    json_object_end(&w);
    return out->rc;
}
