/* service_object.c - turns a MusterService into a service of muster.yaml, and says what is wrong with one.
 *
 * The API server has checked the object by its schema, which is made from the configuration's. What comes here is
 * checked again all the same: the definition may be another release's, and rules that need two fields are in the
 * configuration's code alone. */
#include "controller/objects/service_object.h"

#include "base/core/hash.h"
#include "base/core/json_path.h"
#include "base/core/own.h"

#include <stdio.h>
#include <string.h>

const struct kube_resource service_resource = { SERVICE_GROUP, SERVICE_VERSION, "musterservices",
                                                false };

struct reading {
    struct service_object *o;
    struct json_writer w;
    struct err *err;
};

static int take_member(void *ctx, struct str name, struct str value)
{
    struct reading *r = ctx;
    if (str_eq(name, STR("name"))) return 0;
    if (str_eq(name, STR("replicas"))) {
        if (str_eq(value, STR("null"))) return 0;
        if (str_to_i64(value, &r->o->replicas) < 0 || r->o->replicas < 0)
            return err_set(r->err, -EINVAL, "spec.replicas: want a number of instances, or none");
        return 0;
    }
    json_key_str(&r->w, name);
    json_put_raw(&r->w, value);
    return r->w.out->rc;
}

/* Finds the service's name: the spec's, else the object's. */
static int read_name(struct str spec, struct service_object *o, struct err *err)
{
    CLEANUP(buf_fini) struct buf name = { 0 };
    int rc = json_path_text(spec, "name", &name);
    if (rc == -EINVAL) return err_set(err, rc, "spec.name: want a text");
    struct str text = rc == 0 ? buf_view(&name) : str_from(o->meta.name);
    if (text.len > 0 && text.len < NAME_BYTES) {
        snprintf(o->name, sizeof o->name, STR_FMT, STR_ARG(text));
        return 0;
    }
    return err_set(err, -EINVAL,
                   rc == 0 ? "spec.name: want 1 to %d bytes"
                           : "metadata.name has more than %d bytes: give the service a spec.name",
                   NAME_BYTES - 1);
}

int service_object_read(struct str json, struct service_object *ret, struct err *err)
{
    struct reading r = { .o = ret, .err = err };
    struct str spec;
    *ret = (struct service_object){ .replicas = -1, .service.max = SERVICE_ENTRY_BYTES_MAX };
    int rc = kube_meta_read(json, &ret->meta, err);
    if (rc < 0) return rc;
    rc = json_path(json, "spec", &spec);
    if (rc < 0) return err_set(err, -EINVAL, "spec: it is missing");
    rc = read_name(spec, ret, err);
    if (rc < 0) return rc;
    json_writer_init(&r.w, &ret->service);
    json_object(&r.w);
    json_kv_text(&r.w, "name", ret->name);
    rc = json_path_each_member(spec, "", take_member, &r);
    json_object_end(&r.w);
    if (ret->service.rc < 0)
        return err_set(err, -EINVAL, "spec: it has more than %zu bytes", SERVICE_ENTRY_BYTES_MAX);
    if (rc < 0)
        return err && err->text[0] ? rc : err_set(err, -EINVAL, "spec: want a mapping of settings");
    ret->digest = hash64(ret->service.data, ret->service.len, (uint64_t)ret->replicas);
    return 0;
}

void service_object_fini(struct service_object *o)
{
    buf_fini(&o->service);
    *o = (struct service_object){ 0 };
}

uint64_t service_object_fixed(struct str service)
{
    /* These are refused in a running controller: see the effects in live_config.c. */
    static const char *const fixed[] = { "model", "engine_program" };
    uint64_t digest = 0;
    for (size_t i = 0; i < COUNT_OF(fixed); i++) {
        struct str value = STR("");
        if (json_path(service, fixed[i], &value) == 0)
            digest = hash64(value.data, value.len, digest + i);
    }
    return digest;
}

/* ---- checks ---- */

/* Copies the sentence from `services[` on, with "spec" for each "services[..]": what stands before it names a file
 * and a line that nobody has. */
void service_object_sentence(struct err *err)
{
    static const struct str list = { "services[", 9 };
    struct err out = { 0 };
    size_t n = 0, first = str_find(str_from(err->text), list);
    struct str rest = str_from(err->text);
    if (first == SIZE_MAX) return;
    rest = str_of(rest.data + first, rest.len - first);
    while (rest.len > 0 && n + 5 < sizeof out.text) {
        size_t end = str_starts(rest, list) ? str_find(rest, STR("]")) : SIZE_MAX;
        if (end == SIZE_MAX) {
            out.text[n++] = rest.data[0];
            rest = str_of(rest.data + 1, rest.len - 1);
            continue;
        }
        memcpy(out.text + n, "spec", 4);
        n += 4;
        rest = str_of(rest.data + end + 1, rest.len - end - 1);
    }
    *err = out;
}

static int check_replicas(const struct config *config, const struct service_object *o,
                          struct err *err)
{
    const struct config_records *services = config_section_get(config, services_section.name);
    const struct service_section *s = services->items;
    const struct pool_section *pools = s->pools.items;
    uint32_t min[SCALE_POOLS_MAX] = { 0 }, max[SCALE_POOLS_MAX], share[SCALE_POOLS_MAX];
    for (size_t p = 0; p < s->pools.count; p++)
        max[p] = (uint32_t)pools[p].max;
    return o->replicas < 0
               ? 0
               : service_scale(o->replicas, min, max, (uint32_t)s->pools.count, share, err);
}

int service_object_check(const struct config_schema *schema, const struct service_object *o,
                         struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    CLEANUP(config_freep) struct config *config = NULL;
    struct err why = { 0 };
    buf_printf(&text, "{\"services\":[" STR_FMT "]}", STR_ARG(buf_view(&o->service)));
    if (text.rc < 0) return err_set(err, text.rc, "no memory for the object");
    const struct config_sources sources = { .path = "the object", .text = buf_view(&text) };
    int rc = config_load(schema, &sources, &config, NULL, &why);
    if (rc == 0) rc = check_replicas(config, o, &why);
    if (rc == 0) return 0;
    service_object_sentence(&why);
    return err_set(err, rc, "%s", err_text(&why, rc));
}

/* ---- replicas ---- */

int service_scale(int64_t replicas, const uint32_t *min, const uint32_t *max, uint32_t pools,
                  uint32_t *ret, struct err *err)
{
    int64_t left = replicas, room = 0;
    for (uint32_t p = 0; p < pools; p++) {
        uint32_t least = min_u32(min[p], max[p]);
        room += max[p];
        ret[p] = (uint32_t)min_i64(left, least);
        left -= ret[p];
    }
    for (uint32_t p = 0; p < pools; p++) {
        uint32_t more = (uint32_t)min_i64(left, max[p] - ret[p]);
        ret[p] += more;
        left -= more;
    }
    if (left == 0) return 0;
    return err_set(
        err, -ERANGE,
        "spec.replicas: %lld is above the %lld that the pools hold; raise spec.pools[].max",
        (long long)replicas, (long long)room);
}
