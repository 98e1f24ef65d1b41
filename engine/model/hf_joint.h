/* hf_joint.h - gives the tensors of several safetensors files one space of offsets.
 *
 * Layer:    engine/model
 * Segments: sorted by offset; what lies between them reads as zeros. A segment is a tensor, or one
 *           expert's part of a stack of tensors
 */
#pragma once
#include "engine/model/safetensors.h"

#define HF_PATH_MAX 4096

struct hf_file {
    struct gguf_file file;
    struct safetensors *table;
    char path[HF_PATH_MAX];
};

struct hf_segment {
    uint64_t offset, bytes; /* in the joint space */
    uint64_t from;          /* in the file */
    const char *memory;     /* it is here instead; NULL: in the file */
    uint32_t file;
    uint32_t head_rows; /* of a head whose rows are reordered; 0: none are */
    uint64_t row_bytes; /* in the joint space */
    bool f8;            /* one byte in the file is two there: F16 */
};

struct hf_joint {
    struct hf_file *files;
    struct hf_segment *segments;
    uint32_t file_count, segment_count;
};

/* As gguf_source.read; `joint` is a struct hf_joint. */
int hf_joint_read(void *joint, uint64_t offset, void *data, size_t len, struct err *err);
