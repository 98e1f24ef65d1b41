/* limits.h - measures what this machine can do at most, beside which the figures of `muster bench` stand.
 *
 * Layer:   cli (engine/kernels)
 * Threads: each thread runs the same loop; a rate is the sum over threads of the best of a few runs
 */
#pragma once
#include "base/core/err.h"
#include "engine/kernels/op.h"

#define BENCH_THREADS_MAX 64
#define BENCH_HUGE_PAGE ((size_t)2 << 20)

struct bench_limits {
    /* reads of a buffer larger than the caches, in huge pages where there are any */
    double read_gb_s;
    /* vpmaddubsw and vpaddw, vpdpbusd or tdpbssd, smlal or sdot from registers, as the kernels use; a multiply and
     * an add are two; 0: neither x86-64 nor AArch64 */
    double int8_gop_s;
    double bf16_gop_s; /* of the instruction that the kernels multiply BF16 with; 0: none */
    double f32_gop_s;  /* fused multiply-adds from registers, as wide as the kernels'; 0 likewise */
};

/* Measures with `threads` threads. -ENOMEM, or the error of a thread that could not start. */
int bench_limits_measure(const struct ops *ops, uint32_t threads, struct bench_limits *ret,
                         struct err *err);

/* Returns the processor seconds of one call: the best of a few runs of at least 20 ms, because other work can
 * only make it slower. */
double bench_best_s(void (*once)(void *ctx), void *ctx);

double bench_now_s(void);    /* by the clock */
double bench_thread_s(void); /* processor time of the calling thread */
