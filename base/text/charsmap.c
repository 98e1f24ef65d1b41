/* charsmap.c - walks the double array of a character map.
 *
 * A unit of darts-clone: bits 0..7 and 31 are its label, bit 8 says that an entry ends here, bits 10..30 are
 * the offset of its children, shifted by 8 if bit 9 is set. The unit of an ended entry holds its value in
 * bits 0..30. The child of unit `p` by byte `c` is at p ^ offset ^ c, and has the label c.
 */
#include "base/text/charsmap.h"

#include "base/core/bits.h"
#include "base/core/work.h"
#include "base/text/text_rules.h"

#include <string.h>

int charsmap_check(struct str blob, struct err *err)
{
    if (blob.len > CHARSMAP_BYTES_MAX)
        return err_set(err, -E2BIG, "a character map of %zu bytes: at most %u", blob.len,
                       CHARSMAP_BYTES_MAX);
    uint32_t trie = blob.len >= 4 ? load_u32(blob.data) : 0;
    if (trie < 4 || trie % 4 != 0 || trie > blob.len - 4)
        return err_set(err, -EINVAL, "the character map is malformed: a trie of %u bytes in %zu",
                       trie, blob.len);
    struct str texts = { blob.data + 4 + trie, blob.len - 4 - trie };
    if (texts.len > 0 && texts.data[texts.len - 1] != '\0')
        return err_set(err, -EINVAL, "the character map is malformed: its last text has no end");
    if (!str_utf8_valid(texts))
        return err_set(err, -EINVAL, "the character map is malformed: a text that is not UTF-8");
    return 0;
}

struct charsmap charsmap_open(struct str blob)
{
    uint32_t trie = load_u32(blob.data);
    return (struct charsmap){ { blob.data + 4, trie },
                              { blob.data + 4 + trie, blob.len - 4 - trie } };
}

static bool unit_at(const struct charsmap *m, uint32_t at, uint32_t *ret)
{
    if (at >= m->units.len / 4) return false;
    *ret = load_u32(m->units.data + 4 * (size_t)at);
    return true;
}

static uint32_t offset_of(uint32_t unit)
{
    return unit >> 10 << ((unit & 1u << 9) >> 6);
}

/* Returns the text that begins at `at`; false if that is no start of one. */
static bool text_at(const struct charsmap *m, uint32_t at, struct str *ret)
{
    if (at >= m->texts.len || (at > 0 && m->texts.data[at - 1] != '\0')) return false;
    *ret = str_from(m->texts.data + at); /* charsmap_check saw the last zero */
    return true;
}

size_t charsmap_find(const struct charsmap *m, struct str text, bool longest, struct str *ret)
{
    uint32_t unit, at = 0, value;
    size_t found = 0, i = 0;
    if (!unit_at(m, at, &unit)) return 0;
    at ^= offset_of(unit);
    for (; i < text.len && text.data[i] != '\0'; i++) {
        unsigned char c = (unsigned char)text.data[i];
        at ^= c;
        if (!unit_at(m, at, &unit) || (unit & (1u << 31 | 0xFF)) != c) break;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        if (!unit_at(m, at, &value) || !text_at(m, value & (UINT32_MAX >> 1), ret)) break;
        found = i + 1;
        if (!longest) break;
    }
    work_add(i + 1);
    return found;
}
