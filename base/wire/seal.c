/* seal.c - writes and reads seals of models. */
#include "base/wire/seal.h"

#include "base/core/bits.h"

#define HEAD "muster-seal 1"

int seal_write(const struct seal *s, struct buf *out)
{
    char hex[SHA256_HEX + 1];
    buf_printf(out, HEAD "\nmodel %s\n", s->sha256);
    for (uint32_t f = 0; f < s->file_count; f++) {
        const struct seal_file *file = &s->file[f];
        buf_printf(out, "file %s %llu " STR_FMT "\n", file->sha256, (unsigned long long)file->bytes,
                   STR_ARG(file->name));
        for (uint32_t c = 0; c < seal_chunks(file->bytes); c++) {
            hex_from(file->chunk[c], SHA256_BYTES, hex);
            buf_printf(out, "chunk %s\n", hex);
        }
    }
    return out->rc;
}

static int bad(struct err *err, const char *what)
{
    return err_set(err, -EINVAL, "the seal of the model %s", what);
}

/* Reads lower-case hex into its text form. */
static bool take_digest(struct str hex, char ret[SHA256_HEX + 1])
{
    uint8_t digest[SHA256_BYTES];
    if (hex.len != SHA256_HEX || hex_to(hex, digest, sizeof digest) < 0) return false;
    hex_from(digest, sizeof digest, ret);
    return true;
}

/* A relative path of plain parts: it may become one below a model's folder. */
static bool name_is_safe(struct str name)
{
    if (name.len == 0 || name.len > SEAL_NAME_BYTES_MAX || !str_utf8_valid(name)) return false;
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.data[i] < ' ' || strchr("\\:\x7f", name.data[i])) return false;
    if (name.data[name.len - 1] == '/') return false;
    for (struct str rest = name; rest.len > 0;) {
        struct str part = str_cut(&rest, '/');
        if (part.len == 0 || part.data[0] == '.') return false;
    }
    return true;
}

static int read_file(struct str line, struct str *rest, struct arena *arena, struct seal_file *ret,
                     struct err *err)
{
    struct str name = line, digest = str_cut(&name, ' '), size = str_cut(&name, ' ');
    if (!take_digest(digest, ret->sha256) || str_to_u64(size, &ret->bytes) < 0 ||
        !name_is_safe(name))
        return bad(err, "has a file without digest, size or a plain name");
    /* A chunk takes a line, so that a size beyond the text's is found before memory is asked for. */
    if (ret->bytes / SEAL_CHUNK_BYTES > rest->len / SHA256_HEX)
        return bad(err, "has fewer chunks than a file needs");
    uint32_t chunks = seal_chunks(ret->bytes);
    ret->name = arena_str(arena, name);
    ret->chunk = arena_array(arena, chunks + 1, sizeof *ret->chunk);
    if (!ret->name.data || !ret->chunk) return err_set(err, -ENOMEM, "no memory for a seal");
    for (uint32_t c = 0; c < chunks; c++) {
        struct str text = str_cut(rest, '\n'), word = str_cut(&text, ' ');
        if (!str_eq(word, STR("chunk")) || hex_to(text, ret->chunk[c], SHA256_BYTES) < 0)
            return bad(err, "has fewer chunks than a file needs");
    }
    return 0;
}

/* Returns true if the digests of the files make the model's: the file's own, or that of the list that sha256sum
 * prints. */
static bool makes_model(const struct seal *s)
{
    char joined[SHA256_HEX + 1];
    uint8_t digest[SHA256_BYTES];
    bool one = s->file_count == 1 && str_eq(s->file[0].name, STR(SEAL_ONE_FILE));
    if (one) return str_eq(str_from(s->file[0].sha256), str_from(s->sha256));
    struct sha256_run *run = sha256_begin();
    for (uint32_t f = 0; f < s->file_count; f++) {
        sha256_more(run, s->file[f].sha256, SHA256_HEX);
        sha256_more(run, "  ", 2);
        sha256_more(run, s->file[f].name.data, s->file[f].name.len);
        sha256_more(run, "\n", 1);
    }
    sha256_end(run, digest);
    hex_from(digest, sizeof digest, joined);
    return str_eq(str_from(joined), str_from(s->sha256));
}

int seal_read(struct str text, struct str sha256, struct arena *arena, struct seal *ret,
              struct err *err)
{
    struct seal s = { 0 };
    struct str rest = text;
    if (text.len > SEAL_BYTES_MAX) return err_set(err, -E2BIG, "the seal of the model is too long");
    if (!str_eq(str_cut(&rest, '\n'), STR(HEAD))) return bad(err, "does not begin as one");
    struct str line = str_cut(&rest, '\n'), word = str_cut(&line, ' ');
    if (!str_eq(word, STR("model")) || !take_digest(line, s.sha256) ||
        !str_eq_nocase(sha256, str_from(s.sha256)))
        return bad(err, "is of another model");
    s.file = arena_array(arena, SEAL_FILES_MAX, sizeof *s.file);
    if (!s.file) return err_set(err, -ENOMEM, "no memory for a seal");
    while (rest.len > 0) {
        line = str_cut(&rest, '\n');
        word = str_cut(&line, ' ');
        if (!str_eq(word, STR("file"))) return bad(err, "has more chunks than a file needs");
        if (s.file_count == SEAL_FILES_MAX) return bad(err, "has too many files");
        if (s.file_count > 0 && str_eq(s.file[0].name, STR(SEAL_ONE_FILE)))
            return bad(err, "has a file beside the only one");
        int rc = read_file(line, &rest, arena, &s.file[s.file_count], err);
        if (rc < 0) return rc;
        s.file_count++;
    }
    if (s.file_count == 0 || !makes_model(&s)) return bad(err, "is of other files");
    *ret = s;
    return 0;
}
