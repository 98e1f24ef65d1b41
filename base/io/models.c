/* models.c - finds the file that a name of section `models` means.
 *
 * The place of a model that is pulled follows from its URL alone, so that a fleet can be checked, and a Pod's volume
 * laid out, before anything was fetched. */
#include "base/io/models.h"

#include <stdio.h>
#include <unistd.h>

#define SHA256_DIGITS 64
#define SHARD_TAIL "-00001-of-00001.gguf"
#define NAMES_BYTES 256 /* of the list in a sentence */

// clang-format off
#define AT(member) .offset = offsetof(struct models_entry, member)
static const struct config_field entry_rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, .min = 1, .max = MODELS_NAME_BYTES_MAX, AT(name),
      .about = "What `model` of a service or an engine may say in place of a path: letters, digits, dots, dashes and underscores." },
    { .name = "path", .type = CONFIG_TEXT, AT(path),
      .about = "GGUF file (the first of several), or folder in Hugging Face's format; without one it lies in `folder` under its name." },
    { .name = "url", .type = CONFIG_TEXT, AT(url),
      .about = "Where `muster pull` fetches it: https://, hf://, s3://, gs:// or az:// (docs/models.md)." },
    { .name = "endpoint", .type = CONFIG_TEXT, .max = 511, AT(endpoint),
      .about = "Where an s3, gs or az URL's store is, unless it is the provider's own: https://minio:9000." },
    { .name = "sha256", .type = CONFIG_TEXT, .max = SHA256_DIGITS, AT(sha256),
      .about = "SHA-256 in hex that the file must have before it is loaded; of several files that of their list (docs/models.md)." },
};
#undef AT
static const struct config_record entry_record = CONFIG_LIST_OF(struct models_entry, entry_rows, "name");

#define AT(member) .offset = offsetof(struct models_section, member)
static const struct config_field rows[] = {
    { .name = "folder", .type = CONFIG_TEXT, .default_text = "models", .min = 1, .max = 1024, AT(folder),
      .about = "Folder that `muster pull` writes to." },
    { .name = "max", .type = CONFIG_BYTES, .default_text = "1TB", .min = 1 << 20, .max = 1e15, AT(max),
      .about = "Disk that all files of that folder may take; a pull beyond it is refused, or with --evict removes models first." },
    { .name = "list", .type = CONFIG_RECORDS, .min = 0, .max = MODELS_MAX, .record = &entry_record, AT(list),
      .about = "The models that have a name." },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct models_section, rows);

const struct config_section models_section = {
    .name = "models",
    .about =
        "Model files by name: where each lies, what it must hash to, where it is fetched from.",
    .record = &record,
};

struct str models_base(struct str path)
{
    size_t start = 0;
    for (size_t i = 0; i < path.len; i++)
        if (path.data[i] == '/') start = i + 1;
    if (start == 0) return path;
    return str_of(path.data + start, path.len - start);
}

struct str models_url_base(struct str url)
{
    size_t end = 0;
    while (end < url.len && url.data[end] != '?' && url.data[end] != '#')
        end++;
    return models_base(str_of(url.data, end));
}

static bool is_number(const char *digits, uint32_t *ret)
{
    uint32_t value = 0;
    for (int i = 0; i < 5; i++) {
        if (digits[i] < '0' || digits[i] > '9') return false;
        value = value * 10 + (uint32_t)(digits[i] - '0');
    }
    *ret = value;
    return true;
}

uint32_t models_shards(struct str file)
{
    const size_t tail = sizeof SHARD_TAIL - 1;
    uint32_t number = 0, count = 0;
    if (file.len <= tail) return 0;
    const char *at = file.data + file.len - tail;
    bool shard = at[0] == '-' && is_number(at + 1, &number) && memcmp(at + 6, "-of-", 4) == 0 &&
                 is_number(at + 10, &count) && memcmp(at + 15, ".gguf", 5) == 0;
    return shard && number == 1 && count > 1 && count <= MODELS_SHARDS_MAX ? count : 0;
}

void models_shard_name(char *name, uint32_t number)
{
    char digits[16];
    size_t len = strlen(name), tail = sizeof SHARD_TAIL - 1;
    must(len > tail && number > 0 && number <= MODELS_SHARDS_MAX);
    snprintf(digits, sizeof digits, "%05u", number);
    memcpy(name + len - tail + 1, digits, 5);
}

const struct models_entry *models_find(const struct models_section *m, struct str name)
{
    const struct models_entry *e = m ? m->list.items : NULL;
    for (size_t i = 0; m && i < m->list.count; i++)
        if (str_eq(e[i].name, name)) return &e[i];
    return NULL;
}

static bool is_name(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (i == 0 || (c != '.' && c != '-' && c != '_'))) return false;
    }
    return name.len > 0;
}

static bool is_digest(struct str hex)
{
    for (size_t i = 0; i < hex.len; i++) {
        char c = hex.data[i];
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
            return false;
    }
    return hex.len == SHA256_DIGITS;
}

int models_entry_check(const struct models_entry *e, struct err *err)
{
    const char *name = e->name.data;
    if (!is_name(e->name))
        return err_set(err, -EINVAL,
                       "models.list: the name '%s' may have letters, digits, and behind the first "
                       "also dots, dashes and underscores",
                       name);
    if (e->path.len == 0 && e->url.len == 0)
        return err_set(err, -EINVAL, "models.list: %s has neither a path nor a url: give one",
                       name);
    if (e->sha256.len > 0 && !is_digest(e->sha256))
        return err_set(err, -EINVAL,
                       "models.list: sha256 of %s must be %d hex digits, as sha256sum prints them",
                       name, SHA256_DIGITS);
    return 0;
}

int models_path(const struct models_section *m, const struct models_entry *e, char ret[PATH_MAX],
                struct err *err)
{
    struct str file = models_url_base(e->url);
    int len;
    if (e->path.len > 0)
        len = snprintf(ret, PATH_MAX, STR_FMT, STR_ARG(e->path));
    else if (models_shards(file) > 0)
        len = snprintf(ret, PATH_MAX, STR_FMT "/" STR_FMT "/" STR_FMT, STR_ARG(m->folder),
                       STR_ARG(e->name), STR_ARG(file));
    else
        len = snprintf(ret, PATH_MAX, STR_FMT "/" STR_FMT "%s", STR_ARG(m->folder),
                       STR_ARG(e->name), str_ends(file, STR(".gguf")) ? ".gguf" : "");
    if (len < PATH_MAX) return 0;
    return err_set(err, -ENAMETOOLONG, "the path of model %s is longer than %d bytes", e->name.data,
                   PATH_MAX);
}

static int no_such_name(const struct models_section *m, struct str model, struct err *err)
{
    const char *names[MODELS_MAX];
    char list[NAMES_BYTES];
    const struct models_entry *e = m->list.items;
    for (size_t i = 0; i < m->list.count; i++)
        names[i] = e[i].name.data;
    const char *near = str_nearest(model, names, m->list.count);
    str_list(names, m->list.count, list, sizeof list);
    return err_set(
        err, -ENOENT,
        "'" STR_FMT "' is no name of models.list, which has %s%s%s%s; a path has a slash "
        "or ends in .gguf",
        STR_ARG(model), list, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

int models_resolve(const struct models_section *m, struct str model, struct models_place *ret,
                   struct err *err)
{
    const struct models_entry *e = models_find(m, model);
    if (e) {
        int rc = models_entry_check(e, err);
        if (rc == 0) rc = models_path(m, e, ret->path, err);
        if (rc == 0) ret->entry = e;
        return rc;
    }
    if (model.len >= sizeof ret->path)
        return err_set(err, -ENAMETOOLONG, "the path of the model is longer than %d bytes",
                       PATH_MAX);
    char path[PATH_MAX];
    snprintf(path, sizeof path, STR_FMT, STR_ARG(model));
    bool is_path = !m || m->list.count == 0 || strchr(path, '/') || str_ends(model, STR(".gguf")) ||
                   access(path, F_OK) == 0;
    if (!is_path) return no_such_name(m, model, err);
    ret->entry = NULL;
    memcpy(ret->path, path, sizeof path);
    return 0;
}
