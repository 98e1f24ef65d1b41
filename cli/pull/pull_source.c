/* pull_source.c - parses URLs and the hub's listing, and chooses the files of a model.
 *
 * Repositories hold the same weights in several forms. A model in Hugging Face's format is what our engines read of
 * one: tensors in safetensors, their index, texts of JSON, the tokenizer and the chat template. `consolidated*` are the
 * same tensors under their makers' own names, which nothing here reads. */
#include "cli/pull/pull_source.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/models.h"
#include "cli/pull/pull_store.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_BYTES ((size_t)16 << 20)
#define WANTED                                                                           \
    "https://HOST/FILE, http://HOST/FILE, hf://ORG/REPO[@REV][/FILE], s3://BUCKET/KEY, " \
    "gs://BUCKET/KEY or az://ACCOUNT/CONTAINER/BLOB"
#define SHOWN_NAMES 8 /* of a repository's GGUF files, in a sentence */

/* ---- names and URLs */

bool pull_url_is(struct str text)
{
    return str_find(text, STR("://")) != SIZE_MAX;
}

static bool part_is_safe(struct str part)
{
    if (part.len == 0 || part.len > PULL_PART_BYTES_MAX || part.data[0] == '.') return false;
    for (size_t i = 0; i < part.len; i++) {
        unsigned char c = (unsigned char)part.data[i];
        if (c < ' ' || c == 0x7f || c == '\\' || c == ':') return false;
    }
    return true;
}

bool pull_name_is_safe(struct str name)
{
    uint32_t depth = 0;
    if (name.len == 0 || name.len > PULL_NAME_BYTES_MAX || name.data[name.len - 1] == '/' ||
        !str_utf8_valid(name))
        return false;
    for (struct str rest = name; rest.len > 0; depth++)
        if (!part_is_safe(str_cut(&rest, '/'))) return false;
    return depth <= PULL_DEPTH_MAX + 1;
}

/* A part of a repository's name, or a revision: what needs no encoding in a path. */
static bool is_word(struct str word)
{
    for (size_t i = 0; i < word.len; i++) {
        char c = word.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || (c == '.' && i > 0);
        if (!plain) return false;
    }
    return word.len > 0 && word.len <= PULL_PART_BYTES_MAX;
}

void pull_url_shown(struct str url, char *ret, size_t bytes)
{
    size_t len = 0;
    while (len < url.len && url.data[len] != '?' && url.data[len] != '#')
        len++;
    snprintf(ret, bytes, "%.*s", (int)len, url.data);
}

static int parse_hub(struct pull_url *ret, struct err *err)
{
    struct str rest = ret->text, all;
    (void)str_cut(&rest, ':');
    rest = all = str_of(rest.data + 2, rest.len - 2);
    struct str org = str_cut(&rest, '/'), repo = str_cut(&rest, '/'), rev = repo;
    bool has_file = rest.data != NULL;
    repo = str_cut(&rev, '@');
    ret->rev = rev.data ? rev : STR("main");
    ret->repo = str_of(org.data, repo.data ? (size_t)(repo.data + repo.len - org.data) : 0);
    ret->file = rest;
    if (!is_word(org) || !is_word(repo) || !is_word(ret->rev))
        return err_set(err, -EINVAL,
                       "'" STR_FMT "' is no model of the hub: want hf://ORG/REPO[@REV][/FILE]",
                       STR_ARG(ret->text));
    if (has_file && !pull_name_is_safe(rest))
        return err_set(err, -EINVAL, "'" STR_FMT "' names no file of a repository",
                       STR_ARG(ret->text));
    struct str base = has_file ? models_base(rest) : repo;
    snprintf(ret->name, sizeof ret->name, STR_FMT, STR_ARG(base));
    return 0;
}

static int parse_http(struct pull_url *ret, struct err *err)
{
    char shown[256];
    struct str rest = ret->text;
    pull_url_shown(ret->text, shown, sizeof shown);
    (void)str_cut(&rest, ':');
    rest = str_of(rest.data + 2, rest.len - 2);
    bool has_path = memchr(rest.data, '/', rest.len) != NULL;
    struct str base = models_url_base(rest);
    if (!has_path || !pull_name_is_safe(base) || memchr(base.data, '%', base.len))
        return err_set(
            err, -EINVAL,
            "the URL %s does not end in a plain file name; give the model a name and a path in "
            "`models.list`",
            shown);
    snprintf(ret->name, sizeof ret->name, STR_FMT, STR_ARG(base));
    return 0;
}

int pull_url_parse(struct str text, struct pull_url *ret, struct err *err)
{
    struct pull_url u = { .text = text, .hub = str_starts(text, STR("hf://")) };
    bool http = str_starts(text, STR("https://")) || str_starts(text, STR("http://"));
    if (text.len > PULL_URL_BYTES_MAX)
        return err_set(err, -EINVAL, "the URL is longer than %u bytes", PULL_URL_BYTES_MAX);
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.data[i] <= ' ' || text.data[i] == 0x7f)
            return err_set(err, -EINVAL, "the URL has a blank or a control character");
    bool store = str_starts(text, STR("s3://")) || str_starts(text, STR("gs://")) ||
                 str_starts(text, STR("az://")) || pull_store_is_blob(text);
    if (!u.hub && !http && !store)
        return err_set(err, -EINVAL, "'%.*s' is not a URL that can be fetched: want " WANTED,
                       (int)min_size(text.len, 200), text.data);
    int rc = u.hub   ? parse_hub(&u, err)
             : store ? pull_store_parse(text, &u, err)
                     : parse_http(&u, err);
    if (rc == 0) *ret = u;
    return rc;
}

/* ---- URLs of the hub */

static void put_encoded(struct str path, struct buf *out)
{
    static const char digit[] = "0123456789ABCDEF";
    for (size_t i = 0; i < path.len; i++) {
        unsigned char c = (unsigned char)path.data[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-_.~/", c);
        if (plain) {
            buf_byte(out, (char)c);
            continue;
        }
        buf_byte(out, '%');
        buf_byte(out, digit[c >> 4]);
        buf_byte(out, digit[c & 15]);
    }
}

int pull_hub_commit_url(struct str endpoint, const struct pull_url *url, struct buf *out)
{
    return buf_printf(out, STR_FMT "/api/models/" STR_FMT "/revision/" STR_FMT, STR_ARG(endpoint),
                      STR_ARG(url->repo), STR_ARG(url->rev));
}

int pull_hub_tree_url(struct str endpoint, const struct pull_url *url, struct str commit,
                      struct buf *out)
{
    return buf_printf(out, STR_FMT "/api/models/" STR_FMT "/tree/" STR_FMT "?recursive=1",
                      STR_ARG(endpoint), STR_ARG(url->repo), STR_ARG(commit));
}

int pull_hub_file_url(struct str endpoint, const struct pull_url *url, struct str commit,
                      struct str name, struct buf *out)
{
    buf_printf(out, STR_FMT "/" STR_FMT "/resolve/" STR_FMT "/", STR_ARG(endpoint),
               STR_ARG(url->repo), STR_ARG(commit));
    put_encoded(name, out);
    return out->rc;
}

int pull_next_page(struct str link, struct str endpoint, struct str *ret, struct err *err)
{
    *ret = (struct str){ 0 };
    for (struct str rest = link; rest.len > 0;) {
        struct str one = str_trim(str_cut(&rest, ','));
        size_t end = str_find(one, STR(">"));
        if (!str_starts(one, STR("<")) || end == SIZE_MAX) continue;
        struct str tail = str_of(one.data + end, one.len - end);
        if (str_find(tail, STR("rel=\"next\"")) == SIZE_MAX) continue;
        struct str url = str_of(one.data + 1, end - 1);
        bool same =
            str_starts(url, endpoint) && url.len > endpoint.len && url.data[endpoint.len] == '/';
        if (!same) /* the token goes to the endpoint alone */
            return err_set(err, -EPROTO,
                           "the hub's next page of files is at another place than the hub");
        *ret = url;
        return 0;
    }
    return 0;
}

/* ---- the listing */

void pull_listing_fini(struct pull_listing *l)
{
    if (l->items) arena_fini(&l->arena);
    free(l->items);
    *l = (struct pull_listing){ 0 };
}

static bool is_hidden(struct str name)
{
    for (struct str rest = name; rest.len > 0;) {
        struct str part = str_cut(&rest, '/');
        bool up = str_eq(part, STR(".")) || str_eq(part, STR(".."));
        if (part.len > 0 && part.data[0] == '.' && !up) return true;
    }
    return false;
}

static void name_shown(struct str name, char ret[80])
{
    size_t n = min_size(name.len, 60);
    for (size_t i = 0; i < n; i++)
        ret[i] = (unsigned char)name.data[i] < ' ' || (unsigned char)name.data[i] > '~'
                     ? '?'
                     : name.data[i];
    snprintf(ret + n, 80 - n, "%s", n < name.len ? "..." : "");
}

static int make_items(struct pull_listing *l, struct err *err)
{
    if (l->items) return 0;
    l->items = calloc(PULL_LISTED_MAX, sizeof *l->items);
    if (!l->items) return err_set(err, -ENOMEM, "no memory for the listing");
    arena_init(&l->arena, ARENA_BYTES);
    return 0;
}

int pull_listing_keep(struct pull_listing *l, struct str name, uint64_t bytes, struct str sha256,
                      struct err *err)
{
    uint8_t digest[SHA256_BYTES];
    char shown[80];
    name_shown(name, shown);
    if (is_hidden(name)) return 0;
    int rc = make_items(l, err);
    if (rc < 0) return rc;
    if (!pull_name_is_safe(name))
        return err_set(
            err, -EINVAL,
            "the listing names a file '%s', which could be written outside the model's folder; "
            "nothing was fetched",
            shown);
    if (sha256.len > 0 && hex_to(sha256, digest, sizeof digest) < 0)
        return err_set(err, -EINVAL, "the listing's digest of %s is no SHA-256", shown);
    for (uint32_t i = 0; i < l->count; i++)
        if (str_eq(l->items[i].name, name))
            return err_set(err, -EINVAL, "the listing names %s twice", shown);
    if (l->count == PULL_LISTED_MAX)
        return err_set(err, -E2BIG, "the repository has more than %u files", PULL_LISTED_MAX);
    struct pull_item item = { arena_str(&l->arena, name), bytes, arena_str(&l->arena, sha256),
                              false };
    if (!item.name.data || !item.sha256.data)
        return err_set(err, -ENOMEM, "no memory for the listing");
    l->items[l->count++] = item;
    return 0;
}

struct page {
    struct pull_listing *l;
    struct err *err;
};

static int add_entry(void *ctx, struct str item)
{
    struct page *p = ctx;
    CLEANUP(buf_fini) struct buf type = { 0 };
    CLEANUP(buf_fini) struct buf path = { 0 };
    CLEANUP(buf_fini) struct buf sha256 = { 0 };
    uint64_t bytes = 0;
    buf_init(&path, 64 << 10);
    if (json_path_text(item, "type", &type) < 0 || json_path_text(item, "path", &path) < 0)
        return err_set(p->err, -EINVAL, "the listing has an entry without a type or a path");
    if (!str_eq(buf_view(&type), STR("file"))) return 0;
    if (json_path_u64(item, "size", &bytes) < 0)
        return err_set(p->err, -EINVAL, "the listing has a file without a size");
    (void)json_path_u64(item, "lfs.size", &bytes);
    (void)json_path_text(item, "lfs.oid",
                         &sha256); /* absent: a small file, which lies in git itself */
    return pull_listing_keep(p->l, buf_view(&path), bytes, buf_view(&sha256), p->err);
}

int pull_listing_add(struct pull_listing *l, struct str json, struct err *err)
{
    struct page page = { l, err };
    int rc = make_items(l, err);
    if (rc < 0) return rc;
    struct str start = json;
    while (start.len > 0 && strchr(" \t\r\n", start.data[0]))
        start = str_of(start.data + 1, start.len - 1);
    if (!str_starts(start, STR("[")))
        return err_set(err, -EINVAL, "the hub's listing is not a list of files");
    if (err) err->text[0] = 0;
    rc = json_path_each(json, "", add_entry, &page);
    if (rc < 0 && err && !err->text[0]) err_set(err, rc, "the hub's listing is not JSON");
    return rc;
}

/* ---- choosing */

/* A file of a model in Hugging Face's format. Of folders only the parts of sentence-transformers' modules count. */
static bool is_part(struct str name)
{
    static const char *const ends[] = { ".safetensors", ".json", ".jinja", ".txt", ".model" };
    struct str base = models_base(name);
    if (base.len < name.len) return str_eq(base, STR("config.json"));
    if (str_starts(name, STR("consolidated"))) return false;
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (str_ends(name, str_from(ends[i]))) return true;
    return false;
}

static int choose_folder(struct pull_listing *l, struct err *err)
{
    const char *gguf[SHOWN_NAMES];
    char list[256];
    uint32_t tensors = 0, ggufs = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        struct pull_item *item = &l->items[i];
        item->chosen = is_part(item->name);
        tensors += item->chosen && str_ends(item->name, STR(".safetensors"));
        if (str_ends(item->name, STR(".gguf")) && ggufs < SHOWN_NAMES)
            gguf[ggufs++] = item->name.data;
    }
    if (tensors > 0) return 0;
    if (ggufs == 0)
        return err_set(
            err, -ENOENT,
            "the repository has no *.safetensors and no *.gguf: no model that is read here");
    str_list(gguf, ggufs, list, sizeof list);
    return err_set(err, -ENOENT,
                   "the repository has GGUF files; name one as hf://ORG/REPO/FILE: %s", list);
}

static int choose_file(struct pull_listing *l, struct str file, struct err *err)
{
    char name[PULL_NAME_BYTES_MAX + 1];
    uint32_t shards = models_shards(file), wanted = shards > 0 ? shards : 1;
    snprintf(name, sizeof name, STR_FMT, STR_ARG(file));
    for (uint32_t n = 1; n <= wanted; n++) {
        bool found = false;
        if (shards > 0) models_shard_name(name, n);
        for (uint32_t i = 0; i < l->count && !found; i++) {
            found = str_eq(l->items[i].name, str_from(name));
            l->items[i].chosen |= found;
        }
        if (!found) return err_set(err, -ENOENT, "the repository has no file %s", name);
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct pull_item *x = a, *y = b;
    return str_cmp(x->name, y->name);
}

int pull_listing_choose(struct pull_listing *l, const struct pull_url *url, struct err *err)
{
    uint32_t count = 0;
    int rc = url->file.len > 0 ? choose_file(l, url->file, err) : choose_folder(l, err);
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < l->count; i++)
        if (l->items[i].chosen) l->items[count++] = l->items[i];
    if (count > PULL_FILES_MAX)
        return err_set(err, -E2BIG, "the model has %u files; %u at most are fetched", count,
                       PULL_FILES_MAX);
    l->count = count;
    qsort(l->items, count, sizeof *l->items, by_name);
    return 0;
}
