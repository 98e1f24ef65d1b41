/* cmd_pull.c - `muster pull`: fetches a model by its name in models.list, or by its URL.
 *
 * HF_ENDPOINT and HF_TOKEN are read here and nowhere else: the hub's own tools have them, and a token in a file of the
 * fleet would be one more place to keep secret. */
#include "base/core/bits.h"
#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/models.h"
#include "cli/command.h"
#include "cli/model/cmd_model.h"
#include "cli/pull/pull_model.h"
#include "cli/remote.h"
#include "cli/schema.h"
#include "controller/config.h"
#include "engine/model/model_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_TAIL_BYTES 20 /* -00001-of-00003.gguf */

struct pull_options {
    struct str what, config, to, sha256, endpoint, at, seeds, seal;
    int64_t retries, max;
    bool evict, report;
    int output;
};

#define AT(member) .offset = offsetof(struct pull_options, member)
// clang-format off
static const struct config_field rows[] = {
    { .name = "config", .letter = 'c', .type = CONFIG_TEXT, .default_text = "muster.yaml", AT(config),
      .about = "Configuration file with the section `models`; a URL needs none." },
    { .name = "to", .type = CONFIG_TEXT, .max = 1024, AT(to),
      .about = "Folder to write to, instead of the model's own place; `models.max` does not hold there." },
    { .name = "at", .type = CONFIG_TEXT, .max = PATH_MAX - 1, .debug = true, AT(at),
      .about = "Path that a model by URL is to have: of several files that of the first, or their folder. Agents say it." },
    { .name = "max", .type = CONFIG_BYTES, .default_text = "0", .min = 0, .max = 1e15, .debug = true, AT(max),
      .about = "at: disk that all files of its folder may take; 0: any." },
    { .name = "seeds", .type = CONFIG_TEXT, .max = PATH_MAX - 1, .debug = true, AT(seeds),
      .about = "File with the agents that may have the model; it is read again when it changes. Needs --sha256." },
    { .name = "seal", .type = CONFIG_TEXT, .max = PATH_MAX - 1, .debug = true, AT(seal),
      .about = "File to write the digests of the model's chunks to, from which an agent gives it to others." },
    { .name = "report", .type = CONFIG_BOOL, .default_text = "false", .debug = true, AT(report),
      .about = "Print a line each quarter of a second: bytes that are there, of all, and of these from other agents." },
    { .name = "sha256", .type = CONFIG_TEXT, .max = SHA256_HEX, AT(sha256),
      .about = "SHA-256 in hex that a model by URL must have; of several files that of their list (docs/models.md)." },
    { .name = "endpoint", .type = CONFIG_TEXT, .max = 512, AT(endpoint),
      .about = "Object store in place of the provider's own, such as https://minio:9000: s3, gs and az by URL." },
    { .name = "evict", .type = CONFIG_BOOL, .default_text = "false", AT(evict),
      .about = "Where room is lacking, remove models of models.list that nothing uses, the one read longest ago first." },
    { .name = "retries", .type = CONFIG_INT, .default_text = "8", .min = 0, .max = 100, .unit = "tries", AT(retries),
      .about = "How often in a row to ask again when nothing comes." },
    REMOTE_OUTPUT_ROW(struct pull_options, output),
};
static const struct opt_positional positionals[] = {
    { .name = "MODEL", .required = true, AT(what),
      .about = "Name in models.list, or a URL: https://, hf://, s3://, gs://, az:// (docs/models.md)." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct pull_options, rows);
static const struct opt_command usage = {
    .name = "muster pull",
    .about = "Fetch a model's files, and check them.",
    .options = &record,
    .positionals = positionals,
    .positional_count = COUNT_OF(positionals),
    .notes =
        "What was cut goes on with the same command. The hub is HF_ENDPOINT, or " PULL_HUB ";\n"
        "HF_TOKEN is sent to it and to no other host. Object stores are asked with the credentials "
        "of the\nenvironment, of the usual files, or of the machine. Proxies are those of "
        "https_proxy, http_proxy "
        "and no_proxy.",
};

struct pulling {
    const struct pull_options *o;
    struct config *config; /* NULL: none */
    const struct models_section *models;
    const struct models_entry *entry; /* NULL: by URL */
    struct pull_model m;
    struct pull_room room;
    char store[512]; /* the object store's endpoint; "": the provider's own */
    char endpoint[512], folder[PATH_MAX], item[NAME_MAX + 1], dest[PATH_MAX];
    char path[PATH_MAX + NAME_MAX]; /* what `model` of a service would say */
    char stamps[PATH_MAX];          /* "": none */
};

static void pulling_fini(struct pulling *p)
{
    pull_room_fini(&p->room);
    config_free(p->config);
}

/* ---- the hub */

static struct str env_text(const char *name)
{
    size_t len = strlen(name);
    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return str_trim(str_from(*e + len + 1));
    return (struct str){ 0 };
}

static bool is_loopback(struct str endpoint)
{
    struct str rest = str_of(endpoint.data + 7, endpoint.len - 7),
               port = str_cut(&rest, '/'); /* http:// */
    struct str host = str_starts(port, STR("[::1]")) ? STR("[::1]") : str_cut(&port, ':');
    return str_eq(host, STR("127.0.0.1")) || str_eq(host, STR("localhost")) ||
           str_eq(host, STR("[::1]"));
}

static int find_hub(struct pulling *p, struct err *err)
{
    struct str endpoint = env_text("HF_ENDPOINT"), token = env_text("HF_TOKEN");
    while (endpoint.len > 0 && endpoint.data[endpoint.len - 1] == '/')
        endpoint.len--;
    if (endpoint.len == 0) endpoint = STR(PULL_HUB);
    bool plain = str_starts(endpoint, STR("http://"));
    if ((!plain && !str_starts(endpoint, STR("https://"))) || endpoint.len >= sizeof p->endpoint)
        return err_set(err, -EINVAL, "HF_ENDPOINT must be a URL such as " PULL_HUB);
    for (size_t i = 0; i < token.len; i++)
        if (token.data[i] <= ' ' || token.data[i] > '~')
            return err_set(err, -EINVAL, "HF_TOKEN has a blank or a character that no token has");
    if (token.len > 0 && plain && !is_loopback(endpoint))
        return err_set(
            err, -EPERM,
            "HF_TOKEN would go over http:// unprotected: let HF_ENDPOINT be an https:// URL, or "
            "unset HF_TOKEN");
    snprintf(p->endpoint, sizeof p->endpoint, STR_FMT, STR_ARG(endpoint));
    p->m.endpoint = str_from(p->endpoint);
    p->m.token = token;
    return 0;
}

/* ---- object stores */

/* The entry's endpoint, or that of the command, or what the usual variables name. */
static int find_store(struct pulling *p, struct err *err)
{
    static const char *const names[][2] = {
        [PULL_STORE_S3] = { "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL" },
        [PULL_STORE_GCS] = { "STORAGE_EMULATOR_HOST" },
        [PULL_STORE_BLOB] = { NULL },
    };
    struct str at = p->entry ? p->entry->endpoint : p->o->endpoint;
    if (p->m.url.store == PULL_STORE_NONE) {
        return at.len == 0
                   ? 0
                   : err_set(err, -EINVAL, "endpoint is for URLs of object stores: s3, gs and az");
    }
    for (size_t i = 0; at.len == 0 && i < 2; i++)
        if (names[p->m.url.store][i]) at = env_text(names[p->m.url.store][i]);
    bool has_scheme = str_starts(at, STR("http://")) || str_starts(at, STR("https://"));
    if (at.len > 0 && (!has_scheme || at.len >= sizeof p->store))
        return err_set(err, -EINVAL,
                       "the endpoint of a store must be a URL such as https://minio:9000");
    for (size_t i = 0; i < at.len; i++)
        if (at.data[i] <= ' ' || at.data[i] > '~' || strchr("?#@", at.data[i]))
            return err_set(err, -EINVAL, "the endpoint of a store is a host, a port and a path");
    snprintf(p->store, sizeof p->store, STR_FMT, STR_ARG(at));
    p->m.store_endpoint = str_from(p->store);
    return 0;
}

/* ---- what and where to */

static int load(struct pulling *p, struct err *err)
{
    const struct config_sources sources = { .path = p->o->config.data,
                                            .environ = (const char *const *)environ };
    bool by_url = pull_url_is(p->o->what);
    if (by_url && p->o->at.len > 0) return 0;
    if (by_url && access(p->o->config.data, F_OK) < 0) return 0;
    int rc = config_load(&schema, &sources, &p->config, NULL, err);
    if (rc < 0) return rc;
    const struct controller_section *c = config_section_get(p->config, controller_section.name);
    p->models = config_section_get(p->config, models_section.name);
    if (snprintf(p->stamps, sizeof p->stamps, "%s/" MODELS_STAMPS, c->state.data) >=
        (int)sizeof p->stamps)
        p->stamps[0] = 0;
    return 0;
}

static int find_source(struct pulling *p, struct err *err)
{
    struct str url = p->o->what;
    p->m.sha256 = p->o->sha256;
    if (!pull_url_is(url)) {
        struct models_place place;
        int rc = models_resolve(p->models, p->o->what, &place, err);
        if (rc < 0) return rc;
        if (!place.entry)
            return err_set(err, -ENOENT,
                           "'" STR_FMT "' is neither a URL nor a name of models.list in %s",
                           STR_ARG(url), p->o->config.data);
        if (place.entry->url.len == 0)
            return err_set(err, -EINVAL, "models.list: %s has no url to fetch it from",
                           place.entry->name.data);
        p->entry = place.entry;
        url = place.entry->url;
        if (p->o->sha256.len == 0) p->m.sha256 = place.entry->sha256;
    }
    uint8_t digest[SHA256_BYTES];
    if (p->m.sha256.len > 0 && hex_to(p->m.sha256, digest, sizeof digest) < 0)
        return err_set(err, COMMAND_MISUSED,
                       "--sha256 must be %d hex digits, as sha256sum prints them", SHA256_HEX);
    return pull_url_parse(url, &p->m.url, err);
}

/* Splits the place into the folder and the name that appears in it. */
static int split(struct pulling *p, const char *path, struct err *err)
{
    struct str base = models_base(str_from(path));
    size_t len = strlen(path) - base.len;
    if (base.len == 0 || base.len > NAME_MAX - 32 || len >= sizeof p->folder)
        return err_set(err, -EINVAL, "%s is no place for a model", path);
    snprintf(p->item, sizeof p->item, STR_FMT, STR_ARG(base));
    while (len > 1 && path[len - 1] == '/')
        len--;
    snprintf(p->folder, sizeof p->folder, "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
    return 0;
}

static int find_place(struct pulling *p, struct err *err)
{
    const char *name = p->m.url.name;
    uint32_t shards = models_shards(str_from(name));
    char path[PATH_MAX];
    int rc = 0, len;
    if (p->entry || p->o->at.len > 0) {
        if (p->entry)
            rc = models_path(p->models, p->entry, path, err);
        else
            snprintf(path, sizeof path, STR_FMT, STR_ARG(p->o->at));
        struct str base = models_base(str_from(path));
        if (rc == 0 && shards > 0 && !str_eq(base, str_from(name)))
            rc =
                err_set(err, -EINVAL, "models.list: the path of %s must end in %s, as its url does",
                        p->entry ? p->entry->name.data : "the model", name);
        if (rc == 0 && shards > 0)
            path[strlen(path) - base.len - (strlen(path) > base.len ? 1 : 0)] = 0;
    } else {
        snprintf(path, sizeof path, "%s/%.*s", p->models ? p->models->folder.data : "models",
                 (int)(strlen(name) - (shards > 0 ? SHARD_TAIL_BYTES : 0)), name);
    }
    if (rc == 0) rc = split(p, path, err);
    if (rc < 0) return rc;
    if (p->o->to.len > 0) snprintf(p->folder, sizeof p->folder, "%s", p->o->to.data);
    len = snprintf(p->dest, sizeof p->dest, "%s/%s", p->folder, p->item);
    if (len >= (int)sizeof p->dest - 32)
        return err_set(err, -ENAMETOOLONG, "%s: the path is too long", p->folder);
    snprintf(p->path, sizeof p->path, "%s%s%s", p->dest, shards > 0 ? "/" : "",
             shards > 0 ? name : "");
    return file_make_folders(p->folder, 0755, err);
}

static void set_room(struct pulling *p)
{
    char folder[PATH_MAX], models[PATH_MAX];
    bool named = p->o->at.len > 0 && p->o->max > 0;
    bool bound = p->models && realpath(p->folder, folder) &&
                 realpath(p->models->folder.data, models) && strcmp(folder, models) == 0;
    p->room = (struct pull_room){ .folder = p->folder,
                                  .config = bound ? p->config : NULL,
                                  .max = bound   ? (uint64_t)p->models->max
                                         : named ? (uint64_t)p->o->max
                                                 : UINT64_MAX,
                                  .item = p->item,
                                  .evict = p->o->evict };
    p->m.seal = p->o->seal.len > 0 ? p->o->seal.data : NULL;
    p->m.report = p->o->report;
    p->m.room = &p->room;
    p->m.dest = p->dest;
}

/* ---- the end */

static int report(const struct pulling *p, const struct pull_result *r, bool present,
                  struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    if (p->o->report) return 0;
    if (p->o->output == REMOTE_JSON) {
        struct json_writer w;
        json_writer_init(&w, &out);
        json_object(&w);
        json_kv_text(&w, "path", p->path);
        json_kv_text(&w, "status", present ? "present" : "pulled");
        json_kv_text(&w, "sha256", r->sha256[0] ? r->sha256 : NULL);
        json_kv_u64(&w, "bytes", r->bytes);
        json_kv_u64(&w, "fetched_bytes", r->fetched);
        json_key(&w, "evicted");
        CLEANUP(buf_fini) struct buf names = { 0 };
        buf_printf(&names, "[%s]", p->room.evicted.len > 0 ? p->room.evicted.data : "");
        json_put_raw(&w, buf_view(&names));
        json_object_end(&w);
        buf_byte(&out, '\n');
        return command_print(&out, err);
    }
    buf_printf(&out, "%s: %s", p->path, present ? "is there already" : "");
    if (!present) model_bytes_text((double)r->bytes, &out);
    if (r->sha256[0]) buf_printf(&out, ", sha256 %s", r->sha256);
    buf_byte(&out, '\n');
    return command_print(&out, err);
}

/* Compares what is there already; without a digest there is nothing to compare. */
static int check_present(struct pulling *p, struct err *err)
{
    struct pull_result r = { 0 };
    const struct model_check check = { .path = p->path,
                                       .sha256 = p->m.sha256,
                                       .stamps = p->stamps[0] ? p->stamps : NULL };
    int rc = p->m.sha256.len > 0 ? model_check(&check, NULL, err) : 0;
    if (rc == -EBADMSG)
        return err_prefix(err, rc, "it is there already; remove it to fetch it anew");
    if (rc < 0) return rc;
    snprintf(r.sha256, sizeof r.sha256, STR_FMT, STR_ARG(p->m.sha256));
    return report(p, &r, true, err);
}

static int fetch(struct pulling *p, struct err *err)
{
    struct pull_wire wire = { 0 };
    struct pull_result r = { 0 };
    const char *const *environment = (const char *const *)environ;
    int rc = pull_wire_open(&wire, (uint32_t)p->o->retries, environment, err);
    const struct pull_login_config login = { .store = p->m.url.store,
                                             .endpoint = p->m.store_endpoint,
                                             .environment = environment,
                                             .loop = wire.loop,
                                             .fetch = wire.fetch,
                                             .stopped = &wire.stopped };
    if (rc == 0 && login.store != PULL_STORE_NONE) rc = pull_login_open(&login, &p->m.login, err);
    if (rc == 0 && p->o->seeds.len > 0 && p->m.sha256.len > 0) {
        p->m.seeds = calloc(1, sizeof *p->m.seeds);
        must(p->m.seeds);
        rc = pull_seeds_open(p->m.seeds, wire.loop, p->o->seeds.data, p->m.sha256, err);
    }
    if (rc == 0) rc = pull_model(&wire, &p->m, &r, err);
    if (p->m.seeds) pull_seeds_close(p->m.seeds);
    free(p->m.seeds);
    p->m.seeds = NULL;
    pull_login_free(TAKE(p->m.login));
    pull_wire_close(&wire);
    if (rc < 0) return rc;
    if (p->stamps[0]) model_check_keep(p->path, p->stamps, r.sha256);
    return report(p, &r, false, err);
}

static int pull(const void *options, struct err *err)
{
    CLEANUP(pulling_fini) struct pulling p = { .o = options };
    int lock;
    int rc = find_hub(&p, err);
    if (rc == 0) rc = load(&p, err);
    if (rc == 0) rc = find_source(&p, err);
    if (rc == 0) rc = find_store(&p, err);
    if (rc == 0) rc = find_place(&p, err);
    if (rc < 0) return rc;
    set_room(&p);
    rc = pull_room_lock(p.folder, p.item, &lock, err);
    if (rc < 0) return rc;
    rc = access(p.dest, F_OK) == 0 ? check_present(&p, err) : fetch(&p, err);
    file_unlock(lock);
    return rc;
}

static int run(int argc, char *const *argv)
{
    struct pull_options options;
    return command_run(&usage, argc, argv, &options, pull);
}

const struct command command_pull = {
    .name = "pull",
    .group = "Configure",
    .about = "fetch a model's files",
    .run = run,
};
