/* web_container.c - makes a container an instance.
 *
 * Parts of a value are numbered from 100, so that their order is that of `sort`. */
#include "controller/cloud/web/web_container.h"

#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "controller/cloud/web/web_tags.h"

#include <stdio.h>
#include <string.h>

#define TAG "TAG_"
#define BOOT "BOOT_MUSTER"
#define FIRST_PART 100
#define NAME_MAX_BYTES 64

// clang-format off
const struct str web_user_data_container = STR(
"#!/bin/sh\n"
"# Makes this container the instance ${INTENT} of a Muster fleet.\n"
"set -eu\n"
"for name in $(env | sed -n 's/^\\(BOOT_MUSTER[_0-9]*\\)=.*/\\1/p'); do unset \"$name\"; done\n"
"rm -f " WEB_CONTAINER_FILE "\n"
"umask 077\n"
"echo '${LAUNCH}' | base64 -d > " WEB_LAUNCH_FILE "\n"
"read up idle < /proc/uptime && echo \"container $up\" > " WEB_BEGUN_FILE "\n"
"echo '${TOKEN}' | base64 -d > " WEB_TOKEN_FILE "\n"
"echo '${CA}' | base64 -d > " WEB_CA_FILE "\n"
"url='${MUSTER_URL}'\n"
"muster=muster\n"
"if [ -n \"$url\" ]; then\n"
"    muster=" WEB_FOLDER "/muster\n"
"    for pause in 1 2 4 8 16 32 0; do\n"
"        curl -fsSL --max-time 600 -o $muster \"$url\" && break || sleep $pause\n"
"    done\n"
"    echo \"${MUSTER_SHA256}  $muster\" | sha256sum -c -\n"
"    chmod 755 $muster\n"
"fi\n"
"to=$(getent ahostsv4 '${CONTROLLER}' | awk 'NR == 1 { print $1 }')\n"
"here=$(ip -o route get \"${to:-1.1.1.1}\" 2> /dev/null | sed -n 's/.* src \\([0-9.]*\\).*/\\1/p')\n"
"[ -n \"$here\" ] || here=$(hostname -i | cut -d ' ' -f 1)\n"
"export MUSTER_AGENT_LISTEN=0.0.0.0:8100 MUSTER_AGENT_ENGINE_HOST=$here\n"
"exec $muster agent --spec " WEB_LAUNCH_FILE "\n");
// clang-format on

/* ---- out ---- */

struct put {
    int (*fn)(void *ctx, struct str name, struct str value);
    void *ctx;
};

/* muster-intent is TAG_MUSTER_INTENT. */
static void name_of_tag(const char *tag, char ret[NAME_MAX_BYTES])
{
    size_t at = sizeof TAG - 1;
    memcpy(ret, TAG, at);
    for (; *tag && at + 1 < NAME_MAX_BYTES; tag++)
        ret[at++] = *tag == '-' ? '_' : (char)(*tag >= 'a' && *tag <= 'z' ? *tag - 32 : *tag);
    ret[at] = 0;
}

static int put_tag(void *ctx, const char *tag, struct str text)
{
    const struct put *p = ctx;
    char name[NAME_MAX_BYTES];
    name_of_tag(tag, name);
    return p->fn(p->ctx, str_from(name), text);
}

static int put_boot(const struct put *p, struct str text, size_t value_bytes)
{
    char name[NAME_MAX_BYTES];
    if (value_bytes == 0) return p->fn(p->ctx, STR(BOOT), text);
    int rc = 0;
    for (unsigned part = FIRST_PART; text.len > 0 && rc == 0; part++) {
        size_t len = min_size(text.len, value_bytes);
        snprintf(name, sizeof name, BOOT "_%u", part);
        rc = p->fn(p->ctx, str_from(name), str_of(text.data, len));
        text = str_of(text.data + len, text.len - len);
    }
    return rc;
}

int web_container_env(const struct web_op *op, struct str fleet, size_t value_bytes,
                      int (*fn)(void *ctx, struct str name, struct str value), void *ctx)
{
    CLEANUP(buf_fini) struct buf boot = { 0 };
    struct put put = { fn, ctx };
    int rc = web_tags_each(op, fleet, put_tag, &put);
    if (rc < 0) return rc;
    base64_put(&boot, op->user_data);
    rc = boot.rc < 0 ? -ENOMEM : put_boot(&put, buf_view(&boot), value_bytes);
    if (boot.data) explicit_bzero(boot.data, boot.len);
    return rc;
}

/* ---- in ---- */

void web_container_take(struct str name, struct str value, struct web_machine *ret)
{
    static const char *const tags[] = { WEB_TAG_FLEET, WEB_TAG_INTENT, WEB_TAG_SERVICE,
                                        WEB_TAG_POOL, WEB_TAG_OFFER };
    char of[NAME_MAX_BYTES];
    for (size_t i = 0; i < COUNT_OF(tags); i++) {
        name_of_tag(tags[i], of);
        if (!str_eq(name, str_from(of))) continue;
        if (i == 0)
            web_text_copy(ret->fleet, sizeof ret->fleet, value);
        else if (web_tag_take(str_from(tags[i]), value, false, &ret->listed) < 0)
            ret->listed.unreadable = true;
    }
}
