/* hf_joint.h - gives the tensors of several safetensors files one space of offsets.
 *
 * Layer:    engine/files
 * Threads:  one at a time
 * Segments: sorted by offset; what lies between them reads as zeros. A segment is a tensor, or one
 *           expert's part of a stack of tensors
 */
#pragma once
#include "engine/files/hf_packed.h"

struct hf_segment {
    uint64_t offset, bytes; /* in the joint space */
    uint64_t from;          /* in the file */
    const char *memory;     /* it is here instead; NULL: in the file */
    uint32_t file;
    uint32_t head_rows;             /* of a head whose rows are reordered; 0: none are */
    uint64_t row_bytes;             /* in the joint space */
    bool f8;                        /* one byte in the file is two there: F16 */
    const struct hf_packed *packed; /* its rows are unpacked; NULL: they are in the file */
};

struct hf_joint {
    struct hf_files files;
    struct hf_segment *segments;
    uint32_t segment_count;
    const struct hf_segment *unpacked; /* whose rows are in `rows`; NULL: none */
    char *rows;
    size_t rows_bytes; /* of memory at `rows` */
};

void hf_joint_fini(struct hf_joint *j);

/* As gguf_source.read; `joint` is a struct hf_joint. A packed segment is unpacked whole when it is first read, and kept
 * until another one is. */
int hf_joint_read(void *joint, uint64_t offset, void *data, size_t len, struct err *err);
