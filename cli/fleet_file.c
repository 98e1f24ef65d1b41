/* fleet_file.c - read and write the state file. */
#include "cli/fleet_file.h"

#include "base/core/json.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "cli/remote.h"

#include <stdio.h>
#include <unistd.h>

#define FILE_NAME "fleet.json"
#define FILE_BYTES_MAX 65536
#define FILE_VERSION 1

int fleet_file_path(struct str state, const char *name, char ret[PATH_MAX], struct err *err)
{
    int len = snprintf(ret, PATH_MAX, STR_FMT "/%s", STR_ARG(state), name);
    if (len < PATH_MAX) return 0;
    return err_set(err, -ENAMETOOLONG, "the path of the state directory is longer than %d bytes",
                   PATH_MAX);
}

static int pick_into(struct str json, const char *path, char *ret, size_t size)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = json_path_text(json, path, &text);
    if (rc < 0) return rc;
    if (text.len >= size) return -ERANGE;
    if (text.len > 0) memcpy(ret, text.data, text.len);
    ret[text.len] = 0;
    return 0;
}

/* Reads one process's record. An absent one was not started; a damaged one makes the file damaged. */
static int read_part(struct str json, const char *name, struct fleet_file_part *ret)
{
    CLEANUP(buf_fini) struct buf id = { 0 };
    struct str part;
    uint64_t port;
    int rc = json_path(json, name, &part);
    if (rc == -ENOENT) return 0;
    if (rc == 0) rc = json_path_text(part, "process", &id);
    if (rc == 0) rc = proc_id_parse(buf_view(&id), &ret->id);
    if (rc == 0) rc = pick_into(part, "host", ret->host, sizeof ret->host);
    if (rc == 0) rc = json_path_u64(part, "port", &port);
    if (rc == 0 && port > 65535) rc = -ERANGE;
    if (rc == 0) ret->port = (uint16_t)port;
    if (rc < 0) return rc;
    rc = json_path_bool(part, "tls", &ret->tls);
    return rc == -ENOENT ? 0 : rc; /* of an older release: no TLS */
}

/* Reads the TLS settings, which are absent where no process speaks TLS. */
static int read_tls(struct str json, struct fleet_file_tls *ret)
{
    struct str tls;
    int rc = json_path(json, "tls", &tls);
    if (rc == -ENOENT) return 0;
    if (rc == 0) rc = pick_into(tls, "ca", ret->ca, sizeof ret->ca);
    if (rc == 0) rc = pick_into(tls, "certificate", ret->certificate, sizeof ret->certificate);
    if (rc == 0) rc = pick_into(tls, "key", ret->key, sizeof ret->key);
    ret->on = rc == 0;
    return rc;
}

int fleet_file_read(struct str state, struct fleet_file *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    struct fleet_file f = { 0 };
    uint64_t version = 0;
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    if (rc == 0) rc = file_read(path, FILE_BYTES_MAX, &text, err);
    if (rc < 0) return rc;
    struct str json = buf_view(&text);
    rc = json_path_u64(json, "v", &version);
    if (rc == 0 && version != FILE_VERSION)
        return err_set(err, -EPROTO, "%s is of version %llu, this program knows %d", path,
                       (unsigned long long)version, FILE_VERSION);
    if (rc == 0) rc = pick_into(json, "config", f.config, sizeof f.config);
    if (rc == 0) rc = pick_into(json, "secret", f.secret, sizeof f.secret);
    if (rc == 0) rc = read_part(json, "controller", &f.controller);
    if (rc == 0) rc = read_part(json, "router", &f.router);
    if (rc == 0) rc = read_tls(json, &f.tls);
    if (rc < 0) /* -EINVAL, not -ENOENT: the file is there */
        return err_set(err, -EINVAL,
                       "%s is damaged; end the processes it names by hand and remove it", path);
    *ret = f;
    return 0;
}

static void write_part(struct json_writer *w, const char *name, const struct fleet_file_part *p)
{
    char id[PROC_ID_TEXT_MAX];
    if (p->id.pid == 0) return;
    proc_id_print(&p->id, id);
    json_key(w, name);
    json_object(w);
    json_kv_text(w, "process", id);
    json_kv_text(w, "host", p->host);
    json_kv_u64(w, "port", p->port);
    if (p->tls) json_kv_bool(w, "tls", true);
    json_object_end(w);
}

static void write_tls(struct json_writer *w, const struct fleet_file_tls *t)
{
    if (!t->on) return;
    json_key(w, "tls");
    json_object(w);
    json_kv_text(w, "ca", t->ca);
    json_kv_text(w, "certificate", t->certificate);
    json_kv_text(w, "key", t->key);
    json_object_end(w);
}

int fleet_file_write(struct str state, const struct fleet_file *f, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    char path[PATH_MAX];
    struct json_writer w;
    json_writer_init(&w, &text);
    json_object(&w);
    json_kv_u64(&w, "v", FILE_VERSION);
    json_kv_text(&w, "config", f->config);
    json_kv_text(&w, "secret", f->secret);
    write_part(&w, "controller", &f->controller);
    write_part(&w, "router", &f->router);
    write_tls(&w, &f->tls);
    json_object_end(&w);
    buf_byte(&text, '\n');
    if (text.rc < 0) return err_set(err, text.rc, "no memory for the state file");
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    return rc < 0 ? rc : file_write_atomic(path, buf_view(&text), 0600, err);
}

int fleet_file_remove(struct str state, struct err *err)
{
    char path[PATH_MAX];
    int rc = fleet_file_path(state, FILE_NAME, path, err);
    if (rc < 0) return rc;
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    rc = -errno;
    return err_set(err, rc, "cannot remove %s: %s", path, strerror(-rc));
}

void fleet_file_url(const struct fleet_file_part *p, struct buf *out)
{
    struct str host = str_from(p->host);
    if (str_eq(host, STR("0.0.0.0"))) host = STR("127.0.0.1");
    if (str_eq(host, STR("::"))) host = STR("::1");
    bool v6 = str_find(host, STR(":")) != SIZE_MAX;
    buf_printf(out, v6 ? "http%s://[" STR_FMT "]:%u" : "http%s://" STR_FMT ":%u", p->tls ? "s" : "",
               STR_ARG(host), p->port);
}
