/* web_tags.c - writes names of services and pools, which may have any character, as values of labels.
 *
 * Rejected: a digest where a text does not fit, as base/io/kube has it: a listing must give the service back, and
 * nothing else of a machine says it. */
#include "controller/cloud/web/web_tags.h"

#include "base/core/bits.h"
#include "base/core/hash.h"

#include <stdio.h>
#include <string.h>

#define GUARD "0_" /* not followed by two digits: no escape begins so */

static bool is_alphanumeric(const struct web_tag_rule *rule, char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (rule->upper && c >= 'A' && c <= 'Z');
}

/* A '-' or '.' at an end is escaped: a label may not end so. */
static bool is_plain(const struct web_tag_rule *rule, struct str text, size_t at)
{
    char c = text.data[at];
    bool inside = at > 0 && at + 1 < text.len;
    return is_alphanumeric(rule, c) || (inside && (c == '-' || (rule->dot && c == '.')));
}

int web_tag_write(const struct web_tag_rule *rule, struct str text, const char *what,
                  char ret[WEB_TAG_BYTES], struct err *err)
{
    char out[3 * NAME_BYTES + sizeof GUARD];
    size_t len = 0;
    if (text.len >= NAME_BYTES) goto too_long;
    if (text.len > 0 && !is_plain(rule, text, 0)) {
        memcpy(out, GUARD, sizeof GUARD - 1);
        len = sizeof GUARD - 1;
    }
    for (size_t i = 0; i < text.len; i++) {
        if (is_plain(rule, text, i)) {
            out[len++] = text.data[i];
            continue;
        }
        out[len++] = '_';
        hex_from((const uint8_t *)&text.data[i], 1, out + len);
        len += 2;
    }
    if (len >= WEB_TAG_BYTES) goto too_long;
    memcpy(ret, out, len);
    ret[len] = 0;
    return 0;
too_long:
    return err_set(err, -EINVAL,
                   "%s '" STR_FMT
                   "' does not fit a label of this provider: %d characters, of which "
                   "all but %sletters, digits and - count three times",
                   what, STR_ARG(text), WEB_TAG_BYTES - 1, rule->upper ? "" : "lower-case ");
}

int web_tag_read(struct str tag, char *ret, size_t bytes)
{
    size_t len = 0;
    uint8_t byte;
    bool guarded = str_starts(tag, STR(GUARD)) &&
                   !(tag.len >= 4 && hex_to(str_of(tag.data + 2, 2), &byte, 1) == 0);
    for (size_t i = guarded ? sizeof GUARD - 1 : 0; i < tag.len; i++) {
        if (len + 1 >= bytes) return -E2BIG;
        bool escaped = tag.data[i] == '_' && i + 2 < tag.len &&
                       hex_to(str_of(tag.data + i + 1, 2), &byte, 1) == 0;
        ret[len++] = escaped ? (char)byte : tag.data[i];
        i += escaped ? 2 : 0;
    }
    ret[len] = 0;
    return 0;
}

int web_tags_each(const struct web_op *op, struct str fleet,
                  int (*fn)(void *ctx, const char *name, struct str text), void *ctx)
{
    const struct {
        const char *name;
        struct str text;
    } tags[] = {
        { WEB_TAG_FLEET, fleet },
        { WEB_TAG_INTENT, str_from(op->call->intent) },
        { WEB_TAG_SERVICE, op->spec->service },
        { WEB_TAG_POOL, op->spec->pool },
        { WEB_TAG_OFFER, op->spec->offer },
    };
    int rc = 0;
    for (size_t i = 0; i < COUNT_OF(tags) && rc == 0; i++)
        rc = fn(ctx, tags[i].name, tags[i].text);
    return rc;
}

int web_tag_take(struct str name, struct str value, bool written, struct listed *ret)
{
    const struct {
        const char *name;
        char *field;
    } rows[] = {
        { WEB_TAG_INTENT, ret->intent },
        { WEB_TAG_SERVICE, ret->service },
        { WEB_TAG_POOL, ret->pool },
        { WEB_TAG_OFFER, ret->offer },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (str_eq(name, str_from(rows[i].name)))
            return written ? web_tag_read(value, rows[i].field, NAME_BYTES)
                           : name_copy(rows[i].field, NAME_BYTES, value);
    return 0;
}
