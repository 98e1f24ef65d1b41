/* step_memory.h - hands out the memory of a step: rows of floats, then activations rounded to int8.
 *
 * Layer:    engine/model, for the steps of decoders, encoders, experts and latent attention
 * Use:      a list of parts is summed up once, for the bytes, and placed once they are mapped; so the same lines size
 *           the memory and lay it out
 */
#pragma once
#include <stddef.h>
#include <sys/mman.h>

#define STEP_PART_ALIGN ((size_t)64)

struct step_part {
    float **to;
    size_t floats;
};

/* Sets the parts from `base` on and returns their bytes. With base NULL it only counts. */
static inline size_t step_parts_place(const struct step_part *part, size_t count, char *base)
{
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (base) *part[i].to = (float *)(void *)(base + used);
        used += (part[i].floats * sizeof(float) + STEP_PART_ALIGN - 1) / STEP_PART_ALIGN *
                STEP_PART_ALIGN;
    }
    return used;
}

/* Returns zeroed memory, whose pages come as they are touched; NULL: there is none. munmap frees it. */
static inline char *step_memory_new(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}
