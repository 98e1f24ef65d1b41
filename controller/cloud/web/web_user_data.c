/* web_user_data.c - fills the template of user data.
 *
 * The default is a shell script, which cloud-init and its likes of other providers run once. It asks the routing
 * table for the address under which the machine reaches the controller, because that is where routers find it. */
#include "controller/cloud/web/web_user_data.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"

#include <string.h>

// clang-format off
const struct str web_user_data_default = STR(
"#!/bin/sh\n"
"# Makes this machine the instance ${INTENT} of a Muster fleet.\n"
"set -eu\n"
"umask 077\n"
"# Once is enough: a machine that was stopped has all of it, and the agent's unit starts with it.\n"
"[ ! -s " WEB_KEY_FILE " ] || exit 0\n"
"mkdir -p " WEB_FOLDER "\n"
"read up idle < /proc/uptime && echo \"machine $up\" > " WEB_BEGUN_FILE "\n"
"echo '${LAUNCH}' | base64 -d > " WEB_LAUNCH_FILE "\n"
"echo '${TOKEN}' | base64 -d > " WEB_TOKEN_FILE "\n"
"echo '${CA}' | base64 -d > " WEB_CA_FILE "\n"
"url='${MUSTER_URL}'\n"
"if [ -n \"$url\" ]; then\n"
"    new=" WEB_FOLDER "/fetched\n"
"    for pause in 1 2 4 8 16 32 0; do\n"
"        curl -fsSL --max-time 600 -o $new \"$url\" && break || sleep $pause\n"
"    done\n"
"    echo \"${MUSTER_SHA256}  $new\" | sha256sum -c -\n"
"    case \"$url\" in\n"
"    *.deb)\n"
"        mv $new $new.deb\n"
"        apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy $new.deb ;;\n"
"    *)\n"
"        install -m 755 $new /usr/local/bin/muster && rm -f $new ;;\n"
"    esac\n"
"fi\n"
"to=$(getent ahostsv4 '${CONTROLLER}' | awk 'NR == 1 { print $1 }')\n"
"here=$(ip -o route get \"${to:-1.1.1.1}\" | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p')\n"
"cat > /etc/systemd/system/muster-instance.service <<END\n"
"[Unit]\n"
"Description=Muster instance ${INTENT}\n"
"Wants=network-online.target\n"
"After=network-online.target\n"
"# An instance that has ended, or that nobody claims, switches its machine off.\n"
"SuccessAction=poweroff\n"
"[Service]\n"
"Environment=MUSTER_AGENT_NOTICE=${NOTICE}\n"
"Environment=MUSTER_AGENT_LISTEN=0.0.0.0:8100\n"
"Environment=MUSTER_AGENT_ENGINE_HOST=$here\n"
"ExecStart=$(command -v muster) agent --spec " WEB_LAUNCH_FILE "\n"
"Restart=on-failure\n"
"[Install]\n"
"WantedBy=multi-user.target\n"
"END\n"
"systemctl daemon-reload\n"
"systemctl enable --now muster-instance.service\n");
// clang-format on

#define CA_BYTES_MAX ((size_t)64 << 10)

struct fill {
    const struct web_settings *settings;
    struct str launch, token, ca, intent, controller, notice;
};

struct name {
    const char *name;
    size_t offset; /* in struct fill; SIZE_MAX: of the section */
    size_t section_offset;
};

#define OWN(member) offsetof(struct fill, member), 0
#define SECTION(member) SIZE_MAX, offsetof(struct web_section, member)
static const struct name names[] = {
    { "LAUNCH", OWN(launch) },
    { "TOKEN", OWN(token) },
    { "CA", OWN(ca) },
    { "INTENT", OWN(intent) },
    { "CONTROLLER", OWN(controller) },
    { "NOTICE", OWN(notice) },
    { "MUSTER_URL", SECTION(muster_url) },
    { "MUSTER_SHA256", SECTION(muster_sha256) },
};

static const struct name *find_name(struct str name)
{
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (str_eq(name, str_from(names[i].name))) return &names[i];
    return NULL;
}

static struct str value_of(const struct fill *f, const struct name *n)
{
    const char *base = n->offset == SIZE_MAX ? (const char *)f->settings->section : (const char *)f;
    return *(const struct str *)(base + (n->offset == SIZE_MAX ? n->section_offset : n->offset));
}

/* Cuts *rest behind the next ${NAME} with a name in upper case, which is what templates of ours have; others are
 * the shell's. Returns the text before it; *ret_name is empty at the end. */
static struct str cut_name(struct str *rest, struct str *ret_name)
{
    struct str all = *rest;
    for (size_t at = 0; at + 2 < all.len; at++) {
        if (all.data[at] != '$' || all.data[at + 1] != '{') continue;
        size_t end = at + 2;
        while (end < all.len &&
               ((all.data[end] >= 'A' && all.data[end] <= 'Z') || all.data[end] == '_' ||
                (all.data[end] >= '0' && all.data[end] <= '9')))
            end++;
        if (end == at + 2 || end == all.len || all.data[end] != '}') continue;
        *ret_name = str_of(all.data + at + 2, end - at - 2);
        *rest = str_of(all.data + end + 1, all.len - end - 1);
        return str_of(all.data, at);
    }
    *ret_name = (struct str){ 0 };
    *rest = (struct str){ 0 };
    return all;
}

int web_user_data_check(const struct web_settings *s, struct err *err)
{
    struct str rest = s->user_data, name;
    bool launch = false, token = false;
    if (s->kind->user_data_bytes == 0)
        return s->section->user_data.len == 0
                   ? 0
                   : err_set(err, -EINVAL, "user_data: kind %s takes none", s->kind->name);
    for (;;) {
        cut_name(&rest, &name);
        if (name.len == 0) break;
        if (!find_name(name))
            return err_set(err, -EINVAL,
                           "user_data: there is no ${" STR_FMT "}; want LAUNCH, TOKEN, CA, "
                           "INTENT, CONTROLLER, NOTICE, MUSTER_URL or MUSTER_SHA256",
                           STR_ARG(name));
        launch = launch || str_eq(name, STR("LAUNCH"));
        token = token || str_eq(name, STR("TOKEN"));
    }
    if (launch && token) return 0;
    return err_set(err, -EINVAL, "user_data: without ${%s} no instance can report",
                   launch ? "TOKEN" : "LAUNCH");
}

int web_user_data_ca(struct str path, struct arena *arena, struct str *ret, struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    *ret = (struct str){ 0 };
    if (path.len == 0) return 0;
    int rc = file_read(path.data, CA_BYTES_MAX, &text, err);
    if (rc < 0) return err_prefix(err, rc, "controller.tls_ca");
    if (str_find(buf_view(&text), STR("-----BEGIN CERTIFICATE-----")) == SIZE_MAX)
        return err_set(err, -EINVAL, "controller.tls_ca: %s has no certificate in PEM", path.data);
    *ret = arena_str(arena, buf_view(&text));
    return ret->data ? 0 : err_set(err, -ENOMEM, "no memory for controller.tls_ca");
}

static int fill(const struct fill *f, struct buf *out)
{
    struct str rest = f->settings->user_data, name;
    do {
        buf_str(out, cut_name(&rest, &name));
        const struct name *n = find_name(name);
        if (n) buf_str(out, value_of(f, n));
    } while (name.len > 0);
    return out->rc;
}

int web_user_data_write(const struct web_settings *s, const struct launch_spec *spec,
                        struct str token, struct buf *out, struct err *err)
{
    CLEANUP(buf_fini) struct buf json = { .max = LAUNCH_BYTES_MAX };
    CLEANUP(buf_fini) struct buf launch = { 0 };
    CLEANUP(buf_fini) struct buf secret = { 0 };
    CLEANUP(buf_fini) struct buf ca = { 0 };
    struct launch_spec here = *spec;
    bool brings_ca = s->ca.len > 0 && str_find(s->user_data, STR("${CA}")) != SIZE_MAX;
    here.folder = STR(WEB_FOLDER); /* the agent makes none */
    here.secret_file = STR(WEB_KEY_FILE);
    here.join_file = STR(WEB_TOKEN_FILE);
    if (brings_ca) here.tls_ca = STR(WEB_CA_FILE);
    int rc = launch_spec_encode(&here, &json);
    if (rc < 0) return err_set(err, rc, "the launch document");
    base64_put(&launch, buf_view(&json));
    base64_put(&secret, token);
    base64_put(&ca, s->ca);
    const struct fill f = { .settings = s,
                            .launch = buf_view(&launch),
                            .token = buf_view(&secret),
                            .ca = buf_view(&ca),
                            .intent = spec->instance,
                            .controller = spec->controller_host,
                            .notice = str_from(s->kind->notice ? s->kind->notice : "none") };
    rc = launch.rc < 0 || secret.rc < 0 || ca.rc < 0 ? -ENOMEM : fill(&f, out);
    if (secret.data) explicit_bzero(secret.data, secret.len);
    if (rc < 0) return err_set(err, rc, "no memory for user data");
    if (out->len <= s->kind->user_data_bytes) return 0;
    return err_set(
        err, -E2BIG,
        "user data of %zu bytes, and %s takes %zu: shorten the pool's engine_flags or the "
        "template",
        out->len, s->kind->name, s->kind->user_data_bytes);
}
