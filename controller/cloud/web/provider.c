/* provider.c - lists the kinds of providers, and keeps logins. */
#include "controller/cloud/web/provider.h"

#include <stdlib.h>
#include <string.h>

/* The one list of kinds: a row here, a file KIND.c with `const struct web_kind web_kind_KIND`. */
// clang-format off
#define KINDS(KIND) \
    KIND(azure)     \
    KIND(ec2)       \
    KIND(exec)      \
    KIND(gce)       \
    KIND(hetzner)   \
    KIND(lambda)    \
    KIND(nova)      \
    KIND(runpod)    \
    KIND(vast)      \
    KIND(webhook)
// clang-format on

#define DECLARE(kind) extern const struct web_kind web_kind_##kind;
KINDS(DECLARE)
#define ROW(kind) &web_kind_##kind,
const struct web_kind *const web_kinds[] = { KINDS(ROW) NULL };
#define NAME(kind) #kind,
const char *const web_kind_names[] = { KINDS(NAME) NULL };

const char *const web_op_names[WEB_OP_COUNT] = {
    [WEB_LOGIN] = "login", [WEB_CREATE] = "create", [WEB_REMOVE] = "remove", [WEB_STOP] = "stop",
    [WEB_START] = "start", [WEB_LIST] = "list",     [WEB_PRICES] = "prices"
};

/* ---- the login ---- */

static void wipe(char **text)
{
    if (*text) explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void web_login_clear(struct web_login *login)
{
    wipe(&login->token);
    wipe(&login->key_id);
    wipe(&login->key);
    wipe(&login->endpoint);
    wipe(&login->region);
    *login = (struct web_login){ .skew_us = login->skew_us };
}

int web_login_set(char **member, struct str text)
{
    char *copy = malloc(text.len + 1);
    if (!copy) return -ENOMEM;
    if (text.len > 0) memcpy(copy, text.data, text.len);
    copy[text.len] = 0;
    wipe(member);
    *member = copy;
    return 0;
}
