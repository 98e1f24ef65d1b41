/* hf_joint.c - finds the segment of an offset by bisection, and its rows in their file. */
#include "engine/model/hf_joint.h"

#include "base/core/bits.h"
#include "engine/kernels/half.h"

#define F8_PIECE 4096u

/* E4M3 has four bits of exponent (bias 7) and three of fraction, no infinity, and NaN in 0x7f. */
static uint16_t f8_to_f16(uint8_t v)
{
    uint16_t sign = (uint16_t)((v & 0x80) << 8);
    uint32_t exponent = v >> 3 & 15u, fraction = v & 7u;
    if ((v & 0x7f) == 0x7f) return sign | 0x7e00;
    float f = exponent ? (float)(8 + fraction) * f32_from_bits((exponent + 117) << 23)
                       : (float)fraction * 0x1p-9f;
    return sign | f32_to_f16(f);
}

static int read_f8(const struct gguf_source *s, uint64_t from, char *to, size_t count,
                   struct err *err)
{
    char piece[F8_PIECE];
    while (count > 0) {
        size_t n = min_size(count, sizeof piece);
        int rc = s->read(s->ctx, from, piece, n, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < n; i++) {
            uint16_t half = f8_to_f16((uint8_t)piece[i]);
            memcpy(to + i * 2, &half, sizeof half);
        }
        from += n, to += n * 2, count -= n;
    }
    return 0;
}

/* Returns where row `row` is in the file: adjacent pairs there come from the halves of a head. */
static uint64_t file_row(const struct hf_segment *s, uint64_t row)
{
    if (s->head_rows == 0) return row;
    uint64_t in_head = row % s->head_rows;
    return row - in_head + in_head / 2 + in_head % 2 * (s->head_rows / 2);
}

/* Reads bytes of one segment, row by row where rows are reordered. */
static int read_segment(const struct hf_joint *j, const struct hf_segment *s, uint64_t at, char *to,
                        size_t len, struct err *err)
{
    if (s->memory) {
        memcpy(to, s->memory + at, len);
        return 0;
    }
    const struct gguf_source *file = &j->files[s->file].file.source;
    while (len > 0) {
        uint64_t row = at / s->row_bytes, in_row = at % s->row_bytes;
        size_t n = s->head_rows ? min_size(len, (size_t)(s->row_bytes - in_row)) : len;
        uint64_t place = file_row(s, row) * s->row_bytes + in_row;
        must(!s->f8 || (place % 2 == 0 && n % 2 == 0)); /* segments are, and pieces of digests */
        int rc = s->f8 ? read_f8(file, s->from + place / 2, to, n / 2, err)
                       : file->read(file->ctx, s->from + place, to, n, err);
        if (rc < 0) return err_prefix(err, rc, "%s", j->files[s->file].path);
        at += n, to += n, len -= n;
    }
    return 0;
}

/* Returns the first segment that ends behind `offset`; `used` if there is none. */
static uint32_t segment_at(const struct hf_joint *j, uint64_t offset)
{
    uint32_t low = 0, high = j->segment_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (j->segments[middle].offset + j->segments[middle].bytes <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int hf_joint_read(void *joint, uint64_t offset, void *data, size_t len, struct err *err)
{
    const struct hf_joint *j = joint;
    char *to = data;
    memset(to, 0, len); /* what lies between the segments */
    uint64_t end = offset + len;
    for (uint32_t i = segment_at(j, offset); i < j->segment_count && j->segments[i].offset < end;
         i++) {
        const struct hf_segment *s = &j->segments[i];
        uint64_t first = max_u64(offset, s->offset), last = min_u64(end, s->offset + s->bytes);
        int rc = read_segment(j, s, first - s->offset, to + (first - offset),
                              (size_t)(last - first), err);
        if (rc < 0) return rc;
    }
    return 0;
}
