/* fake_nova.c - speaks OpenStack's Compute and Identity APIs over a fake fleet.
 *
 * Written from docs.openstack.org/api-ref: members of a create request of microversion 2.1, faults, links of pages, the
 * token's catalogue, preconditions of shelve and unshelve (a server that has a task, or is so already, is a conflict). A name is matched as Nova does it, by a regular expression, of which ^...$ without signs is
 * known. */
#include "tests/fakes/cloud/fake_nova.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDENTITY "/identity/v3"
#define COMPUTE "/compute/v2.1"
#define PAGE_MAX 100 /* small, so that tests have several */
#define VALUE_MAX 255
#define USER_DATA_MAX 65535
#define TOKEN_US ((int64_t)3600 * 1000000)
#define TOKEN_MARK "gAAAAAB-of-the-fake-"
#define NO_HOST "No valid host was found. There are not enough hosts available."
#define TASK_US ((int64_t)2 * 1000000)
#define FAULT_TAG "fake fault" /* of a machine in ERROR; no metadata */

static const struct fake_words words[] = {
    { FLEET_QUOTA, 403, "forbidden",
      "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances" },
    { FLEET_THROTTLE, 413, "overLimit", "This request was rate-limited." },
    { FLEET_AUTH, 401, "unauthorized", "The request you have made requires authentication." },
    { FLEET_FORBIDDEN, 403, "forbidden", "Policy doesn't allow it to be performed." },
    { FLEET_INVALID, 400, "badRequest", "Invalid request." },
    { FLEET_SERVER_ERROR, 500, "computeFault", "Unexpected API Error." },
    { FLEET_UNKNOWN_CODE, 418, "newFault", "words that are in no table" },
    { 0 },
};

static void put_error(struct fake_answer *a, const char *code, const char *message)
{
    struct json_writer *w = &a->w;
    json_object(w);
    json_key(w, code);
    json_object(w);
    json_kv_i64(w, "code", a->status);
    json_kv_text(w, "message", message);
    json_object_end(w);
    json_object_end(w);
}

/* ---- identity ---- */

/* A token tells when it was issued: several are good at a time. */
static void token_text(int64_t issued_us, char ret[64])
{
    snprintf(ret, 64, TOKEN_MARK "%020lld", (long long)issued_us);
}

static bool token_is_good(const struct fake_nova *n, struct str token, int64_t now_us)
{
    int64_t issued_us, lives_us = n->token_us > 0 ? n->token_us : TOKEN_US;
    if (!str_starts(token, STR(TOKEN_MARK))) return false;
    struct str digits = str_of(token.data + strlen(TOKEN_MARK), token.len - strlen(TOKEN_MARK));
    return str_to_i64(digits, &issued_us) == 0 && issued_us >= n->revoked_us &&
           now_us < issued_us + lives_us;
}

static void put_date(struct json_writer *w, const struct fake_answer *a, const char *key,
                     int64_t us)
{
    char text[DATE_BYTES];
    date_print(us + a->date_us, text);
    json_kv_text(w, key, text);
}

static void put_endpoint(struct json_writer *w, struct str origin, const char *interface,
                         const char *region)
{
    char url[256];
    snprintf(url, sizeof url, STR_FMT COMPUTE, STR_ARG(origin));
    json_object(w);
    json_kv_text(w, "id", region);
    json_kv_text(w, "interface", interface);
    json_kv_text(w, "region", region);
    json_kv_text(w, "region_id", region);
    json_kv_text(w, "url", url);
    json_object_end(w);
}

static void put_token(struct fake_answer *a, struct str origin)
{
    struct fake_nova *n = a->own;
    struct json_writer *w = fake_reply(a, 201);
    json_object(w);
    json_key(w, "token");
    json_object(w);
    put_date(w, a, "issued_at", a->now_us);
    put_date(w, a, "expires_at", a->now_us + (n->token_us > 0 ? n->token_us : TOKEN_US));
    json_key(w, "methods");
    json_put_raw(w, STR("[\"password\"]"));
    json_key(w, "user");
    json_put_raw(w, STR("{\"id\":\"u1\",\"name\":\"fleet\",\"domain\":{\"id\":\"default\",\"name\":"
                        "\"Default\"}}"));
    json_key(w, "project");
    json_put_raw(w, STR("{\"id\":\"p1\",\"name\":\"fleet\",\"domain\":{\"id\":\"default\",\"name\":"
                        "\"Default\"}}"));
    json_key(w, "catalog");
    json_array(w);
    json_object(w);
    json_kv_text(w, "type", "compute");
    json_kv_text(w, "name", "nova");
    json_kv_text(w, "id", "c1");
    json_key(w, "endpoints");
    json_array(w);
    put_endpoint(w, origin, "internal", "RegionOne");
    put_endpoint(w, origin, "public", "RegionOne");
    if (n->two_regions) put_endpoint(w, origin, "public", "RegionTwo");
    json_array_end(w);
    json_object_end(w);
    json_array_end(w);
    json_object_end(w);
    json_object_end(w);
}

static const struct form_field domain_form[] = { { "name", FORM_TEXT, false, NULL },
                                                 { "id", FORM_TEXT, false, NULL },
                                                 { 0 } };
static const struct form_field user_form[] = { { "name", FORM_TEXT, true, NULL },
                                               { "domain", FORM_OBJECT, true, domain_form },
                                               { "password", FORM_TEXT, true, NULL },
                                               { 0 } };
static const struct form_field password_form[] = { { "user", FORM_OBJECT, true, user_form },
                                                   { 0 } };
static const struct form_field app_form[] = { { "id", FORM_TEXT, true, NULL },
                                              { "secret", FORM_TEXT, true, NULL },
                                              { 0 } };
static const struct form_field identity_form[] = {
    { "methods", FORM_TEXTS, true, NULL },
    { "password", FORM_OBJECT, false, password_form },
    { "application_credential", FORM_OBJECT, false, app_form },
    { 0 },
};
static const struct form_field project_form[] = { { "id", FORM_TEXT, false, NULL },
                                                  { "name", FORM_TEXT, false, NULL },
                                                  { "domain", FORM_OBJECT, false, domain_form },
                                                  { 0 } };
static const struct form_field scope_form[] = { { "project", FORM_OBJECT, true, project_form },
                                                { 0 } };
static const struct form_field auth_form[] = { { "identity", FORM_OBJECT, true, identity_form },
                                               { "scope", FORM_OBJECT, false, scope_form },
                                               { 0 } };
static const struct form_field login_form[] = { { "auth", FORM_OBJECT, true, auth_form }, { 0 } };

static void login(struct fake_answer *a, struct str origin)
{
    struct fake_nova *n = a->own;
    char why[FORM_WHY_BYTES];
    if (fake_meets(a, FLEET_LOGIN, NULL, NULL) || fake_is_undone(a)) return;
    if (form_check(a->ask->body, login_form, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    const char *password = fake_text(a, "auth.identity.password.user.password");
    const char *secret = fake_text(a, "auth.identity.application_credential.secret");
    if (strcmp(password[0] ? password : secret, n->password) != 0) {
        fake_refuse(a, 401, "error", "The request you have made requires authentication.");
        return;
    }
    n->logins++;
    put_token(a, origin);
}

/* ---- servers ---- */

static void id_text(const struct fleet_machine *m, char ret[40])
{
    snprintf(ret, 40, "00000000-0000-4000-8000-%012llx", (unsigned long long)m->id);
}

static uint64_t id_of(struct str text)
{
    char digits[13];
    if (text.len != 36) return 0;
    snprintf(digits, sizeof digits, "%.12s", text.data + 24);
    return strtoull(digits, NULL, 16);
}

struct server_state {
    const char *status, *task; /* task NULL: none */
};

/* What a server is at a moment: a listing is behind, a look at one is not. */
static struct server_state state_of(const struct fake_answer *a, const struct fleet_machine *m,
                                    int64_t at_us)
{
    const struct fake_nova *n = a->own;
    int64_t task_us = n->task_us > 0 ? n->task_us : TASK_US;
    int64_t looked_us = n->looked_us[m - a->fleet->machine];
    bool looks = looked_us > 0 && at_us >= looked_us && at_us < looked_us + task_us;
    bool again = m->started_us > m->stopped_us && at_us >= m->started_us;
    if (fleet_tag_of(m, FAULT_TAG)[0]) return (struct server_state){ "ERROR", NULL };
    if (m->notice_us > 0 && at_us >= m->notice_us)
        return (struct server_state){ "ACTIVE", "deleting" };
    if (fleet_is_stopped(m, at_us) && at_us < m->stopped_us + task_us)
        return (struct server_state){ "ACTIVE", "shelving_image_uploading" };
    if (fleet_is_stopped(m, at_us))
        return (struct server_state){ "SHELVED_OFFLOADED", looks ? "unshelving" : NULL };
    if (again && at_us < m->started_us + task_us)
        return (struct server_state){ "SHELVED_OFFLOADED", "unshelving" };
    if (again && at_us < m->ready_us)
        return (struct server_state){ "SHELVED_OFFLOADED", "spawning" };
    return (struct server_state){ at_us < m->ready_us ? "BUILD" : "ACTIVE", NULL };
}

static void put_server(struct fake_answer *a, const struct fleet_machine *m, int64_t at_us)
{
    struct json_writer *w = &a->w;
    char id[40];
    const char *fault = fleet_tag_of(m, FAULT_TAG);
    struct server_state state = state_of(a, m, at_us);
    id_text(m, id);
    json_object(w);
    json_kv_text(w, "id", id);
    json_kv_text(w, "name", m->name);
    json_kv_text(w, "status", state.status);
    json_key(w, "OS-EXT-STS:task_state");
    state.task ? json_put_text(w, state.task) : json_put_null(w);
    json_kv_text(w, "OS-EXT-AZ:availability_zone", fault[0] ? "" : m->zone);
    put_date(w, a, "created", m->made_us);
    if (fault[0]) {
        json_key(w, "fault");
        json_object(w);
        json_kv_i64(w, "code", 500);
        json_kv_text(w, "message", fault);
        json_object_end(w);
    }
    json_key(w, "metadata");
    json_object(w);
    for (uint32_t i = 0; i < m->tag_count; i++)
        if (strcmp(m->tag[i].name, FAULT_TAG) != 0)
            json_kv_text(w, m->tag[i].name, m->tag[i].value);
    json_object_end(w);
    json_key(w, "links");
    json_put_raw(w, STR("[]"));
    json_object_end(w);
}

static bool is_named(const struct fleet_machine *m, struct str name)
{
    if (!name.data) return true;
    bool whole = name.len >= 2 && name.data[0] == '^' && name.data[name.len - 1] == '$';
    return whole ? str_eq(str_of(name.data + 1, name.len - 2), str_from(m->name))
                 : str_find(str_from(m->name), name) != SIZE_MAX;
}

static void list_servers(struct fake_answer *a)
{
    static const char *const parameters[] = { "name",     "limit",    "marker", "status",
                                              "sort_key", "sort_dir", NULL };
    char why[FORM_WHY_BYTES];
    uint64_t limit = PAGE_MAX;
    struct str name = form_query(a->arena, a->at.query, "name");
    struct str marker = form_query(a->arena, a->at.query, "marker");
    struct str limit_text = form_query(a->arena, a->at.query, "limit");
    if (form_query_check(a->at.query, parameters, why) < 0 ||
        (limit_text.data && str_to_u64(limit_text, &limit) < 0)) {
        fake_refuse_form(a, "a parameter that is not documented");
        return;
    }
    if (fake_meets(a, FLEET_LIST, NULL, NULL) || fake_is_undone(a)) return;
    uint64_t behind = marker.data ? id_of(marker) : 0, count = 0;
    limit = limit < PAGE_MAX ? limit : PAGE_MAX;
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "servers");
    json_array(w);
    for (uint32_t i = 0; i < a->fleet->count && count <= limit; i++) {
        const struct fleet_machine *m = &a->fleet->machine[i];
        if (m->id <= behind || !fake_fleet_shows(a->fleet, m, a->now_us) || !is_named(m, name))
            continue;
        if (count < limit) put_server(a, m, a->now_us - a->fleet->config.lag_us);
        count++;
    }
    json_array_end(w);
    if (count > limit) {
        json_key(w, "servers_links");
        json_put_raw(w, STR("[{\"rel\":\"next\",\"href\":\"http://elsewhere/\"}]"));
    }
    json_object_end(w);
}

static void list_flavors(struct fake_answer *a)
{
    if (fake_meets(a, FLEET_PRICES, NULL, NULL) || fake_is_undone(a)) return;
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "flavors");
    json_array(w);
    for (uint32_t i = 0; i < a->fleet->config.type_count; i++) {
        char id[16];
        snprintf(id, sizeof id, "f%u", i);
        json_object(w);
        json_kv_text(w, "id", id);
        json_kv_text(w, "name", a->fleet->config.type[i].name);
        json_key(w, "links");
        json_put_raw(w, STR("[]"));
        json_object_end(w);
    }
    json_array_end(w);
    json_object_end(w);
}

/* ---- create ---- */

static const struct form_field network_form[] = { { "uuid", FORM_TEXT, false, NULL },
                                                  { "port", FORM_TEXT, false, NULL },
                                                  { "fixed_ip", FORM_TEXT, false, NULL },
                                                  { 0 } };
static const struct form_field group_form[] = { { "name", FORM_TEXT, true, NULL }, { 0 } };
static const struct form_field disk_form[] = {
    { "boot_index", FORM_ANY, false, NULL },
    { "uuid", FORM_TEXT, false, NULL },
    { "source_type", FORM_TEXT, true, NULL },
    { "destination_type", FORM_TEXT, false, NULL },
    { "volume_size", FORM_WHOLE_OR_TEXT, false, NULL },
    { "delete_on_termination", FORM_BOOL, false, NULL },
    { "device_name", FORM_TEXT, false, NULL },
    { 0 },
};
static const struct form_field server_form[] = {
    { "name", FORM_TEXT, true, NULL },
    { "flavorRef", FORM_TEXT, true, NULL },
    { "imageRef", FORM_TEXT, false, NULL },
    { "networks", FORM_OBJECTS, false, network_form },
    { "security_groups", FORM_OBJECTS, false, group_form },
    { "key_name", FORM_TEXT, false, NULL },
    { "availability_zone", FORM_TEXT, false, NULL },
    { "user_data", FORM_TEXT, false, NULL },
    { "metadata", FORM_MAP, false, NULL },
    { "block_device_mapping_v2", FORM_OBJECTS, false, disk_form },
    { "config_drive", FORM_BOOL, false, NULL },
    { "min_count", FORM_WHOLE_OR_TEXT, false, NULL },
    { "max_count", FORM_WHOLE_OR_TEXT, false, NULL },
    { 0 },
};
static const struct form_field create_form[] = { { "server", FORM_OBJECT, true, server_form },
                                                 { 0 } };

struct tags {
    struct fleet_tag tag[FLEET_TAGS_MAX];
    uint32_t count;
    const char *problem;
};

static int take_tag(void *ctx, struct str name, struct str value)
{
    struct tags *t = ctx;
    CLEANUP(buf_fini) struct buf text = { 0 };
    must(json_path_text(value, "", &text) == 0 && t->count + 1 < FLEET_TAGS_MAX);
    if (name.len == 0 || name.len > VALUE_MAX || text.len > VALUE_MAX)
        t->problem = "a key or value of metadata is too long";
    struct fleet_tag *tag = &t->tag[t->count++];
    snprintf(tag->name, sizeof tag->name, STR_FMT, STR_ARG(name));
    snprintf(tag->value, sizeof tag->value, STR_FMT, STR_ARG(buf_view(&text)));
    return 0;
}

/* The type of a flavorRef; NULL: there is none. */
static const char *type_of(const struct fake_answer *a, const char *flavor)
{
    uint64_t i;
    if (flavor[0] != 'f' || str_to_u64(str_from(flavor + 1), &i) < 0) return NULL;
    return i < a->fleet->config.type_count ? a->fleet->config.type[i].name : NULL;
}

static const char *user_data_of(struct fake_answer *a, const char **problem)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const char *coded = fake_text(a, "server.user_data");
    if (strlen(coded) > USER_DATA_MAX) *problem = "user_data is too long";
    if (base64_take(&text, str_from(coded)) < 0) *problem = "user_data is no base64";
    return arena_str(a->arena, buf_view(&text)).data;
}

static void put_created(struct fake_answer *a, const struct fleet_machine *m)
{
    struct json_writer *w = fake_reply(a, 202);
    char id[40];
    id_text(m, id);
    json_object(w);
    json_key(w, "server");
    json_object(w);
    json_kv_text(w, "id", id);
    json_key(w, "links");
    json_put_raw(w, STR("[]"));
    json_kv_text(w, "OS-DCF:diskConfig", "MANUAL");
    json_kv_text(w, "adminPass", "of-the-fake");
    json_key(w, "security_groups");
    json_put_raw(w, STR("[{\"name\":\"default\"}]"));
    json_object_end(w);
    json_object_end(w);
}

/* Makes the server, in ERROR where its type is sold out. */
static void make_server(struct fake_answer *a, struct fleet_order *o, struct tags *tags)
{
    struct fleet_machine *m;
    bool no_host = a->row && a->row->fault == FLEET_STOCK_OUT;
    int32_t had[FLEET_TYPES_MAX][FLEET_ZONES_MAX];
    for (uint32_t t = 0; t < a->fleet->config.type_count; t++)
        for (uint32_t z = 0; z < a->fleet->config.zone_count; z++)
            if (strcmp(a->fleet->config.type[t].name, o->type) == 0 &&
                strcmp(a->fleet->config.zone[z], o->zone) == 0 && a->fleet->stock[t][z] == 0)
                no_host = true;
    memcpy(had, a->fleet->stock, sizeof had);
    if (no_host) {
        tags->tag[o->tag_count++] = (struct fleet_tag){ .name = FAULT_TAG, .value = NO_HOST };
        fake_fleet_stock(a->fleet, o->type, o->zone, -1);
    }
    if (fake_make(a, o, &m)) {
        if (no_host) m->ready_us = INT64_MAX; /* it never boots */
        put_created(a, m);
    }
    if (no_host) memcpy(a->fleet->stock, had, sizeof had);
}

static void create(struct fake_answer *a)
{
    char why[FORM_WHY_BYTES];
    struct tags tags = { 0 };
    const char *type = type_of(a, fake_text(a, "server.flavorRef"));
    const char *zone = fake_text(a, "server.availability_zone"), *problem = NULL;
    bool refused = fake_meets(a, FLEET_CREATE, type, zone);
    if (form_check(a->ask->body, create_form, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    json_path_each_member(a->ask->body, "server.metadata", take_tag, &tags);
    struct fleet_order o = { .name = fake_text(a, "server.name"),
                             .type = type,
                             .zone = zone[0] ? zone : a->fleet->config.zone[0],
                             .image = fake_text(a, "server.imageRef"),
                             .user_data = user_data_of(a, &problem),
                             .tag = tags.tag,
                             .tag_count = tags.count };
    struct str disks;
    bool has_disk = json_path(a->ask->body, "server.block_device_mapping_v2", &disks) == 0;
    if (!o.image[0] && !has_disk) problem = "neither an image nor a volume to boot from";
    if (tags.problem) problem = tags.problem;
    if (problem) {
        fake_refuse_form(a, problem);
        return;
    }
    if (refused) return;
    if (type)
        make_server(a, &o, &tags);
    else
        fake_refuse(a, 400, "badRequest", "Flavor could not be found.");
}

/* ---- one server ---- */

static void of_server(struct fake_answer *a, struct str id)
{
    struct fleet_machine *m = fake_fleet_find(a->fleet, id_of(id));
    if (str_eq(a->ask->method, STR("DELETE"))) {
        if (fake_meets(a, FLEET_REMOVE, NULL, NULL) || fake_is_undone(a)) return;
        if (m && fake_fleet_remove(a->fleet, m->id, a->now_us))
            fake_reply(a, 204);
        else
            fake_refuse(a, 404, "itemNotFound", "Instance could not be found.");
        return;
    }
    if (!str_eq(a->ask->method, STR("GET"))) {
        fake_refuse_form(a, "no such method");
        return;
    }
    if (fake_meets(a, FLEET_LIST, NULL, NULL) || fake_is_undone(a)) return;
    if (!m || !fake_fleet_shows(a->fleet, m, a->now_us)) {
        fake_refuse(a, 404, "itemNotFound", "Instance could not be found.");
        return;
    }
    struct json_writer *w = fake_reply(a, 200);
    json_object(w);
    json_key(w, "server");
    put_server(a, m, a->now_us);
    json_object_end(w);
}

static const struct form_field shelve_form[] = { { "shelve", FORM_ANY, true, NULL }, { 0 } };
static const struct form_field unshelve_form[] = { { "unshelve", FORM_ANY, true, NULL }, { 0 } };

/* Shelves a server that runs and has no task, or looks for a host for one that is shelved. */
static void turn_server(struct fake_answer *a, struct str id)
{
    struct fake_nova *n = a->own;
    char why[FORM_WHY_BYTES];
    bool on = form_check(a->ask->body, unshelve_form, why) == 0;
    if (!on && form_check(a->ask->body, shelve_form, why) < 0) {
        fake_refuse_form(a, why);
        return;
    }
    if (fake_meets(a, on ? FLEET_START : FLEET_STOP, NULL, NULL) || fake_is_undone(a)) return;
    struct fleet_machine *m = fake_fleet_find(a->fleet, id_of(id));
    if (!m || m->made_us > a->now_us || (m->removed_us > 0 && m->removed_us <= a->now_us)) {
        fake_refuse(a, 404, "itemNotFound", "Instance could not be found.");
        return;
    }
    struct server_state state = state_of(a, m, a->now_us);
    bool shelved = strcmp(state.status, "SHELVED_OFFLOADED") == 0;
    bool sold_out = a->row && a->row->fault == FLEET_STOCK_OUT;
    if (state.task || shelved != on || (!on && strcmp(state.status, "ACTIVE") != 0)) {
        fake_refuse(a, 409, "conflictingRequest",
                    on ? "Cannot 'unshelve' instance while it is in its state"
                       : "Cannot 'shelve' instance while it is in its state");
        return;
    }
    if (!on)
        fake_fleet_stop(a->fleet, m->id, a->now_us);
    else if (sold_out || fake_fleet_start(a->fleet, m->id, a->now_us) == FLEET_STOCK_OUT)
        n->looked_us[m - a->fleet->machine] = a->now_us;
    buf_clear(&a->body);
    a->status = 202;
}

/* ---- requests ---- */

static void route_compute(struct fake_answer *a)
{
    struct str path = a->at.path;
    if (fake_is(a, "POST", "/servers"))
        create(a);
    else if (fake_is(a, "GET", "/servers/detail") || fake_is(a, "GET", "/servers"))
        list_servers(a);
    else if (fake_is(a, "GET", "/flavors"))
        list_flavors(a);
    else if (str_starts(path, STR("/servers/")) && str_ends(path, STR("/action")) &&
             str_eq(a->ask->method, STR("POST")))
        turn_server(a, str_of(path.data + 9, path.len - 9 - 7));
    else if (str_starts(path, STR("/servers/")))
        of_server(a, str_of(path.data + 9, path.len - 9));
    else
        fake_refuse_form(a, "no such path or method");
}

/* Scheme and host of the request, which the catalogue's endpoints are to have. A server is asked by path and Host. */
static struct str origin_of(struct fake_answer *a)
{
    char text[256];
    struct str whole = a->ask->url, host = form_header(a->ask, "host");
    if (whole.len > 0 && whole.data[0] != '/')
        return str_of(whole.data, str_find(whole, a->at.path));
    snprintf(text, sizeof text, "http://" STR_FMT, STR_ARG(host));
    return arena_str(a->arena, str_from(text));
}

static void route(struct fake_answer *a)
{
    struct str path = a->at.path, origin = origin_of(a);
    if (a->ask->body.len > 0 && !str_eq(a->ask->content_type, STR("application/json"))) {
        fake_refuse_form(a, "content-type");
    } else if (fake_is(a, "POST", IDENTITY "/auth/tokens")) {
        login(a, origin);
    } else if (!str_starts(path, STR(COMPUTE "/"))) {
        fake_refuse_form(a, "no such path or method");
    } else if (!token_is_good(a->own, form_header(a->ask, "x-auth-token"), a->now_us)) {
        fake_refuse(a, 401, "unauthorized", "The token has expired.");
    } else {
        a->at.path = str_of(path.data + strlen(COMPUTE), path.len - strlen(COMPUTE));
        route_compute(a);
    }
}

static const struct fake_api api = {
    .base = "", .words = words, .retry_after = true, .put_error = put_error, .route = route
};

static int64_t respond(void *ctx, const struct web_ask *ask, int64_t now_us, struct arena *arena,
                       struct web_reply *ret)
{
    struct fake_nova *n = ctx;
    struct fake_answer a = { .api = &api,
                             .fleet = n->fleet,
                             .own = n,
                             .ask = ask,
                             .arena = arena,
                             .now_us = now_us,
                             .date_us = n->date_us };
    char text[64];
    int64_t took_us;
    if (form_target(ask->url, STR(""), &a.at) < 0)
        fake_refuse_form(&a, "no URL of this API");
    else
        route(&a);
    fake_fill(ret, arena, a.status, &a.body, a.retry_after_us);
    if (a.status == 201) {
        token_text(now_us, text);
        fake_put_header(ret, arena, "x-subject-token", text);
    }
    fleet_break_reply(a.row, ret, &took_us);
    return took_us;
}

static void *open_fake(struct fake_fleet *fleet, const char *token, int64_t date_us)
{
    struct fake_nova *n = calloc(1, sizeof *n);
    must(n);
    *n = (struct fake_nova){ .fleet = fleet, .password = token, .date_us = date_us };
    return n;
}

static const struct fleet_config sold = {
    .type = { { .name = "g1.small", .price_udollars_h = 100000, .cores = 4, .memory_gib = 16 },
              { .name = "g1.large",
                .price_udollars_h = 900000,
                .cores = 16,
                .gpus = 1,
                .memory_gib = 64 } },
    .type_count = 2,
    .zone = { "az1", "az2", "az3" },
    .zone_count = 3,
};

const struct cloud_fake fake_nova = {
    .name = "nova", .fleet = &sold, .open = open_fake, .respond = respond
};
