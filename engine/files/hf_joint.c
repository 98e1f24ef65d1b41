/* hf_joint.c - finds the segment of an offset by bisection, and its rows in their file. */
#include "engine/files/hf_joint.h"

#include "base/core/bits.h"
#include "engine/kernels/half.h"

#include <stdlib.h>

#define F8_PIECE 4096u

static int read_f8(const struct gguf_source *s, uint64_t from, char *to, size_t count,
                   struct err *err)
{
    char piece[F8_PIECE];
    while (count > 0) {
        size_t n = min_size(count, sizeof piece);
        int rc = s->read(s->ctx, from, piece, n, err);
        if (rc < 0) return rc;
        for (size_t i = 0; i < n; i++) {
            uint16_t half = f32_to_f16(f8_e4m3_to_f32((uint8_t)piece[i]));
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

/* Makes the rows of a packed segment those in memory. */
static int unpack(struct hf_joint *j, const struct hf_segment *s, struct err *err)
{
    const size_t bytes = hf_packed_bytes(s->packed);
    if (j->unpacked == s) return 0;
    j->unpacked = NULL;
    if (bytes > j->rows_bytes) {
        free(j->rows);
        j->rows = malloc(bytes);
        j->rows_bytes = j->rows ? bytes : 0;
        if (!j->rows)
            return err_set(err, -ENOMEM, "no memory to unpack %zu bytes of weights", bytes);
    }
    int rc = hf_packed_read(s->packed, j->rows, err);
    if (rc == 0) j->unpacked = s;
    return rc;
}

/* Reads bytes of one segment, row by row where rows are reordered. */
static int read_segment(struct hf_joint *j, const struct hf_segment *s, uint64_t at, char *to,
                        size_t len, struct err *err)
{
    if (s->memory) {
        memcpy(to, s->memory + at, len);
        return 0;
    }
    const struct gguf_source *file = &j->files.at[s->file].file.source;
    int rc = s->packed ? unpack(j, s, err) : 0;
    if (rc < 0) return rc;
    while (len > 0) {
        uint64_t row = at / s->row_bytes, in_row = at % s->row_bytes;
        size_t n = s->head_rows ? min_size(len, (size_t)(s->row_bytes - in_row)) : len;
        uint64_t place = file_row(s, row) * s->row_bytes + in_row;
        must(!s->f8 || (place % 2 == 0 && n % 2 == 0)); /* segments are, and pieces of digests */
        if (s->packed)
            memcpy(to, j->rows + place, n);
        else
            rc = s->f8 ? read_f8(file, s->from + place / 2, to, n / 2, err)
                       : file->read(file->ctx, s->from + place, to, n, err);
        if (rc < 0) return err_prefix(err, rc, "%s", j->files.at[s->file].path);
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
    struct hf_joint *j = joint;
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

void hf_joint_fini(struct hf_joint *j)
{
    hf_files_close(&j->files);
    free(j->segments);
    free(j->rows);
    *j = (struct hf_joint){ 0 };
}
