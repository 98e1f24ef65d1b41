/* adapter_step.h - adds what adapters bring to the products of a step, for the rows of each adapter.
 *
 *     y[r] += scale B (A x[r])        for the rows r whose sequence has the adapter
 *
 * Layer:    engine/model (engine/kernels)
 * Threads:  the thread that runs the step; products are shared out among the step's workers
 * Equality: a row's sum is a function of x[r] and the adapter: products are those of the kernels' table, in F32,
 *           and other rows of the step, chunks and threads change no bit
 * Cost:     nothing for a step without adapters; else A and B of a group are read once for all its rows
 */
#pragma once
#include "engine/model/adapter.h"
#include "engine/model/arch.h"

struct adapter_step;

/* Takes the memory for steps of up to tokens_max tokens in seqs_max sequences. -ENOMEM. */
int adapter_step_new(uint32_t tokens_max, uint32_t seqs_max, uint32_t rank_max,
                     struct adapter_step **ret);
void adapter_step_free(struct adapter_step *s);

/* Forgets the rows, and adds rows [row, row + count) of one adapter behind those that are there. Rows that
 * follow each other with the same adapter are one group; rows without an adapter are not added. */
void adapter_step_clear(struct adapter_step *s);
void adapter_step_rows(struct adapter_step *s, const struct adapter *a, uint32_t row,
                       uint32_t count);

/* Returns true if an adapter of the step changes this matrix. */
bool adapter_step_has(const struct adapter_step *s, uint32_t layer, enum adapter_slot slot);

/* Adds to y, where x went through the matrix of this layer and slot. Strides are in floats. */
void adapter_step_add(struct adapter_step *s, const struct ops *ops, const struct arch_step *step,
                      uint32_t layer, enum adapter_slot slot, const float *x, size_t x_stride,
                      float *y, size_t y_stride);
