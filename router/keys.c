/* keys.c - see keys.h.
 *
 * The file is a line of our own, which says whether keys are needed, and behind it the tenants as
 * the controller sends them. The line stands for itself: when a later version writes the tenants in
 * another way, an older router still knows that keys are needed, and refuses all of them until the
 * controller answers.
 */
#include "router/keys.h"

#include "base/core/own.h"
#include "base/io/file.h"

#define FILE_NAME "router.keys"
#define FILE_BYTES_MAX (SYNC_BYTES_MAX + 64)

static const struct str line_required = { "muster-router-keys 1 required\n", 30 };
static const struct str line_none = { "muster-router-keys 1 none\n", 26 };

int keys_init(struct keys *k, struct str file, struct str secret_file, bool always,
              bool has_controller, struct err *err)
{
    *k = (struct keys){ .always = always };
    k->need = always ? KEYS_REQUIRED : has_controller ? KEYS_UNKNOWN : KEYS_NONE;
    buf_init(&k->saved, FILE_BYTES_MAX);
    size_t folder = secret_file.len;
    while (folder > 0 && secret_file.data[folder - 1] != '/')
        folder--;
    if (file.len > 0) {
        buf_str(&k->path, file);
    } else if (secret_file.len > 0) {
        buf_append(&k->path, secret_file.data, folder);
        buf_text(&k->path, FILE_NAME);
    }
    if (k->path.len > 0) buf_byte(&k->path, '\0');
    return k->path.rc < 0 ? err_set(err, k->path.rc, "router.keys_file: no memory") : 0;
}

void keys_fini(struct keys *k)
{
    buf_fini(&k->path);
    buf_fini(&k->saved);
}

int keys_recall(struct keys *k, struct arena *arena, struct router_rules *ret, struct err *err)
{
    if (k->path.len == 0) return -ENOENT;
    int rc = file_read(k->path.data, FILE_BYTES_MAX, &k->saved, err);
    if (rc == -ENOENT) return rc;
    struct str text = buf_view(&k->saved);
    if (rc == 0 && str_starts(text, line_none)) return -ENOENT;
    k->need = KEYS_REQUIRED;
    if (rc == 0 && !str_starts(text, line_required))
        rc = err_set(err, -EINVAL, "%s: not a file of keys that this version knows", k->path.data);
    if (rc < 0) return rc;
    text = str_of(text.data + line_required.len, text.len - line_required.len);
    return router_rules_decode(text, arena, ret, err);
}

void keys_heed(struct keys *k, const struct router_rules *rules)
{
    bool stays = k->need == KEYS_REQUIRED && !rules->keys_opened;
    k->need = k->always || rules->keys_required || stays ? KEYS_REQUIRED : KEYS_NONE;
}

int keys_remember(struct keys *k, const struct router_rules *rules, struct err *err)
{
    if (k->path.len == 0) return 0;
    /* No version of the list: after a restart it is asked for whole, and an unchanged list leaves
     * the file as it is. */
    const struct router_rules kept = { .keys_required = true,
                                       .has_tenants = true,
                                       .tenants = rules->tenants,
                                       .tenant_count = rules->tenant_count,
                                       .tokens = rules->tokens,
                                       .token_count = rules->token_count,
                                       .again_ms = 1 };
    CLEANUP(buf_fini) struct buf text = { 0 };
    buf_init(&text, FILE_BYTES_MAX);
    buf_str(&text, k->need == KEYS_REQUIRED ? line_required : line_none);
    int rc = k->need == KEYS_REQUIRED ? router_rules_encode(&kept, &text) : text.rc;
    if (rc < 0) return err_set(err, rc, "no memory for %s", k->path.data);
    if (str_eq(buf_view(&text), buf_view(&k->saved))) return 0;
    rc = file_write_atomic(k->path.data, buf_view(&text), 0600, err);
    if (rc < 0) return rc;
    buf_clear(&k->saved);
    return buf_str(&k->saved, buf_view(&text));
}
